"""One case measured, and however it ends told as a status with its reason."""

import math
import time
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

import torch

from attnbench.harness.checks import correct
from attnbench.harness.clock import Timed, interleaved
from attnbench.harness.errors import Diverged, Unsupported, UserError
from attnbench.harness.jobs import Outcome, Planned, Settings
from attnbench.harness.lab import Lab, Reporter, silent
from attnbench.harness.peers import joined
from attnbench.harness.processes import PeerLost
from attnbench.harness.rows import Measurement, Status
from attnbench.harness.seeds import seed
from attnbench.harness.spec import processes_of
from attnbench.variants.contract import Variant
from attnbench.variants.registry import find

OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "not enough memory", "Cannot allocate memory")
TORCH = Path(torch.__file__).parent


def laboratory(planned: Planned, settings: Settings, report: Reporter = silent) -> Lab:
    """The bench of a case: its variant found, its threads set."""
    torch.set_num_threads(planned.case.threads)
    # layers of other people's variants may draw from the global generator
    torch.manual_seed(seed("global", str(planned.case)))
    variant = _found(planned.address) if planned.address else None
    return Lab(
        planned.case,
        variant,
        report,
        None if settings.cache is None else Path(settings.cache),
        evaluation=planned.evaluation,
        identity=planned.identity,
        checkpoints=None if settings.checkpoints is None else Path(settings.checkpoints),
        trained_since=settings.trained_since,
    )


@cache
def _found(address: str) -> Variant:
    """The variant, its file imported once in a process: the same code for all cases."""
    return find(address)


def fails_checks(planned: Planned, lab: Lab, settings: Settings) -> str:
    """Why the form may not be measured: the first conformance check that it fails. Empty where it passes."""
    if lab.variant is None or not settings.checks:
        return ""
    return correct(lab.variant, planned.case.form, processes_of(planned.case.device)[0])


