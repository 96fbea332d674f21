"""From a request to stored rows: plan, data, database, identity, run. Nothing is written before the plan holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from attnbench.harness import environment
from attnbench.harness.codehash import code_hash
from attnbench.harness.data.fetch import data_hash, fetch
from attnbench.harness.errors import BadParameter, did_you_mean
from attnbench.harness.jobs import Planned, Settings
from attnbench.harness.plan import Asked, Request, default_workers, plan, with_timeout
from attnbench.harness.progress import Display
from attnbench.harness.rows import Identity
from attnbench.harness.runner import Runner, Terms, worker_environment
from attnbench.harness.spec import Suite
from attnbench.harness.store import Store

RERUNS = ("missing", "failed", "always")


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
    """Do what is asked and missing; the exit code: 0, or 1 if a case failed.

    Raises a UserError for a mistake, before anything is written, and KeyboardInterrupt after Ctrl-C.
    """
    from attnbench.variants.registry import find

    if options.rerun not in RERUNS:
        raise BadParameter(
            f"--rerun takes missing, failed or always, got '{options.rerun}'. {did_you_mean(options.rerun, RERUNS)}"
        )
    if options.workers < 0:
        raise BadParameter(f"--workers is a number from 0 up, got {options.workers}. Use 0 for one a processor.")
    asked = plan(suites, request, find)
    console = Console(stderr=True)
    planned = planned_cases(asked, options, console)
    workers = options.workers or default_workers()
    with Store.open(options.database, writes=True) as store:
        this = environment.this_run(arguments, device=request.device, worker_environment=worker_environment(1))
        terms = Terms(this.id, environment.lease_owner(), options.lease_seconds, options.rerun)
        todo = [
            one for one in planned if not store.is_done(one.case, one.identity, rerun=options.rerun, run_id=this.id)
        ]
        console.print(
            f"{len(planned)} cases, {len(planned) - len(todo)} done before; "
            f"{min(workers, max(len(todo), 1))} worker{'s' if workers > 1 else ''} on {request.device}; database {options.database}",
            highlight=False,
            markup=False,
        )
        if not todo:
            return 0
        store.begin_run(this)
        for suite in {one.suite.name: one.suite for one in asked}.values():
            store.record_suite(suite)
        return _do(store, terms, todo, workers, console)


def planned_cases(asked: Sequence[Asked], options: Options, console: Console) -> list[Planned]:
    """The cases with what their numbers hang on; data sets that are not in the cache are fetched. Raises a UserError."""
    asked = [replace(one, grid=with_timeout(one.grid, options.timeout_seconds)) for one in asked]
    hashes = _data_hashes(asked, options, console)
    return [_planned(one, hashes, options) for one in asked]


def _do(store: Store, terms: Terms, todo: Sequence[Planned], workers: int, console: Console) -> int:
    """Run the cases under the terms and close the run as what it became."""
    state = "interrupted"
    try:
        with Display(console, todo, workers) as display:
            endings = Runner(store, terms, Settings(), workers, display).run(todo)
        state = "failed" if any(status.is_failure for status in endings) else "finished"
    except KeyboardInterrupt:
        raise
    except BaseException:
        state = "failed"
        raise
    finally:
        store.end_run(terms.run_id, state)
    console.print(
        "ended: " + ", ".join(f"{count} {status.value}" for status, count in sorted(endings.items())), highlight=False
    )
    return 1 if state == "failed" else 0


def _data_hashes(asked: Sequence[Asked], options: Options, console: Console) -> dict[str, str]:
    """Data set -> hash, each fetched if it is not in the cache."""
    names = sorted({name for one in asked for name in one.suite.data(one.case.point)})
    for name in names:
        fetch(name, offline=options.offline, report=lambda text: console.print(text, highlight=False, markup=False))
    return {name: data_hash(name) for name in names}


def _planned(asked: Asked, hashes: Mapping[str, str], options: Options) -> Planned:
    from attnbench.variants.registry import find

    case, suite = asked.case, asked.suite
    origins = find(asked.address).origins if asked.address else ()
    data = ",".join(f"{name}:{hashes[name][:16]}" for name in suite.data(case.point))
    on_a_clock = suite.is_timing or suite.isolates
    return Planned(
        case=case,
        identity=Identity(
            code_hash=_hash(suite.module, origins),
            data_hash=data or "generated",
            testbed=environment.hardware(case.device) if on_a_clock else "",
        ),
        module=suite.module,
        address=asked.address,
        timeout_seconds=asked.grid.timeout_seconds,
        expected_seconds=asked.grid.seconds_per_case,
        axis=suite.axis,
        is_timing=suite.is_timing,
        isolates=suite.isolates or (options.isolates and not suite.is_timing),
    )


def _hash(module: str, origins: tuple[Path, ...]) -> str:
    import importlib

    return code_hash((Path(str(importlib.import_module(module).__file__)), *origins))
