"""Time of a call: warm-up, interleaved rounds, synchronised device, raw samples kept."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

WARM_UP_CALLS = 2


@dataclass(frozen=True)
class Timed:
    """Something to be timed, with what to do with its samples (seconds a call), and what comes off the clock before each."""

    call: Callable[[], object]
    record: Callable[[Sequence[float]], None]
    before: Callable[[], object] | None = None


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call. On CUDA between two events on the stream, so that waiting for the host does not count."""
    if device.type == "cuda":
        # events belong to the current device
        torch.cuda.set_device(device)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(device)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize(device)
        return begin.elapsed_time(end) / 1e3
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def now(device: torch.device) -> Callable[[], float]:
    """A timer for tools that bring their own loop: it waits for the device, then reads the clock."""

    def timer() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    return timer


def interleaved(
    calls: Mapping[str, Callable[[], object]],
    device: torch.device,
    *,
    rounds: int,
    failed: Callable[[str, Exception], None],
    progress: Callable[[float], None] = lambda fraction: None,
    before: Mapping[str, Callable[[], object]] | None = None,
) -> dict[str, list[float]]:
    """Samples of each call, taken in rounds: A B C, B C A, C A B, ..., so that drift of the machine meets all alike.

    A call that raises is handed to `failed` and left out from then on. `before` has what is done off the clock before a call.
    """
    prepare = before or {}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)

    def attempt(name: str, keep: bool) -> None:
        try:
            if name in prepare:
                prepare[name]()
            taken = seconds(calls[name], device)
        except Exception as problem:
            failed(name, problem)
            names.remove(name)
            del samples[name]
            return
        if keep:
            samples[name].append(taken)

    for name in list(names):
        for _ in range(WARM_UP_CALLS):
            if name in samples:
                attempt(name, keep=False)
    for number in range(rounds):
        shift = number % max(len(names), 1)
        for name in names[shift:] + names[:shift]:
            attempt(name, keep=True)
        progress((number + 1) / rounds)
    return samples
