"""The runner beside workers that do exactly what a test says: threads at the other end of the pipe."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from commands import until
from rich.console import Console
from sqlalchemy import event

from attnbench.harness import runner
from attnbench.harness.errors import BadDatabase
from attnbench.harness.jobs import Began, Ended, Job, Outcome, Planned, Progressed, Settings
from attnbench.harness.progress import Display
from attnbench.harness.rows import Artefact, Attempt, Identity, Measurement, Status
from attnbench.harness.runner import Runner, Terms, Worker
from attnbench.harness.spec import Case, Point
from attnbench.harness.store import Run, Store

IDENTITY = Identity("code", "data")
WELL = Outcome(Status.OK, measurements=(Measurement("retrieval_loss", 0.25),))
Script = Callable[[Connection, Job], object]


class Thread:
    """A worker that is a thread, with as much of `subprocess.Popen` as the runner uses."""

    # no process has this number
    pid = 2**30

    def __init__(self, connection: Connection, script: Script, exit_code: int | None) -> None:
        self.exit_code = exit_code
        self._thread = threading.Thread(target=self._serve, args=(connection, script), daemon=True)
        self._thread.start()

    def _serve(self, connection: Connection, script: Script) -> None:
        with connection, suppress(EOFError, OSError):
            connection.recv()
            while True:
                script(connection, connection.recv())

    def poll(self) -> int | None:
        return self.exit_code

    def wait(self, timeout: float | None = None) -> int:
        return 0 if self.exit_code is None else self.exit_code

    def kill(self) -> None:
        """A thread ends when its pipe does."""


class Bench:
    """A store, and a runner whose workers follow scripts: the first worker the first script, the last one for the rest."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.store = Store.open(path, writes=True)
        self.store.begin_run(Run("this", "attnbench run", datetime.now(UTC)))
        self.scripts: list[Script] = []
        self.workers: list[Thread] = []
        self.exit_code: int | None = None
        self.said_at_once: list[object] = []
        self.settings: list[Settings] = []
        monkeypatch.setattr(runner, "_spawn", self._spawn)

    def _spawn(self, threads: int, settings: Settings) -> Worker:
        self.settings.append(settings)
        ours, theirs = Pipe()
        for message in self.said_at_once:
            theirs.send(message)
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        self.workers.append(Thread(theirs, script, self.exit_code))
        ours.send(settings)
        return Worker(self.workers[-1], ours, threads)  # type: ignore[arg-type]

    def run(
        self, *plan: Planned, scripts: list[Script], workers: int = 1, lease_seconds: float = 60.0
    ) -> dict[str, int]:
        self.scripts = scripts
        display = Display(Console(quiet=True), plan, workers)
        terms = Terms("this", f"{os.getpid()}", lease_seconds)
        return dict(Runner(self.store, terms, Settings(), workers, display).run(plan))

    def endings(self) -> list[tuple[str, Status, str]]:
        return [(row.variant, row.status, row.reason) for row in self.store.rows()]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(tmp_path / "bench.db", monkeypatch)
    with made.store:
        yield made


def case(name: str = "delta", *, timeout_seconds: float = 30, threads: int = 1, **more: object) -> Planned:
    one = Case("capacity", name, "chunkwise", Point(pairs=20), 0, "smoke", threads=threads)
    return Planned(one, IDENTITY, "suite", "", timeout_seconds, 1.0, **more)  # type: ignore[arg-type]


def end_well(connection: Connection, job: Job) -> None:
    for index in range(len(job.cases)):
        connection.send(Began(index))
        connection.send(Ended(index, WELL))


def hang_up(connection: Connection, job: Job) -> None:
    connection.send(Began(0))
    connection.close()


def test_the_last_word_of_a_worker_counts_though_its_time_is_up_and_others_stand_before_it(bench: Bench) -> None:
    # all of it is there when the runner first listens; with no time at all, the case is late by then
    bench.said_at_once = [Began(0), *(Progressed(step / 50, "training") for step in range(50)), Ended(0, WELL)]
    assert bench.run(case(timeout_seconds=1e-9), scripts=[lambda connection, job: None]) == {Status.OK: 1}


