"""How fast this device is, by a few seconds of work: real training steps of a case where they fit, else matrix products.

    rate = FLOPs / median of three times

A step is tried with one sequence, then with twice as many, and so on until it takes long enough to be timed: so it stays
small on a slow device, and comes up to the whole batch on a fast one.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

from attnbench.harness.clock import seconds
from attnbench.harness.costs import Trial
from attnbench.harness.errors import Unsupported

ENOUGH_SECONDS = 0.25
SAMPLES = 3
SMALLEST_PRODUCT, LARGEST_PRODUCT = 256, 16384

# seconds of one call
Stopwatch = Callable[[Callable[[], object]], float]


@dataclass(frozen=True)
class Rate:
    """FLOPs a second, and of what: no more is promised than that."""

    flops_per_second: float
    of: str


def on(device: torch.device) -> Stopwatch:
    """A stopwatch that waits for the device."""
    return lambda call: seconds(call, device)


def step_rate(trial: Trial, stopwatch: Stopwatch) -> Rate:
    """The rate of training steps at the largest number of sequences that it took, and that fits.

    Raises Unsupported where not even one sequence fits into the memory.
    """
    sequences, call, problem = 0, None, ""
    wanted, taken = 1, 0.0
    while sequences < trial.batch and taken < ENOUGH_SECONDS:
        try:
            tried = trial.call(wanted)
            tried()
            taken = stopwatch(tried)
        except (MemoryError, torch.OutOfMemoryError) as lack:
            problem = str(lack)
            break
        except RuntimeError as lack:
            # torch's allocator for the CPU has no exception of its own
            if "can't allocate memory" not in str(lack):
                raise
            problem = str(lack)
            break
        sequences, call = wanted, tried
        wanted = min(2 * sequences, trial.batch)
    if call is None:
        raise Unsupported(f"a step of one sequence does not fit: {problem or 'no memory'}")
    count = f"{sequences} sequence{'' if sequences == 1 else 's'}"
    return Rate(trial.flops(sequences) / _median(call, stopwatch), f"steps of {count}")


def product_rate(device: torch.device, stopwatch: Stopwatch) -> Rate:
    """The rate of products of two square matrices in float32: what hardly any model comes up to."""
    size = SMALLEST_PRODUCT
    while True:
        call = _product(size, device)
        call()
        if size == LARGEST_PRODUCT or stopwatch(call) >= ENOUGH_SECONDS:
            break
        size *= 2
    return Rate(2 * size**3 / _median(call, stopwatch), f"products of {size} x {size} matrices")


def _product(size: int, device: torch.device) -> Callable[[], object]:
    matrix = torch.full((size, size), 1 / size, device=device)
    return lambda: matrix @ matrix


def _median(call: Callable[[], object], stopwatch: Stopwatch) -> float:
    return statistics.median(stopwatch(call) for _ in range(SAMPLES))
