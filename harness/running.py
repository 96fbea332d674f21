"""From a request to stored rows: plan, data, database, identity, run. Nothing is written before the plan holds."""

import importlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from attnbench.harness import environment
from attnbench.harness.codehash import code_hash
from attnbench.harness.data.fetch import data_hash, fetch
from attnbench.harness.errors import BadParameter, did_you_mean
from attnbench.harness.jobs import ALLOCATOR, ALONE, BESIDE_OTHERS, THREADS, WAIT_POLICY, Planned, Settings
from attnbench.harness.plan import Asked, Request, default_workers, plan, with_timeout
from attnbench.harness.progress import Display, Log
from attnbench.harness.rows import Identity, Status
from attnbench.harness.runner import Runner, Terms
from attnbench.harness.spec import Case, Suite, processes_of
from attnbench.harness.store import RERUNS, Store

if TYPE_CHECKING:
    from attnbench.variants.contract import Variant

TIMING = "timing"
# how often is timed, and with which allocator: what a time or a peak hangs on beside the suite and the variant
MEASURING = [Path(__file__).with_name(name) for name in ("measuring.py", "jobs.py")]


@dataclass(frozen=True)
class Options:
    """How to run, beside what."""

    database: str
    workers: int = 0
    isolates: bool = False
    timeout_seconds: float | None = None
    rerun: str = "missing"
    offline: bool = False
    lease_seconds: float = 60.0


def run_suites(suites: Mapping[str, Suite], request: Request, options: Options, arguments: Sequence[str]) -> int:
    """Do what is asked and missing; the exit code: 1 if a case that was asked for failed, now or before, else 0.

    Raises a UserError for a mistake, before anything is written, and KeyboardInterrupt after Ctrl-C.
    """
    from attnbench.variants.registry import find

    check_wishes(request, options)
    console = Log(stderr=True)
    asked = plan(suites, request, find)
    planned = planned_cases(asked, options, console)
    with Store.open(options.database, writes=True) as store:
        this = environment.this_run(arguments, device=request.device, worker_environment=_given_to_workers(planned))
        terms = Terms(this.id, environment.lease_owner(), options.lease_seconds, options.rerun)
        todo = [
            one for one in planned if not store.is_done(one.case, one.identity, rerun=options.rerun, run_id=this.id)
        ]
        workers = min(options.workers or default_workers(request.device), max(len(todo), 1))
        _say(
            console,
            f"{_count(len(planned), 'case')}, {len(planned) - len(todo)} done before; "
            f"{_count(workers, 'worker')} on {request.device}; database {environment.without_password(options.database)}",
        )
        if todo:
            store.begin_run(this)
            for suite in {one.suite.name: one.suite for one in asked}.values():
                store.record_suite(suite)
            _do(store, terms, todo, workers, console)
        failures = _failures(store, planned)
    if failures:
        _say(console, f"failed: {_counts(failures)}; `--rerun failed` tries them again")
    return 1 if failures else 0


def planned_cases(asked: Sequence[Asked], options: Options, console: Console) -> list[Planned]:
    """The cases with what their numbers hang on; data sets that are not in the cache are fetched. Raises a UserError."""
    from attnbench.variants.registry import find

    asked = [replace(one, grid=with_timeout(one.grid, options.timeout_seconds)) for one in asked]
    for one in asked:
        if "*" in one.case.device and not one.suite.spreads:
            raise BadParameter(
                f"suite '{one.suite.name}' is for one process, got device '{one.case.device}'. "
                f"Use --device {processes_of(one.case.device)[0]}."
            )
    hashes = _data_hashes(asked, options, console)
    variants = {address: find(address) for address in {one.address for one in asked if one.address}}
    return [_planned(one, _origins(one.case.form, variants.get(one.address)), hashes, options) for one in asked]


def _origins(form: str, variant: "Variant | None") -> tuple[Path, ...]:
    """The files that a form of a variant comes from."""
    if variant is None:
        return ()
    return (*variant.origins, *(variant.forms[form].origins if form in variant.forms else ()))


