"""`attnbench run`: each case ends as what it is and is stored, whatever happens to it, to its worker and to the run."""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import fake_suites
import pytest
from commands import Command, Commands, is_alive, until
from rich.console import Console

from attnbench.harness.errors import BadDatabase
from attnbench.harness.jobs import Planned
from attnbench.harness.plan import Request, plan
from attnbench.harness.rows import Attempt, Row, Status
from attnbench.harness.running import Options, planned_cases
from attnbench.harness.store import Claim, Run, RunState, Store

DATABASE = "bench.db"
# an owner on a machine that we cannot see, so that only the clock ends its leases
ELSEWHERE = "elsewhere:1:1"


class Bench:
    """A folder with a database, the commands that use it, and the workers that were at it."""

    def __init__(self, commands: Commands, folder: Path) -> None:
        self.commands, self.folder = commands, folder
        self.database = folder / DATABASE
        self.workers = folder / "workers"
        self.workers.mkdir()
        self.gate = folder / "gate"
        self.environment = {
            fake_suites.WORKERS: str(self.workers),
            fake_suites.GATE: str(self.gate),
            fake_suites.DATABASE: str(self.database),
        }

    def start(self, *arguments: str, deeds: str = "", scale: str = "smoke", **more: object) -> Command:
        """Start a run of a fake suite."""
        chosen = ("--set", f"does={deeds}") if deeds else ()
        return self.commands.start(
            "run",
            *arguments,
            *chosen,
            *("--scale", scale, "--db", DATABASE),
            folder=self.folder,
            environment=self.environment,
            **more,  # type: ignore[arg-type]
        )

    def run(self, *arguments: str, deeds: str = "", scale: str = "smoke", **more: object) -> tuple[int, str]:
        """Exit code and what was said, of a run of a fake suite."""
        command = self.start(*arguments, deeds=deeds, scale=scale, **more)
        return command.wait(), command.errors()

    def rows(self, *, latest: bool = True) -> list[Row]:
        """The rows that are stored."""
        with Store.open(self.database, writes=False) as store:
            return store.rows(latest=latest)

    def is_made(self) -> bool:
        """Whether a run has made the database and its tables."""
        try:
            Store.open(self.database, writes=False).close()
        except BadDatabase:
            return False
        return True

    def attempts(self) -> list[Row]:
        """One row of each attempt, in the order in which they were stored; none while there is no database."""
        if not self.is_made():
            return []
        return list({row.attempt_id: row for row in self.rows(latest=False)}.values())

    def endings(self) -> dict[str, tuple[Status, str]]:
        """What a case did, or what it is called -> how it ended and why."""
        return {str(row.point.get("does", row.variant)): (row.status, row.reason) for row in self.attempts()}

    def states(self) -> list[RunState]:
        """How the runs ended, oldest first."""
        with Store.open(self.database, writes=False) as store:
            return [run.state for run in store.runs()]

    def pids(self) -> list[int]:
        """The processes that worked here."""
        return [int(path.name) for path in self.workers.iterdir()]


@pytest.fixture
def bench(commands: Commands, tmp_path: Path) -> Bench:
    return Bench(commands, tmp_path)


def planned(deeds: tuple[str, ...], *, scale: str = "smoke") -> list[Planned]:
    """The cases that `attnbench run fake --set does=...` plans."""
    request = Request(suites=("fake",), scale=scale, settings={"does": deeds})

    def find(name: str) -> None:
        raise AssertionError

    asked = plan(fake_suites.SUITES, request, find)  # type: ignore[arg-type]
    return planned_cases(asked, Options(DATABASE), Console(quiet=True))


# However a case ends.


ENDINGS = {
    "ends well": ("ok", ""),
    "lacks a device": ("skipped", r"fake/none needs cuda; this device is cpu\."),
    "loses its loss": ("diverged", r"the loss was not finite at step 3 \(last finite loss 0\.5\)"),
    "records nan": ("diverged", "retrieval_loss is nan"),
    "lacks memory": ("out_of_memory", "MemoryError: no message"),
    "lacks memory in torch": ("out_of_memory", r"RuntimeError: .*can't allocate memory: you tried to allocate \d+ bytes.*"),
    "talks about memory": ("error", r"ValueError: this text is not out of memory \(fake_suites\.py, line \d+\)"),
    "raises": ("error", r"ValueError: the fake is broken \(fake_suites\.py, line \d+\)"),
    "raises in torch": ("error", r"RuntimeError: einsum\(\).* \(fake_suites\.py, line \d+\)"),
    "records twice": ("error", r"ValueError: a case has one metric called 'retrieval_loss'.* \(lab\.py, line \d+\)"),
    "exits": ("error", r"SystemExit: that was it \(fake_suites\.py, line \d+\)"),
    "leaves": ("error", "the worker ended with exit code 3"),
    "is killed": ("error", "the worker was killed by SIGKILL"),
    "spins": ("timeout", r"took longer than 1 s"),
    "spins and talks": ("timeout", r"took longer than 1 s"),
    "starts a child and spins": ("timeout", r"took longer than 1 s"),
}  # fmt: skip


