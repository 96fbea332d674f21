"""`pytest suites/`: the cases of a suite as pytest items, stored in the same database as those of `attnbench run`.

Speed cases go through pytest-benchmark's fixture, one item at a time, with a timer that waits for the device; their
points say `timing=benchmark`, so that they are never mixed with the interleaved rounds of `attnbench run`.
"""

import importlib
import os
import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from attnbench.harness import environment
from attnbench.harness.errors import UserError
from attnbench.harness.jobs import Outcome, Planned, Settings, attempt
from attnbench.harness.plan import Request, parse_settings, plan
from attnbench.harness.progress import Display
from attnbench.harness.rows import Status
from attnbench.harness.runner import Runner, Terms, worker_environment
from attnbench.harness.running import TIMING, Options, check_wishes, planned_cases
from attnbench.harness.spec import Suite
from attnbench.harness.store import Claim, Store
from attnbench.suites import find_suites

if TYPE_CHECKING:
    from attnbench.harness.clock import Timed

FOUND = pytest.StashKey[dict[str, Suite]]()
PLANNED = pytest.StashKey[dict[str, list[Planned]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of `attnbench run` that make sense here."""
    group = parser.getgroup("attnbench")
    group.addoption(
        "--variant", action="append", default=[], help="a variant's name or path/to/file.py:VARIANT; may be repeated"
    )
    group.addoption(
        "--form", action="append", default=[], help="a form in place of each suite's choice; may be repeated"
    )
    group.addoption("--scale", default="smoke", help="smoke (default), quick, standard or paper")
    group.addoption(
        "--seed", action="append", type=int, default=[], help="a seed in place of the grid's; may be repeated"
    )
    group.addoption(
        "--set", action="append", default=[], dest="settings", help="NAME=VALUE[,VALUE...] in place of the grid's"
    )
    group.addoption(
        "--only", action="append", default=[], help="NAME=VALUE[,VALUE...]: the points of the grid that have it"
    )
    group.addoption("--device", default="cpu", help="cpu (default), cuda or cuda:N")
    group.addoption(
        "--db",
        default=os.environ.get("ATTNBENCH_DB", "attnbench.db"),
        help="path of an SQLite file, or a database URL (default: what ATTNBENCH_DB says, else attnbench.db)",
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A suite's file becomes the module of its cases."""
    if file_path.suffix != ".py" or file_path.parent.name != "suites":
        return None
    suites = {suite.module: suite for suite in find_suites().values()}
    suite = suites.get(f"attnbench.suites.{file_path.stem}")
    if suite is None:
        return None
    parent.config.stash.setdefault(FOUND, {})[suite.name] = suite
    module: SuiteModule = SuiteModule.from_parent(parent, path=file_path)
    module.suite = suite
    return module


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Plan all suites that were found, before the first of them is looked into: a mistake is one usage error."""
    if isinstance(collector, SuiteModule):
        stash = collector.config.stash
        if PLANNED not in stash:
            stash[PLANNED] = _planned(collector.config, stash[FOUND])


class SuiteModule(pytest.Module):
    """The cases of one suite as the items of a module that has no file of tests."""

    suite: Suite

    def _getobj(self) -> types.ModuleType:
        """A module with one test function, run once a case; an empty one where the suite lacks the scale."""
        module = types.ModuleType(self.suite.module)
        module.cases = self.config.stash[PLANNED][self.suite.name]  # type: ignore[attr-defined]
        if not module.cases:
            return module
        body = _time_case if self.suite.is_timing else _run_case
        test = types.FunctionType(body.__code__, body.__globals__, f"test_{self.suite.name}")
        test.__doc__ = self.suite.question
        if self.suite.is_timing:
            test = _on_the_device_clock(test, self.config.getoption("--device"))
        setattr(module, f"test_{self.suite.name}", test)
        return module


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item a case, named so that `-k delta` finds it."""
    if "planned" in metafunc.fixturenames:
        cases: list[Planned] = metafunc.module.cases
        metafunc.parametrize("planned", cases, ids=[_label(one) for one in cases])


@pytest.fixture(scope="session")
def recorder(request: pytest.FixtureRequest) -> Iterator["Recorder"]:
    """The run that every item of this session belongs to."""
    device = request.config.getoption("--device")
    planned = [one for cases in request.config.stash[PLANNED].values() for one in cases]
    # cases that are not isolated run in this process, with its own environment
    given = worker_environment(1) if all(one.isolates for one in planned) else {}
    with Store.open(request.config.getoption("--db"), writes=True) as store:
        this = environment.this_run(sys.argv, device=device, worker_environment=given)
        store.begin_run(this)
        recorder = Recorder(store, Terms(this.id, environment.lease_owner(), rerun="always"))
        state = "interrupted"
        try:
            yield recorder
            state = "failed" if recorder.has_failure else "finished"
        finally:
            store.end_run(this.id, state)


class Recorder:
    """Claims cases, stores how they ended, and tells pytest."""

    def __init__(self, store: Store, terms: Terms) -> None:
        self.store, self.terms = store, terms
        self.has_failure = False
        self.suites = find_suites()

    def know(self, planned: Planned) -> None:
        """Keep what the suite of a case asks."""
        self.store.record_suite(self.suites[planned.case.suite])

    def claim(self, planned: Planned) -> None:
        """Take the case, or skip the item while another run is at it."""
        self.know(planned)
        claim = self.store.claim(
            planned.case,
            planned.identity,
            run_id=self.terms.run_id,
            owner=self.terms.owner,
            lease_seconds=planned.timeout_seconds,
            rerun=self.terms.rerun,
        )
        if claim is not Claim.CLAIMED:
            pytest.skip(f"another run is at this case ({claim.value})")

    def end(self, planned: Planned, outcome: Outcome) -> None:
        """Store the outcome and make it the item's."""
        self.store.append(self.terms.run_id, attempt(planned, outcome, door="pytest"), owner=self.terms.owner)
        self.tell(outcome)

    def tell(self, outcome: Outcome) -> None:
        """Pass, skip or fail the item. A case that diverged has been measured: it passes."""
        if outcome.status is Status.SKIPPED:
            pytest.skip(outcome.reason)
        if outcome.status.is_failure:
            self.has_failure = True
            pytest.fail(f"{outcome.status.value}: {outcome.reason}", pytrace=False)


def _run_case(planned: Planned, recorder: Recorder) -> None:
    from attnbench.harness.measuring import measure

    if planned.isolates:
        recorder.know(planned)
        display = Display(Console(quiet=True), [planned], 1)
        endings = Runner(recorder.store, recorder.terms, Settings(), 1, display).run([planned])
        # none where another run did the case meanwhile
        for status in endings:
            recorder.tell(Outcome(status, "its reason is in the database: see `attnbench show`"))
        return
    recorder.claim(planned)
    recorder.end(planned, measure(planned, importlib.import_module(planned.module), Settings()))


def _time_case(planned: Planned, recorder: Recorder, benchmark: Any) -> None:
    from attnbench.harness.clock import WARM_UP_CALLS
    from attnbench.harness.measuring import measure_one_time

    # without its clock a case is only tried out: nothing is stored that would hide what was timed before
    if benchmark.enabled:
        recorder.claim(planned)
    benchmark.group = str(planned.case.point)
    benchmark.extra_info.update(
        suite=planned.case.suite, variant=planned.case.variant, form=planned.case.form, seed=planned.case.seed
    )

    def samples(timed: "Timed") -> list[float]:
        # the first calls are slow, and pytest-benchmark decides by one of them how often it measures
        for _ in range(WARM_UP_CALLS):
            timed.call()
        if timed.before is None:
            benchmark(timed.call)
        else:
            before = timed.before

            def setup() -> None:
                # what is returned here would be arguments of the call
                before()

            # what comes before each call can only be done in rounds of one
            benchmark.pedantic(timed.call, setup=setup, rounds=Settings().timing_rounds)
        return [] if benchmark.stats is None else list(benchmark.stats.stats.data)

    outcome = measure_one_time(planned, importlib.import_module(planned.module), Settings(), samples)
    if benchmark.enabled:
        recorder.end(planned, outcome)
    else:
        recorder.tell(outcome)


def _on_the_device_clock(test: types.FunctionType, device: str) -> Any:
    """The test with pytest-benchmark's timer replaced by one that waits for the device."""
    import torch

    from attnbench.harness.clock import now

    return pytest.mark.benchmark(timer=now(torch.device(device)))(test)


def _planned(config: pytest.Config, suites: dict[str, Suite]) -> dict[str, list[Planned]]:
    """The cases of each suite for this session's options; none where it lacks the scale. Raises pytest.UsageError."""
    from attnbench.variants.registry import find

    cases: dict[str, list[Planned]] = {name: [] for name in suites}
    try:
        request = Request(
            variants=tuple(config.getoption("--variant")),
            forms=tuple(config.getoption("--form")),
            scale=config.getoption("--scale"),
            seeds=tuple(config.getoption("--seed")),
            device=config.getoption("--device"),
            settings=parse_settings(config.getoption("settings")),
            only=parse_settings(config.getoption("only")),
        )
        options = Options(config.getoption("--db"))
        check_wishes(request, options)
        if any(suite.is_timing and request.scale in suite.scales for suite in suites.values()):
            request = replace(request, settings={**request.settings, TIMING: ("benchmark",)})
        for one in planned_cases(plan(suites, request, find), options, Console(stderr=True)):
            cases[one.case.suite].append(one)
    except UserError as problem:
        raise pytest.UsageError(f"{type(problem).__name__}: {problem}") from problem
    return cases


def _label(planned: Planned) -> str:
    case = planned.case
    return f"{case.variant}-{case.form}-{case.point}-seed{case.seed}"