def check_wishes(request: Request, options: Options) -> None:
    """Refuse what makes no sense whatever the suites say. Raises BadParameter."""
    if options.rerun not in RERUNS:
        raise BadParameter(
            f"--rerun takes missing, failed or always, got '{options.rerun}'. {did_you_mean(options.rerun, RERUNS)}"
        )
    if options.workers < 0:
        raise BadParameter(f"--workers is a number from 0 up, got {options.workers}. Use 0 for one a processor.")
    if TIMING in request.settings:
        raise BadParameter(
            f"setting {TIMING} says who held the clock, so it cannot be chosen: `attnbench run` times in interleaved "
            "rounds, `pytest suites/` one case at a time."
        )


def _given_to_workers(planned: Sequence[Planned]) -> dict[str, str]:
    """The environment variables that the workers get, which hang on the case they are at."""
    threads = " or ".join(str(number) for number in sorted({one.case.threads for one in planned}))
    policies = " or ".join(sorted({ALONE if one.is_timing else BESIDE_OTHERS for one in planned}, reverse=True))
    return {**ALLOCATOR, WAIT_POLICY: policies, **dict.fromkeys(THREADS, threads)}


def _do(store: Store, terms: Terms, todo: Sequence[Planned], workers: int, console: Console) -> None:
    """Run the cases under the terms and close the run as what it became."""
    state = "failed"
    try:
        with Display(console, todo, workers) as display:
            # to do a case again is to train again, though its trained weights may still be there
            settings = Settings(trained_since=time.time() if terms.rerun == "always" else 0.0)
            endings = Runner(store, terms, settings, workers, display).run(todo)
        if not any(status.is_failure for status in endings):
            state = "finished"
    except KeyboardInterrupt:
        state = "interrupted"
        raise
    finally:
        store.end_run(terms.run_id, state)
    _say(console, f"ended: {_counts(endings)}")


def _failures(store: Store, planned: Sequence[Planned]) -> Counter[Status]:
    """How those of the cases ended that failed, whichever run did them."""
    identities = {one.case: one.identity for one in planned}
    ended: dict[Case, Status] = {}
    for row in store.rows(suites={case.suite for case in identities}, scales={case.scale for case in identities}):
        case = Case(row.suite, row.variant, row.form, row.point, row.seed, row.scale, row.device, row.threads)
        if identities.get(case) == Identity(row.code_hash, row.data_hash, row.testbed) and row.status.is_failure:
            ended[case] = row.status
    return Counter(ended.values())


def _data_hashes(asked: Sequence[Asked], options: Options, console: Console) -> dict[str, str]:
    """Data set -> hash, each fetched if it is not in the cache."""
    names = sorted({name for one in asked for name in one.suite.data(one.case.point)})
    for name in names:
        fetch(name, offline=options.offline, report=lambda text: _say(console, text))
    return {name: data_hash(name) for name in names}


def _planned(asked: Asked, origins: Sequence[Path], hashes: Mapping[str, str], options: Options) -> Planned:
    case, suite = asked.case, asked.suite
    data = ",".join(f"{name}:{hashes[name][:16]}" for name in suite.data(case.point))
    if suite.data_hash is not None:
        data = suite.data_hash(case.point, hashes)
    on_a_clock = suite.is_timing or suite.isolates
    files = [Path(str(importlib.import_module(suite.module).__file__)), *origins]
    if on_a_clock:
        files += MEASURING
    facts = {"address": asked.address if ".py" in asked.address else "", "settings": _without_timing(asked.settings)}
    return Planned(
        case=case,
        identity=Identity(
            code_hash=code_hash(files),
            data_hash=data or "generated",
            testbed=environment.hardware(case.device) if on_a_clock else "",
        ),
        module=suite.module,
        address=asked.address,
        timeout_seconds=asked.grid.timeout_seconds,
        expected_seconds=asked.grid.seconds_per_case,
        axis=suite.axis,
        metrics=suite.metrics,
        is_timing=suite.is_timing,
        # a process that is lost takes its worker along
        isolates=suite.isolates or case.processes > 1 or (options.isolates and not suite.is_timing),
        facts={name: fact for name, fact in facts.items() if fact},
        evaluation=suite.evaluation,
    )


def _without_timing(settings: str) -> str:
    """The settings chosen by hand, less the one that says who held the clock."""
    return ",".join(one for one in settings.split(",") if not one.startswith(f"{TIMING}="))


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _counts(endings: Mapping[Status, int]) -> str:
    return ", ".join(f"{count} {status.value}" for status, count in sorted(endings.items()))