def test_every_ending_is_stored_as_what_it_is_and_the_rest_goes_on(bench: Bench) -> None:
    code, said = bench.run("fake", "-j", "2", "--timeout", "1", deeds=",".join(ENDINGS))
    stored = bench.endings()
    assert list(stored.keys() - ENDINGS.keys()) == []
    for deed, (status, reason) in ENDINGS.items():
        assert stored[deed][0] == status, (deed, stored[deed])
        assert re.fullmatch(reason, stored[deed][1]), (deed, stored[deed])
    assert (code, bench.states()) == (1, [RunState.FAILED])
    assert "ended: 2 diverged, 7 error, 1 ok, 2 out_of_memory, 1 skipped, 3 timeout\n" in said
    assert "failed: 7 error, 2 out_of_memory, 3 timeout; `--rerun failed` tries them again\n" in said
    # seven endings cost a worker each, and one worker started a child
    assert len(bench.pids()) >= 8
    until(lambda: not any(map(is_alive, bench.pids())))


def test_cases_that_ended_as_ok_skipped_or_diverged_are_no_failure(bench: Bench) -> None:
    code, said = bench.run("fake", deeds="ends well,lacks a device,loses its loss,records nan")
    assert (code, bench.states()) == (0, [RunState.FINISHED])
    assert said.splitlines()[-1] == "ended: 2 diverged, 1 ok, 1 skipped"


def test_what_a_case_had_measured_before_it_diverged_is_kept(bench: Bench) -> None:
    bench.run("fake", deeds="records nan")
    assert [(row.metric, row.value) for row in bench.rows()] == [("training_steps", 7)]


def test_an_ordinary_case_is_told_on_a_line_of_its_own_with_the_time_left(bench: Bench) -> None:
    _, said = bench.run("fake", "-j", "1", deeds="ends well,raises")
    lines = said.splitlines()
    assert lines[0] == f"2 cases, 0 done before; 1 worker on cpu; database {DATABASE}"
    assert re.fullmatch(
        r" +1/2 ok +fake nobody does=ends well number=1 form=count seed=0: retrieval_loss 0\.0009766 \(0\.\d s\); "
        r"about \d+ s left",
        lines[1],
    )
    assert re.fullmatch(r" +2/2 error +fake nobody does=raises .*: ValueError: .* \(\d\.\d s\)", lines[2])


def test_a_case_of_a_point_that_is_timed_together_takes_no_other_with_it(bench: Bench) -> None:
    code, _ = bench.run("fake_clock", "--timeout", "2")
    stored = bench.endings()
    assert stored["hangs"] == (Status.TIMEOUT, "took longer than 2 s")
    assert stored["dies"] == (Status.ERROR, "the worker was killed by SIGKILL")
    assert stored["fails"][0] is Status.ERROR
    assert stored["fails"][1].startswith("ValueError: the call fails (fake_suites.py, line ")
    assert (stored["steady"][0], stored["brisk"][0], code) == (Status.OK, Status.OK, 1)
    assert {len(row.samples) for row in bench.rows() if row.status is Status.OK} == {11}


# Workers.


def test_a_worker_serves_one_case_after_another(bench: Bench) -> None:
    assert bench.run("fake", "-j", "1", "--set", "number=1,2,3,4", deeds="ends well")[0] == 0
    assert len(bench.pids()) == 1


def test_an_isolated_case_has_a_process_of_its_own(bench: Bench) -> None:
    assert bench.run("fake", "-j", "2", "--isolate", "--set", "number=1,2,3,4", deeds="ends well")[0] == 0
    assert len(bench.pids()) == 4


def test_as_many_cases_run_at_once_as_were_asked_for_and_no_more(bench: Bench) -> None:
    bench.gate.touch()
    command = bench.start("fake", "-j", "3", "--set", "number=1,2,3,4,5", deeds="waits")
    until(lambda: len(bench.pids()) == 3)
    bench.gate.unlink()
    assert command.wait() == 0
    assert len(bench.pids()) == 3
    assert len(bench.attempts()) == 5