def test_a_worker_that_only_talks_is_out_of_time(bench: Bench) -> None:
    bench.said_at_once = [Began(0), *(Progressed(step / 50, "training") for step in range(50))]
    bench.run(case(timeout_seconds=1e-9), scripts=[lambda connection, job: None])
    assert bench.endings() == [("delta", Status.TIMEOUT, "took longer than 1e-09 s")]


def test_the_clock_of_a_case_starts_when_its_worker_is_at_it(bench: Bench) -> None:
    started = threading.Event()

    def start_slowly(connection: Connection, job: Job) -> None:
        # longer than the case may take
        started.wait(0.3)
        end_well(connection, job)

    assert bench.run(case(timeout_seconds=0.1), scripts=[start_slowly]) == {Status.OK: 1}


def test_a_worker_that_never_starts_is_given_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "START_SECONDS", 0.05)
    silent = threading.Event()
    try:
        bench.run(case("delta"), case("linear"), scripts=[lambda connection, job: silent.wait(), end_well])
    finally:
        silent.set()
    assert bench.endings() == [
        ("delta", Status.TIMEOUT, "took longer than 0.05 s to start"),
        ("linear", Status.OK, ""),
    ]


def test_a_worker_that_hangs_up_costs_the_case_it_was_at(bench: Bench) -> None:
    bench.exit_code = 7
    bench.run(case("delta"), case("linear"), scripts=[hang_up, end_well])
    assert bench.endings() == [
        ("delta", Status.ERROR, "the worker ended with exit code 7"),
        ("linear", Status.OK, ""),
    ]


def test_an_idle_worker_that_died_is_replaced_and_costs_no_case(bench: Bench) -> None:
    def end_well_and_die(connection: Connection, job: Job) -> None:
        end_well(connection, job)
        bench.workers[0].exit_code = -9
        connection.close()

    bench.run(case("delta"), case("linear"), scripts=[end_well_and_die, end_well])
    assert [status for _, status, _ in bench.endings()] == [Status.OK, Status.OK]
    assert len(bench.workers) == 2


def test_a_point_that_dies_while_all_its_cases_are_timed_blames_all_that_had_not_ended(bench: Bench) -> None:
    def die_in_the_rounds(connection: Connection, job: Job) -> None:
        connection.send(Began(None))
        connection.send(Ended(1, WELL))
        connection.close()

    bench.exit_code = 1
    bench.run(*(case(name, is_timing=True) for name in ("delta", "linear", "softmax")), scripts=[die_in_the_rounds])
    assert sorted(bench.endings()) == [
        ("delta", Status.ERROR, "the worker ended with exit code 1"),
        ("linear", Status.OK, ""),
        ("softmax", Status.ERROR, "the worker ended with exit code 1"),
    ]


def test_a_worker_that_ran_out_of_memory_does_not_get_another_case(bench: Bench) -> None:
    def run_out(connection: Connection, job: Job) -> None:
        connection.send(Ended(0, Outcome(Status.OUT_OF_MEMORY, "no memory")))

    bench.run(case("delta"), case("linear"), scripts=[run_out, end_well])
    assert [status for _, status, _ in bench.endings()] == [Status.OUT_OF_MEMORY, Status.OK]
    assert len(bench.workers) == 2


def test_cases_with_other_threads_get_another_worker(bench: Bench) -> None:
    bench.run(case("delta"), case("linear", threads=2), case("softmax", threads=2), scripts=[end_well])
    assert len(bench.workers) == 2
    assert len(bench.endings()) == 3


