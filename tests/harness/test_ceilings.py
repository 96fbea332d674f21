"""What a device does at most: the best of several tries, and what that allows an operation."""

from collections.abc import Callable
from functools import cache

import pytest
import torch

from attnbench.harness import ceilings as subject
from attnbench.harness.ceilings import TRIES, Ceilings, measured_ceilings

CPU = torch.device("cpu")


def test_a_ceiling_is_the_best_of_several_tries_after_one_that_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = iter([4.0, 2.0, 8.0, 3.0, 5.0, 9.0, 0.5, 1.0, 2.0, 3.0])
    calls = []

    def seconds(call: Callable[[], object], device: torch.device) -> float:
        calls.append(call())
        return next(taken)

    monkeypatch.setattr(subject, "seconds", seconds)
    found = measured_ceilings(CPU, ("float64",), 10, 1000)
    assert found.bytes_per_second == 2 * 1000 / 2
    assert found.flops_per_second == {"float64": 2 * 10**3 / 0.5}
    assert len(calls) == 2 * TRIES


def test_an_operation_takes_at_least_the_longer_of_arithmetic_and_moving() -> None:
    most = Ceilings(100.0, {"float32": 1000.0, "bfloat16": 4000.0})
    assert most.seconds(2000, 100) == 2
    assert most.seconds(2000, 300) == 3
    assert most.seconds(8000, 100, "bfloat16") == 2


def test_ceilings_are_stored_by_what_they_are() -> None:
    assert Ceilings(1.23456e10, {"float32": 5e11}).facts() == {
        "ceiling_bytes_per_second": "1.235e+10",
        "ceiling_float32_flops_per_second": "5e+11",
    }


def test_they_are_measured_once_for_a_device_and_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    def measure(device: torch.device, dtypes: tuple[str, ...], matrix: int, copied_bytes: int) -> Ceilings:
        measured.append((str(device), dtypes, matrix, copied_bytes))
        return Ceilings(1.0, {"float32": 1.0})

    monkeypatch.setattr(subject, "measured_ceilings", measure)
    # a memory of this test's own
    monkeypatch.setattr(subject, "_kept", cache(subject._kept.__wrapped__))
    for threads in (1, 1, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        subject.ceilings(CPU)
    assert measured == [("cpu", ("float32",), 2048, 1 << 27)] * 2