def test_the_clock_runs_when_every_other_worker_has_left(bench: Bench) -> None:
    # the fake clock refuses to start while it sees another worker
    bench.run("fake_clock", "fake", "-j", "2", "--timeout", "1", deeds="ends well,raises,records nan")
    stored = bench.attempts()
    assert [row.suite for row in stored] == ["fake"] * 3 + ["fake_clock"] * 5
    assert {(row.variant, row.status) for row in stored} >= {("steady", Status.OK), ("brisk", Status.OK)}


# Again.


def test_a_second_run_does_nothing_and_tells_failures_of_the_first(bench: Bench) -> None:
    first = bench.run("fake", deeds="ends well,raises")
    again = bench.run("fake", deeds="ends well,raises")
    assert (first[0], again[0], len(bench.attempts())) == (1, 1, 2)
    assert again[1] == (
        f"2 cases, 2 done before; 1 worker on cpu; database {DATABASE}\n"
        "failed: 1 error; `--rerun failed` tries them again\n"
    )
    # what does nothing leaves no run behind
    assert bench.states() == [RunState.FAILED]
    # the failure is not one of these
    assert bench.run("fake", deeds="ends well")[0] == 0


@pytest.mark.parametrize(
    ("rerun", "again"), [("missing", []), ("failed", ["raises"]), ("always", ["ends well", "loses its loss", "raises"])]
)
def test_a_rerun_does_what_it_names(bench: Bench, rerun: str, again: list[str]) -> None:
    deeds = "ends well,loses its loss,raises"
    bench.run("fake", deeds=deeds)
    bench.run("fake", "--rerun", rerun, deeds=deeds)
    assert sorted(str(row.point["does"]) for row in bench.attempts()[3:]) == again


def test_more_of_a_matrix_runs_only_what_is_missing(bench: Bench) -> None:
    bench.run("fake", "--set", "number=1,2", deeds="ends well")
    code, said = bench.run("fake", "--set", "number=1,2,3,4", deeds="ends well")
    assert code == 0
    assert said.startswith("4 cases, 2 done before; ")
    assert sorted(row.point["number"] for row in bench.attempts()) == [1, 2, 3, 4]


VARIANT = """
from attnbench.variants.contract import Form, Variant

def recurrent(q, k, v, memory=None):
    return {factor} * v, {{}}

VARIANT = Variant(
    name="echo", formula="o = v", source="none", forms={{"recurrent": Form(recurrent)}}, state_floats=lambda K, V, T: 0
)
"""


def test_a_changed_formula_is_measured_again_and_a_changed_comment_is_not(bench: Bench) -> None:
    path = bench.folder / "echo.py"

    def run_echo() -> str:
        _, said = bench.run("fake", "--variant", f"{path}:VARIANT", "--set", "number=1", deeds="ends well")
        return said.split(";")[0]

    path.write_text(VARIANT.format(factor=1), encoding="utf-8")
    # the variant has no form that the fake suite could use: one case is skipped, the other is the suite's reference
    assert run_echo() == "2 cases, 0 done before"
    path.write_text("# the identity\n" + VARIANT.format(factor=1), encoding="utf-8")
    assert run_echo() == "2 cases, 2 done before"
    path.write_text(VARIANT.format(factor=2), encoding="utf-8")
    assert run_echo() == "2 cases, 1 done before"


# Leases.


def lease(bench: Bench, deed: str, seconds: float) -> Planned:
    """A case that a run elsewhere is at, in a database of its own making."""
    (case,) = planned((deed,))
    with Store.open(bench.database, writes=True) as store:
        store.begin_run(Run("elsewhere", "attnbench run", datetime.now(UTC)))
        claim = store.claim(
            case.case, case.identity, run_id="elsewhere", owner=ELSEWHERE, lease_seconds=seconds, rerun="missing"
        )
    assert claim is Claim.CLAIMED
    return case


