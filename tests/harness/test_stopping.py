"""`attnbench run` that is stopped, killed or left without room, and the command with workers that it starts itself."""

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
from pathlib import Path

import pytest
from bench import DATABASE, Bench
from commands import Command, is_alive, until

from attnbench.harness.rows import Status
from attnbench.harness.store import RunState, Store


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