def measure(
    planned: Planned,
    suite: ModuleType,
    settings: Settings,
    report: Reporter = silent,
    abandon: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcome:
    """One case, run by the suite's `measure(lab)`, in as many processes as it is for.

    `abandon` is called, from another thread, where one of them is lost and this one waits for it in vain.
    """
    started = time.perf_counter()
    lab: Lab | None = None
    status, reason = Status.OK, ""
    try:
        lab = laboratory(planned, settings, report)
        if reason := fails_checks(planned, lab, settings):
            status = Status.WRONG
        else:
            with joined(planned, settings, abandon) as lab.processes:
                started = time.perf_counter()
                suite.measure(lab)
    except (Exception, SystemExit) as problem:
        status, reason = ending(problem)
    return _outcome(lab, status, reason, time.perf_counter() - started)


def measure_times(
    job: Sequence[Planned],
    suite: ModuleType,
    settings: Settings,
    begin: Callable[[int | None], None] = lambda index: None,
    report: Reporter = silent,
) -> list[Outcome]:
    """The cases of one point, prepared by the suite's `prepare(lab)` and timed in interleaved rounds.

    `begin` is told which case is prepared, and None when the rounds begin.
    """
    labs: dict[str, Lab | None] = {}
    endings: dict[str, tuple[Status, str]] = {}
    timed: dict[str, Timed] = {}
    seconds: dict[str, float] = {}
    for index, planned in enumerate(job):
        begin(index)
        key, started = planned.case.key(), time.perf_counter()
        labs[key] = None
        try:
            lab = labs[key] = laboratory(planned, settings)
            if reason := fails_checks(planned, lab, settings):
                endings[key] = Status.WRONG, reason
            else:
                timed[key] = suite.prepare(lab)
        except (Exception, SystemExit) as problem:
            endings[key] = ending(problem)
        seconds[key] = time.perf_counter() - started

    def failed(key: str, problem: Exception) -> None:
        endings[key] = ending(problem)

    begin(None)
    samples = interleaved(
        {key: one.call for key, one in timed.items()},
        torch.device(job[0].case.device),
        rounds=settings.timing_rounds,
        failed=failed,
        progress=lambda fraction: report(fraction, f"{len(timed)} variants in turn"),
        before={key: one.before for key, one in timed.items() if one.before is not None},
    )
    for key, taken in samples.items():
        seconds[key] += sum(taken)
        try:
            timed[key].record(taken)
        except Exception as problem:
            endings[key] = ending(problem)
    outcomes = []
    for planned in job:
        key = planned.case.key()
        status, reason = endings.get(key, (Status.OK, ""))
        outcomes.append(_outcome(labs[key], status, reason, seconds[key]))
    return outcomes


def measure_one_time(
    planned: Planned, suite: ModuleType, settings: Settings, samples: Callable[[Timed], Sequence[float]]
) -> Outcome:
    """One timing case on its own, by a timing loop that gives the seconds of each call."""
    started = time.perf_counter()
    lab: Lab | None = None
    status, reason = Status.OK, ""
    try:
        lab = laboratory(planned, settings)
        if reason := fails_checks(planned, lab, settings):
            status = Status.WRONG
        else:
            timed = suite.prepare(lab)
            if taken := samples(timed):
                timed.record(taken)
            else:
                status, reason = Status.SKIPPED, "the clock was off (--benchmark-disable)"
    except (Exception, SystemExit) as problem:
        status, reason = ending(problem)
    return _outcome(lab, status, reason, time.perf_counter() - started)


def ending(problem: BaseException) -> tuple[Status, str]:
    """The status that an exception stands for, and the reason in one line."""
    if isinstance(problem, Unsupported):
        return Status.SKIPPED, str(problem)
    if isinstance(problem, Diverged):
        return Status.DIVERGED, str(problem)
    if isinstance(problem, PeerLost):
        return problem.status, str(problem)
    if _is_out_of_memory(problem):
        return Status.OUT_OF_MEMORY, f"{type(problem).__name__}: {_first_line(problem)}"
    if isinstance(problem, UserError):
        return Status.ERROR, str(problem)
    return Status.ERROR, f"{type(problem).__name__}: {_first_line(problem)} ({_place(problem)})"


def _is_out_of_memory(problem: BaseException) -> bool:
    if isinstance(problem, MemoryError | torch.OutOfMemoryError):
        return True
    # torch's allocator for the CPU raises a plain RuntimeError, the system an OSError
    return isinstance(problem, RuntimeError | OSError) and any(text in str(problem) for text in OUT_OF_MEMORY)


def _place(problem: BaseException) -> str:
    """Where it was raised: the last line that is not torch's own."""
    frames = traceback.extract_tb(problem.__traceback__)
    ours = [frame for frame in frames if not Path(frame.filename).is_relative_to(TORCH)]
    last = (ours or frames)[-1]
    return f"{Path(last.filename).name}, line {last.lineno}"


def _first_line(problem: BaseException) -> str:
    return (str(problem).strip() or "no message").splitlines()[0]


def _outcome(lab: Lab | None, status: Status, reason: str, seconds: float) -> Outcome:
    """What a case came to. A number that is not finite cannot be stored: with it, what went well has diverged."""
    if lab is None:
        return Outcome(status, reason, seconds)
    finite = tuple(one for one in lab.measurements if all(map(math.isfinite, _numbers(one))))
    if status is Status.OK and len(finite) < len(lab.measurements):
        bad = [
            f"{one.metric} is {number}"
            for one in lab.measurements
            for number in _numbers(one)
            if not math.isfinite(number)
        ]
        status, reason = Status.DIVERGED, bad[0]
    return Outcome(status, reason, seconds, finite, tuple(lab.curves), tuple(lab.artefacts), _facts(lab))


def _facts(lab: Lab) -> dict[str, str]:
    """What the suite says beside its numbers, and what of the training was done by an earlier process."""
    resumed = lab.kept.resumed_at if lab.kept is not None else 0
    return {**lab.facts, "resumed": f"step {resumed}"} if resumed else dict(lab.facts)


def _numbers(measured: Measurement) -> tuple[float, ...]:
    return (measured.value, *measured.samples)