def test_a_case_that_another_run_is_at_is_waited_for_and_not_done_twice(bench: Bench) -> None:
    theirs = lease(bench, "raises", 600)
    command = bench.start("fake", deeds="ends well,raises")
    until(lambda: len(bench.attempts()) == 1)
    with Store.open(bench.database, writes=True) as store:
        failure = Attempt(theirs.case, theirs.identity, Status.ERROR, "it failed elsewhere")
        assert store.append("elsewhere", failure, owner=ELSEWHERE)
    # the failure is one of a case that was asked for, whoever ran it
    assert command.wait() == 1
    assert "\nwaiting for 1 case that another run is at\nended: 1 ok\nfailed: 1 error" in command.errors()
    assert bench.endings() == {"ends well": (Status.OK, ""), "raises": (Status.ERROR, "it failed elsewhere")}
    assert len(bench.attempts()) == 2


def test_a_case_whose_lease_ran_out_is_taken_over(bench: Bench) -> None:
    lease(bench, "ends well", 1)
    assert bench.run("fake", deeds="ends well")[0] == 0
    assert bench.endings() == {"ends well": (Status.OK, "")}


def test_four_runs_of_one_matrix_do_each_case_once(bench: Bench) -> None:
    numbers = ",".join(map(str, range(1, 61)))
    four = [bench.start("fake", "-j", "1", "--set", f"number={numbers}", deeds="ends well") for _ in range(4)]
    assert [command.wait() for command in four] == [0, 0, 0, 0]
    assert Counter(row.point["number"] for row in bench.attempts()) == dict.fromkeys(range(1, 61), 1)
    assert {row.status for row in bench.attempts()} == {Status.OK}
    # they shared the work
    assert len({row.run_id for row in bench.attempts()}) > 1


# Stopping and being stopped.


@pytest.mark.parametrize(
    "stop",
    [
        Command.press_control_c,
        lambda command: command.send(signal.SIGTERM),
        lambda command: command.send(signal.SIGHUP),
    ],
    ids=["control_c", "SIGTERM", "SIGHUP"],
)
def test_a_stopped_run_stores_what_was_in_flight_as_interrupted_and_the_next_one_goes_on(
    bench: Bench, stop: Callable[[Command], None]
) -> None:
    bench.gate.touch()
    command = bench.start("fake", "-j", "2", "--set", "number=1", deeds="ends well,waits,raises")
    until(lambda: (bench.folder / "waiting").exists() and len(bench.attempts()) == 2)
    stop(command)
    assert command.wait() == 130
    said = command.errors()
    assert said.endswith("attnbench: stopped; what has ended is stored, and the same command goes on from there\n")
    assert "Traceback" not in said
    assert bench.endings()["waits"] == (Status.INTERRUPTED, "stopped by the user")
    assert bench.endings()["ends well"] == (Status.OK, "")
    assert bench.states() == [RunState.INTERRUPTED]
    assert not any(map(is_alive, bench.pids()))
    bench.gate.unlink()
    code, said = bench.run("fake", "--set", "number=1", deeds="ends well,waits,raises")
    assert said.startswith("3 cases, 2 done before; ")
    assert (code, bench.endings()["waits"][0]) == (1, Status.OK)


def test_workers_end_when_their_runner_is_killed(bench: Bench) -> None:
    command = bench.start("fake", "-j", "2", "--set", "number=1,2", deeds="spins")
    until(lambda: len(bench.pids()) == 2)
    command.send(signal.SIGKILL)
    assert command.wait() == -signal.SIGKILL
    until(lambda: not any(map(is_alive, bench.pids())))


def test_a_run_stops_when_its_reader_hangs_up(bench: Bench) -> None:
    bench.gate.touch()
    pipe = bench.folder / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    command = bench.start("fake", "-j", "2", "--set", "number=1", deeds="waits,ends well", err=pipe)
    until(lambda: (bench.folder / "waiting").exists() and len(bench.attempts()) == 1)
    os.close(reader)
    bench.gate.unlink()
    assert command.wait() == 130
    assert bench.states() == [RunState.INTERRUPTED]
    # what ended is stored, though nobody heard of it
    assert {status for status, _ in bench.endings().values()} <= {Status.OK, Status.INTERRUPTED}
    assert command.output() == ""


def test_a_database_that_is_full_stops_the_run_with_one_message_and_loses_nothing(bench: Bench) -> None:
    bench.run("fake", deeds="ends well")
    room = bench.database.stat().st_size + 200_000
    code, said = bench.run("fake", "-j", "2", scale="quick", file_bytes=room)
    assert code == 2
    *lines, last = said.splitlines()
    assert re.fullmatch(rf"attnbench: BadDatabase: {DATABASE} cannot (grow|be read or written): .*", last)
    told = [line for line in lines if re.search(r"\d+/300 ok ", line)]
    assert len(lines) == len(told) + 1
    assert 0 < len(told) < 300
    stored = {row.point["number"] for row in bench.attempts() if row.scale == "quick"}
    assert {int(re.findall(r"number=(\d+)", line)[0]) for line in told} <= stored
    assert not any(map(is_alive, bench.pids()))
    # with room again, the rest is done
    assert bench.run("fake", "-j", "2", scale="quick")[0] == 0
    assert len({row.point["number"] for row in bench.attempts() if row.scale == "quick"}) == 300