def test_a_lease_is_renewed_while_its_case_runs(bench: Bench) -> None:
    def stay_until_renewed(connection: Connection, job: Job) -> None:
        connection.send(Began(0))
        key = job.cases[0].case.key()
        with Store.open(bench.path, writes=True, now=lambda: datetime.now(UTC)) as other:
            expiries = set()

            def is_renewed() -> bool:
                query = "SELECT expires_at FROM lease WHERE case_key = ?"
                expiries.update(
                    other._database.read(lambda connection: connection.exec_driver_sql(query, (key,)).scalars().all())
                )
                return len(expiries) > 3

            until(is_renewed, 30)
        connection.send(Ended(0, WELL))

    assert bench.run(case(), scripts=[stay_until_renewed], lease_seconds=0.3) == {Status.OK: 1}


def test_a_case_that_another_run_finished_after_our_lease_was_lost_is_not_ours(bench: Bench) -> None:
    def lose_the_lease(connection: Connection, job: Job) -> None:
        one = job.cases[0]
        with Store.open(bench.path, writes=True) as other:
            other.release(one.case.key(), owner=f"{os.getpid()}")
            other.begin_run(Run("other", "attnbench run", datetime.now(UTC)))
            taken = Attempt(one.case, IDENTITY, Status.TIMEOUT, "took longer there")
            other.append("other", taken, owner="other")
        end_well(connection, job)

    assert bench.run(case(), scripts=[lose_the_lease]) == {}
    assert bench.endings() == [("delta", Status.TIMEOUT, "took longer there")]


def test_a_full_database_stops_the_run_with_its_own_message(bench: Bench) -> None:
    big = Outcome(Status.OK, artefacts=(Artefact("log", "text/plain", "x" * 10**6),))
    engine = bench.store._database._engine

    def fill(connection: Connection, job: Job) -> None:
        # SQLite refuses to grow the file from now on, with the error that a full disk gives
        event.listen(engine, "connect", lambda opened, _: opened.execute("PRAGMA max_page_count=1"))
        engine.dispose()
        connection.send(Ended(0, big))

    with pytest.raises(BadDatabase, match=r"bench\.db cannot grow: the disk is full\. What was stored is safe"):
        bench.run(case("delta"), case("linear"), scripts=[end_then(fill)])
    assert bench.endings() == [("delta", Status.OK, "")]


def end_then(script: Script) -> Script:
    """A script that ends the first job well and follows `script` for the second."""
    ended: list[Job] = []

    def follow(connection: Connection, job: Job) -> None:
        (script if ended else end_well)(connection, job)
        ended.append(job)

    return follow


def test_a_run_that_is_not_in_the_main_thread_leaves_signals_alone(bench: Bench) -> None:
    ended: list[dict[str, int]] = []
    thread = threading.Thread(target=lambda: ended.append(run_elsewhere(bench.path)))
    bench.scripts = [end_well]
    thread.start()
    thread.join(30)
    assert ended == [{Status.OK: 1}]


def run_elsewhere(path: Path) -> dict[str, int]:
    """One case, run by a thread with a store of its own."""
    with Store.open(path, writes=True) as store:
        display = Display(Console(quiet=True), [case()], 1)
        return dict(Runner(store, Terms("this", "thread"), Settings(), 1, display).run([case()]))


@pytest.fixture
def hears_control_c() -> Iterator[None]:
    """Whoever started this process may have made it deaf."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_control_c")
def test_the_first_control_c_is_noted_and_the_second_one_interrupts() -> None:
    with runner._stop_signals() as stop:
        assert not stop.poll()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.poll()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with runner._stop_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.poll()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_environment_of_a_worker_names_its_threads_and_the_allocator() -> None:
    environment = runner.worker_environment(3)
    assert (environment["OMP_NUM_THREADS"], environment["MKL_NUM_THREADS"]) == ("3", "3")
    assert environment.keys() >= {"MALLOC_MMAP_MAX_", "OMP_WAIT_POLICY"}


def test_threads_spin_only_where_a_worker_is_alone(bench: Bench) -> None:
    bench.run(case("delta"), case("linear", is_timing=True), scripts=[end_well])
    assert [dict(one.environment) for one in bench.settings] == [{}, {"OMP_WAIT_POLICY": "active"}]
    assert runner.worker_environment(1)["OMP_WAIT_POLICY"] == "passive"
