"""The clock: warm-up outside, rounds that alternate, a call that fails costs no other its samples."""

import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from attnbench.harness import clock
from attnbench.harness.clock import WARM_UP_CALLS, interleaved, now, seconds

CPU = torch.device("cpu")


class Calls:
    """Calls by name, and the order in which they came."""

    def __init__(self, names: str, broken: dict[str, int] | None = None) -> None:
        self.names, self.broken = names, broken or {}
        self.order: list[str] = []
        self.failures: list[tuple[str, str]] = []

    def all(self) -> dict[str, Callable[[], object]]:
        return {name: lambda name=name: self._call(name) for name in self.names}  # type: ignore[misc]

    def _call(self, name: str) -> None:
        self.order.append(name)
        if self.order.count(name) == self.broken.get(name):
            raise ValueError(f"{name} breaks")

    def failed(self, name: str, problem: Exception) -> None:
        self.failures.append((name, str(problem)))


def test_rounds_begin_with_another_call_each_time_after_a_warm_up() -> None:
    calls = Calls("ABC")
    samples = interleaved(calls.all(), CPU, rounds=4, failed=calls.failed)
    assert "".join(calls.order) == "AABBCC" + "ABC" + "BCA" + "CAB" + "ABC"
    assert WARM_UP_CALLS == 2
    assert {name: len(taken) for name, taken in samples.items()} == {"A": 4, "B": 4, "C": 4}


# call 1 and 2 are the warm-up
@pytest.mark.parametrize("broken", [1, 2, 3, 6])
def test_a_call_that_fails_is_told_once_and_left_out_and_the_others_keep_all_samples(broken: int) -> None:
    calls = Calls("ABC", {"B": broken})
    samples = interleaved(calls.all(), CPU, rounds=5, failed=calls.failed)
    assert calls.failures == [("B", "B breaks")]
    assert calls.order.count("B") == broken
    assert {name: len(taken) for name, taken in samples.items()} == {"A": 5, "C": 5}


def test_when_every_call_fails_there_is_nothing_left() -> None:
    calls = Calls("AB", {"A": 1, "B": 3})
    assert interleaved(calls.all(), CPU, rounds=3, failed=calls.failed) == {}


def test_what_comes_before_a_call_comes_before_each_of_it_and_off_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls("AB")
    ticks = iter(range(1000))
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    before = {"B": lambda: (calls.order.append("b"), next(ticks))[0]}
    samples = interleaved(calls.all(), CPU, rounds=2, failed=calls.failed, before=before)
    assert "".join(calls.order) == "AA" + "bBbB" + "AbB" + "bBA"
    assert samples == {"A": [1, 1], "B": [1, 1]}


def test_progress_is_told_after_each_round() -> None:
    told: list[float] = []
    interleaved(Calls("A").all(), CPU, rounds=4, failed=lambda name, problem: None, progress=told.append)
    assert told == [0.25, 0.5, 0.75, 1.0]


def test_a_sample_is_the_time_between_begin_and_end_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([10.0, 12.5])
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: next(moments)))
    assert seconds(lambda: None, CPU) == 2.5


def test_the_timer_for_other_loops_reads_the_same_clock() -> None:
    timer = now(CPU)
    before = time.perf_counter()
    assert before <= timer() <= time.perf_counter()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_work_of_the_stream_counts_and_not_its_launch() -> None:
    cuda = torch.device("cuda")
    x = torch.randn(4096, 4096, device=cuda)

    def work() -> None:
        for _ in range(20):
            torch.mm(x, x)

    work()
    launched = time.perf_counter()
    work()
    launched = time.perf_counter() - launched
    assert seconds(work, cuda) > launched