def test_fifty_kills_at_random_moments_lose_no_case_that_was_reported(bench: Bench) -> None:
    chance = random.Random(20260101)
    matrix = ("fake", "-j", "2")
    for _ in range(50):
        command = bench.start(*matrix, scale="quick")
        # so many cases, and then so much of the next ones: the moment falls anywhere, the start included
        lines, seconds = chance.randrange(6), chance.uniform(0, 0.03)
        until(lambda: command.errors().count("\n") >= lines)  # noqa: B023
        moment = time.monotonic() + seconds
        until(lambda: time.monotonic() >= moment)  # noqa: B023
        command.send(signal.SIGKILL)
        assert command.wait() == -signal.SIGKILL
        reported = {int(number) for number in re.findall(r"/\d+ ok .* number=(\d+) .*\n", command.errors())}
        assert reported <= {row.point["number"] for row in bench.attempts()}
    assert 50 < len(bench.attempts()) < 300
    # no lease of the killed is in the way
    assert bench.run(*matrix, scale="quick")[0] == 0
    assert Counter(row.point["number"] for row in bench.attempts()) == dict.fromkeys(range(1, 301), 1)
    assert {row.status for row in bench.attempts()} == {Status.OK}
    until(lambda: not any(map(is_alive, bench.pids())))


# The command itself, with workers that it starts itself.


def attnbench(*arguments: str, folder: Path) -> "subprocess.Popen[str]":
    """The real command, in a process group of its own; it hears Ctrl-C whatever its parent does."""
    return subprocess.Popen(
        [sys.executable, "-m", "attnbench.harness", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_the_same_case_gives_the_same_floats_in_another_worker(bench: Bench) -> None:
    case = ("capacity", "--variant", "fwp1991", "--scale", "smoke", "--db", DATABASE)
    with attnbench("run", *case, folder=bench.folder) as command:
        _, said = command.communicate(timeout=120)
    assert command.returncode == 0, said
    assert "ended: 1 ok\n" in said
    assert bench.commands.run("run", *case, "--rerun", "always", folder=bench.folder)[0] == 0
    losses = [row.value for row in bench.rows(latest=False) if row.metric in ("retrieval_loss", "last_retrieval_loss")]
    assert len(losses) == 4
    assert losses[:2] == losses[2:]
    with Store.open(bench.database, writes=False) as store:
        curves = [series[0].y for series in store.series(row.attempt_id for row in bench.attempts()).values()]
        (first, _) = store.runs()
    assert curves[0] == curves[1]
    # where it came from
    assert first.command == "__main__.py run " + " ".join(case)
    assert first.environment["OMP_NUM_THREADS"] == "1"
    assert first.environment["MALLOC_MMAP_MAX_"] == "0"


def workers_of(pid: int) -> list[int]:
    """The worker processes that a run has started."""
    workers = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split():
        # others end while we look
        with contextlib.suppress(OSError):
            if b"harness.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                workers.append(int(child))
    return workers


def test_control_c_while_a_worker_starts_leaves_one_message_and_no_worker(bench: Bench) -> None:
    endless = ("--set", "max_steps=1000000000", "--set", "patience=1000000000")
    arguments = ("capacity", "--variant", "fwp1991", "--scale", "smoke", "--db", DATABASE, *endless)
    with attnbench("run", *arguments, folder=bench.folder) as command:
        (worker,) = until(lambda: workers_of(command.pid))
        os.killpg(command.pid, signal.SIGINT)
        _, said = command.communicate(timeout=60)
    assert command.returncode == 130
    first, *last = said.splitlines()
    assert first.startswith("1 case, 0 done before; 1 worker on cpu; ")
    assert re.fullmatch(r" +1/1 interrupted +capacity fwp1991 .*: stopped by the user \(\d+\.\d s\)", last[0])
    assert last[1:] == ["attnbench: stopped; what has ended is stored, and the same command goes on from there"]
    assert not is_alive(worker)
    assert [row.status for row in bench.rows()] == [Status.INTERRUPTED]
