"""How fast a device is, by a stopwatch that says what the test wants."""

from collections.abc import Callable

import pytest
import torch

from attnbench.harness.costs import Trial
from attnbench.harness.errors import Unsupported
from attnbench.harness.rates import Rate, product_rate, step_rate


class Bench:
    """Steps of 1000 FLOPs and a tenth of a second a sequence, which fail from some number of sequences on."""

    def __init__(self, fails_at: int = 99, failure: Exception | None = None) -> None:
        self.fails_at, self.failure = fails_at, failure or torch.OutOfMemoryError("CUDA out of memory")
        self.built: list[int] = []
        self.at = 0

    def trial(self, batch: int) -> Trial:
        def call(sequences: int) -> Callable[[], object]:
            self.built.append(sequences)

            def step() -> None:
                self.at = sequences
                if sequences >= self.fails_at:
                    raise self.failure

            return step

        return Trial(batch, call, lambda sequences: 1000 * sequences)

    def stopwatch(self, call: Callable[[], object]) -> float:
        call()
        return 0.1 * self.at


def test_steps_grow_until_they_take_long_enough_to_be_timed() -> None:
    bench = Bench()
    rate = step_rate(bench.trial(batch=96), bench.stopwatch)
    # 0.1, 0.2, 0.4 s: the third is enough; 4000 FLOPs in 0.4 s
    assert bench.built == [1, 2, 4]
    assert rate == Rate(pytest.approx(10_000), "steps of 4 sequences")


def test_steps_grow_to_the_batch_and_no_further() -> None:
    bench = Bench()
    assert step_rate(bench.trial(batch=1), bench.stopwatch).of == "steps of 1 sequence"
    assert step_rate(bench.trial(batch=3), lambda call: 1e-3).of == "steps of 3 sequences"


@pytest.mark.parametrize(
    "failure",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"),
    ],
)
def test_the_largest_step_that_fits_is_timed(failure: Exception) -> None:
    bench = Bench(fails_at=2, failure=failure)
    assert step_rate(bench.trial(batch=96), bench.stopwatch).of == "steps of 1 sequence"


def test_a_step_that_never_fits_is_told() -> None:
    bench = Bench(fails_at=1)
    with pytest.raises(Unsupported, match=r"a step of one sequence does not fit: CUDA out of memory"):
        step_rate(bench.trial(batch=96), bench.stopwatch)


def test_another_failure_of_a_step_is_raised() -> None:
    bench = Bench(fails_at=1, failure=RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes do not match"):
        step_rate(bench.trial(batch=96), bench.stopwatch)


def test_products_grow_until_they_take_long_enough_and_count_two_n_cubed() -> None:
    taken = iter([0.1, 0.5, 0.5, 0.25, 1.0])
    rate = product_rate(torch.device("cpu"), lambda call: next(taken))
    # 256 is too quick, 512 is not; the median of three times is half a second: 2 * 512^3 / 0.5
    assert rate == Rate(4 * 512**3, "products of 512 x 512 matrices")
