"""One case measured: its checks first, then the suite, and however it ends a status with its reason."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from attnbench.harness import measuring
from attnbench.harness.checks import correct
from attnbench.harness.clock import Timed
from attnbench.harness.errors import Diverged, UnknownMetric, Unsupported, UserError
from attnbench.harness.jobs import Outcome, Planned, Settings, attempt
from attnbench.harness.lab import Lab
from attnbench.harness.measuring import measure, measure_one_time, measure_times
from attnbench.harness.processes import ALONE, PeerLost
from attnbench.harness.rows import Identity, Status
from attnbench.harness.spec import Case, Point

UNCHECKED = Settings(checks=False, timing_rounds=3)


def case(variant: str = "linear", form: str = "recurrent", *, threads: int = 1) -> Planned:
    one = Case("toy", variant, form, Point(pairs=2), 0, "smoke", threads=threads)
    return Planned(one, Identity("", ""), "toy", variant, 60, 1)


def suite(**functions: Any) -> ModuleType:
    return SimpleNamespace(**functions)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("problem", "status", "reason"),
    [
        (Unsupported("delta/triton needs cuda; this device is cpu."), "skipped", "delta/triton needs cuda; this device is cpu."),
        (Diverged(7, 0.25), "diverged", "the loss was not finite at step 7 (last finite loss 0.25)"),
        (MemoryError("too much"), "out_of_memory", "MemoryError: too much"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nGPU 0 has"), "out_of_memory",
         "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB."),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out_of_memory", "RuntimeError: DefaultCPUAllocator: can't allocate memory"),
        (OSError(12, "Cannot allocate memory"), "out_of_memory", "OSError: [Errno 12] Cannot allocate memory"),
        (ValueError("not out of memory"), "error", "ValueError: not out of memory (test_measuring.py, line "),
        (UserError("a user's mistake"), "error", "a user's mistake"),
        (PeerLost("process 2 of 2 was killed"), "error", "process 2 of 2 was killed"),
        (PeerLost("process 2 of 2: no memory", Status.OUT_OF_MEMORY), "out_of_memory", "process 2 of 2: no memory"),
        (KeyError(), "error", "KeyError: no message (test_measuring.py, line "),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)  # fmt: skip
def test_an_exception_ends_a_case_as_what_it_is(problem: Exception, status: str, reason: str) -> None:
    def raises(lab: Lab) -> None:
        raise problem

    outcome = measure(case(), suite(measure=raises), UNCHECKED)
    assert outcome.status == status
    assert outcome.reason.startswith(reason)


def test_an_error_inside_torch_is_told_at_the_line_that_called_it() -> None:
    def raises(lab: Lab) -> None:
        torch.einsum("b h v d", torch.zeros(1))

    line = raises.__code__.co_firstlineno + 1
    assert measure(case(), suite(measure=raises), UNCHECKED).reason.endswith(f"(test_measuring.py, line {line})")


def test_a_number_that_is_not_finite_has_diverged_and_is_not_kept() -> None:
    def records(lab: Lab) -> None:
        lab.record("training_steps", 7)
        lab.record("retrieval_loss", 0.5, (0.5, float("inf")))

    outcome = measure(case(), suite(measure=records), UNCHECKED)
    assert (outcome.status, outcome.reason) == (Status.DIVERGED, "retrieval_loss is inf")
    assert [one.metric for one in outcome.measurements] == ["training_steps"]


def test_an_undefined_metric_is_an_error_of_the_case() -> None:
    outcome = measure(case(), suite(measure=lambda lab: lab.record("los", 1)), UNCHECKED)
    assert outcome.status is Status.ERROR
    assert outcome.reason.startswith("no metric 'los'. Known: ")
    with pytest.raises(UnknownMetric):
        Lab(case().case, None).record("los", 1)


def test_a_form_that_fails_its_checks_is_wrong_and_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        measuring, "correct", lambda variant, form, device: f"causality: {variant.name}/{form} looks ahead"
    )
    measured: list[Lab] = []
    outcome = measure(case(), suite(measure=measured.append), Settings())
    assert outcome == Outcome(Status.WRONG, "causality: linear/recurrent looks ahead", outcome.seconds)
    timed = measure_times([case()], suite(prepare=measured.append), Settings())
    assert (timed[0].status, timed[0].reason) == (Status.WRONG, "causality: linear/recurrent looks ahead")
    alone = measure_one_time(case(), suite(prepare=measured.append), Settings(), lambda call: [1.0])
    assert alone.status is Status.WRONG
    assert measured == []


def test_a_form_is_checked_on_the_device_of_one_of_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    monkeypatch.setattr(measuring, "correct", lambda variant, form, device: checked.append(device) or "wrong there")
    for device in ("cpu", "cpu*2", "cuda:1", "cuda*4"):
        planned = replace(case(), case=replace(case().case, device=device))
        assert measure(planned, suite(measure=lambda lab: None), Settings()).reason == "wrong there"
    assert checked == ["cpu", "cpu", "cuda:1", "cuda"]


def test_a_form_that_the_variant_lacks_is_skipped_with_those_it_has() -> None:
    outcome = measure(case(form="sdpa"), suite(measure=lambda lab: None), Settings())
    assert outcome.status is Status.SKIPPED
    assert re.fullmatch(
        r"linear has no form 'sdpa'; it has .*chunkwise, .*parallel, recurrent, step.*\.", outcome.reason
    )
    with pytest.raises(Unsupported):
        correct(measuring.find("linear"), "sdpa")


def test_a_case_runs_with_its_own_threads_and_its_own_global_seed() -> None:
    before = torch.get_num_threads()
    seen: list[tuple[int, float]] = []

    def look(lab: Lab) -> None:
        seen.append((torch.get_num_threads(), torch.rand(1).item()))

    try:
        for threads in (2, 1, 1):
            measure(case(threads=threads), suite(measure=look), UNCHECKED)
    finally:
        torch.set_num_threads(before)
    assert [threads for threads, _ in seen] == [2, 1, 1]
    assert len({drawn for _, drawn in seen}) == 1


def test_the_bench_of_a_case_knows_what_its_training_hangs_on(tmp_path: Path) -> None:
    planned = replace(case(), identity=Identity("code", "data"), evaluation=("pairs",))
    seen: list[Lab] = []
    measure(planned, suite(measure=seen.append), replace(UNCHECKED, checkpoints=str(tmp_path), trained_since=7.0))
    (lab,) = seen
    assert (lab.evaluation, lab.identity, lab.processes) == (("pairs",), Identity("code", "data"), ALONE)
    assert lab.training_point == Point()
    checkpoint = lab.checkpoint()
    assert checkpoint is not None
    assert (checkpoint.folder, checkpoint.trained_since) == (tmp_path, 7.0)


def test_a_case_whose_training_was_gone_on_with_says_from_which_step(tmp_path: Path) -> None:
    planned = replace(case(), identity=Identity("code", "data"))

    def facts(resumed_at: int) -> Mapping[str, str]:
        def measured(lab: Lab) -> None:
            checkpoint = lab.checkpoint()
            assert checkpoint is not None
            checkpoint.resumed_at = resumed_at

        return measure(planned, suite(measure=measured), replace(UNCHECKED, checkpoints=str(tmp_path))).facts

    assert (facts(0), facts(120)) == ({}, {"resumed": "step 120"})
    stored = attempt(
        replace(planned, facts={"settings": "pairs=2"}), Outcome(Status.OK, facts=facts(120)), door="pytest"
    )
    assert stored.facts == {"settings": "pairs=2", "resumed": "step 120", "door": "pytest"}


def test_a_variant_that_cannot_be_found_any_more_is_an_error_of_its_case() -> None:
    outcome = measure(case("gone.py:VARIANT"), suite(measure=lambda lab: None), UNCHECKED)
    assert (outcome.status, outcome.reason) == (Status.ERROR, "no variant file gone.py.")


def prepare(lab: Lab) -> Timed:
    """Something to time: what it does is in the form of the case."""
    if lab.case.form == "breaks":
        raise MemoryError("no room to prepare")

    def call() -> None:
        if lab.case.form == "fails":
            raise ValueError("the call fails")

    metric = "los" if lab.case.form == "records" else "decode_tokens_per_second"
    return Timed(call, lambda samples: lab.record(metric, len(samples), tuple(samples)))


def test_the_cases_of_a_point_are_timed_together_and_each_ends_for_itself() -> None:
    job = [case(form=form) for form in ("one", "breaks", "fails", "records", "two")]
    begun: list[int | None] = []
    told: list[tuple[float, str]] = []
    outcomes = measure_times(
        job, suite(prepare=prepare), UNCHECKED, begun.append, lambda fraction, note: told.append((fraction, note))
    )
    ok, out_of_memory, error = Status.OK, Status.OUT_OF_MEMORY, Status.ERROR
    assert [outcome.status for outcome in outcomes] == [ok, out_of_memory, error, error, ok]
    assert [len(outcome.measurements) for outcome in outcomes] == [1, 0, 0, 0, 1]
    assert len(outcomes[0].measurements[0].samples) == 3
    assert outcomes[3].reason.startswith("no metric 'los'")
    # each is prepared in turn, then the rounds begin
    assert begun == [0, 1, 2, 3, 4, None]
    assert [fraction for fraction, _ in told] == pytest.approx([1 / 3, 2 / 3, 1])


def test_one_case_is_timed_by_the_loop_of_another_tool() -> None:
    calls: list[object] = []

    def loop(timed: Timed) -> list[float]:
        calls.append(timed.call())
        return [0.5, 0.25]

    outcome = measure_one_time(case(), suite(prepare=prepare), UNCHECKED, loop)
    assert outcome.status is Status.OK
    assert outcome.measurements[0].samples == (0.5, 0.25)
    assert calls == [None]


def test_a_loop_that_is_switched_off_skips_the_case() -> None:
    outcome = measure_one_time(case(), suite(prepare=prepare), UNCHECKED, lambda timed: [])
    assert (outcome.status, outcome.reason) == (Status.SKIPPED, "the clock was off (--benchmark-disable)")
