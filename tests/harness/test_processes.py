"""Several processes train one model as one does, and none of them outlives or holds up the others."""

import os
import re
import signal
import threading
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import fake_suites
import fake_training
import pytest
import torch
from commands import FAKES, Command, Commands, is_alive, until
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from torch.nn import Parameter

from attnbench.harness import environment, peers
from attnbench.harness.errors import BadParameter, UnknownDevice
from attnbench.harness.jobs import Began, Ended, Outcome, Planned, Progressed, Settings
from attnbench.harness.lab import Lab
from attnbench.harness.plan import Request, check_device, plan
from attnbench.harness.processes import ALONE, LEFT, PeerLost, Processes
from attnbench.harness.rows import Identity, Row, Status
from attnbench.harness.running import Options, planned_cases
from attnbench.harness.spec import Case, Point, Suite, processes_of
from attnbench.harness.store import Store


class Bench:
    """A folder with a database, and commands that train there."""

    def __init__(self, commands: Commands, folder: Path) -> None:
        self.commands, self.folder, self.gate = commands, folder, folder / "gate"
        # the further processes are started anew, so they have to find the suite
        self.environment = {
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PYTHONPATH": str(FAKES),
            fake_training.GATE: str(self.gate),
        }

    def start(self, *arguments: str) -> Command:
        """Train with two processes."""
        words = ("run", "fake_training", "--scale", "smoke", "--device", "cpu*2", "--db", "bench.db", *arguments)
        return self.commands.start(*words, folder=self.folder, environment=self.environment)

    def held(self) -> dict[int, int]:
        """Rank -> process, of those that wait at the gate."""
        return {int(path.name.split("-")[1]): int(path.name.split("-")[2]) for path in self.folder.glob("held-*")}

    def rows(self) -> dict[str, Row]:
        """What a case did -> the row of its last attempt."""
        with Store.open(self.folder / "bench.db", writes=False) as store:
            return {row.point.text("does"): row for row in store.rows()}

    def curves(self, row: Row) -> dict[str, tuple[float, ...]]:
        """The curves of an attempt."""
        with Store.open(self.folder / "bench.db", writes=False) as store:
            return {one.name: one.y for one in store.series([row.attempt_id])[row.attempt_id]}


def of_one_process() -> dict[str, tuple[float, ...]]:
    """The curves of the same case and the same batches in this process alone."""
    lab = Lab(
        Case("fake_training", "nobody", "count", Point(does="steady", stride=1), 0, "smoke"),
        None,
        evaluation=("stride",),
    )
    fake_training.measure(lab)
    return {one.name: one.y for one in lab.curves}


def test_two_processes_train_as_one_and_what_befalls_one_is_the_ending_of_the_case(
    commands: Commands, tmp_path: Path
) -> None:
    bench = Bench(commands, tmp_path)
    bench.gate.touch()
    command = bench.start("--set", "does=steady,peer is killed", "-j", "2")
    until(lambda: len(bench.held()) == 2, 500)
    first, second = (bench.held()[rank] for rank in (0, 1))
    os.kill(first, signal.SIGKILL)
    # a worker that is killed takes along what it started
    until(lambda: not is_alive(second))
    assert command.wait() == 1, command.errors()
    assert {does: (row.status, row.reason) for does, row in bench.rows().items()} == {
        "steady": (Status.ERROR, "the worker was killed by SIGKILL"),
        "peer is killed": (Status.ERROR, "process 2 of 2 was killed by SIGKILL"),
    }

    # each of the two goes on with its own half of what is carried along
    bench.gate.unlink()
    again = bench.start("--set", "does=steady", "--rerun", "failed")
    assert again.wait() == 0, again.errors()
    row = bench.rows()["steady"]
    assert (row.status, row.device, row.facts["resumed"]) == (Status.OK, "cpu*2", "step 10")
    curves, expected = bench.curves(row), of_one_process()
    assert (len(curves.pop("taken")), len(expected.pop("taken"))) == (14, 24)
    assert curves.keys() == expected.keys() == {"losses", "evaluations", "weights", "best"}
    for name in curves:
        # not to the bit: two processes add up halves, one process adds row after row
        assert curves[name] == pytest.approx(expected[name], rel=1e-6, abs=1e-7), name


# What each process gets.


@given(rows=st.integers(0, 12).map(lambda number: list(range(60))[: 5 * number]))
def test_processes_share_rows_without_loss_and_alike(rows: list[int]) -> None:
    shares = [Processes(rank, 5).share(rows) for rank in range(5)]
    assert sorted(row for share in shares for row in share) == rows
    assert {len(share) for share in shares} == {len(rows) // 5}


def test_a_tensor_is_shared_by_rows() -> None:
    assert Processes(1, 2).share(torch.tensor([[1, 2], [3, 4], [5, 6], [7, 8]])).tolist() == [[3, 4], [7, 8]]


def test_a_batch_that_cannot_be_shared_equally_is_refused() -> None:
    message = "2 processes share a batch equally, so it needs a multiple of 2 rows, got 7."
    with pytest.raises(BadParameter, match=message):
        Processes(0, 2).share(range(7))


def test_one_process_has_all_to_itself() -> None:
    one, other = Parameter(torch.zeros(2)), Parameter(torch.zeros(2))
    one.grad = torch.tensor([1.0, 2.0])
    ALONE.average_gradients([one, other])
    assert ALONE.is_first
    assert ALONE.share([1, 2, 3]) == [1, 2, 3]
    assert ALONE.totals(1.0, 2.0) == (1.0, 2.0)
    assert (ALONE.from_first("a"), ALONE.gathered("a")) == ("a", ["a"])
    assert (one.grad.tolist(), other.grad) == ([1.0, 2.0], None)


def test_gradients_are_averaged_where_a_process_has_them_and_stay_away_where_none_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # what the other process adds: gradients 0 (it has none), (3, 4) and 0 (it has none), then how many have each
    def add(numbers: torch.Tensor) -> None:
        numbers += torch.tensor([0.0, 3.0, 4.0, 0.0, 0.0, 1.0, 0.0], dtype=numbers.dtype)

    monkeypatch.setattr("torch.distributed.all_reduce", add)
    mine, both, nobodys = Parameter(torch.zeros(1)), Parameter(torch.zeros(1, 2)), Parameter(torch.zeros(1))
    mine.grad, both.grad = torch.tensor([2.0]), torch.tensor([[1.0, 0.0]])
    Processes(0, 2).average_gradients([mine, both, nobodys])
    assert (mine.grad.tolist(), both.grad.tolist(), nobodys.grad) == ([1.0], [[2.0, 2.0]], None)


def test_a_connection_that_broke_is_a_process_that_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(numbers: torch.Tensor) -> None:
        raise RuntimeError("Connection closed by peer\nat length")

    monkeypatch.setattr("torch.distributed.all_reduce", breaks)
    with pytest.raises(PeerLost, match=r"another process of this training is gone \(Connection closed by peer\)"):
        Processes(1, 2).totals(1.0)


def test_on_gpus_each_process_has_its_own() -> None:
    def device(asked: str, rank: int) -> str:
        case = Case("toy", "delta", "chunkwise", Point(), 0, "smoke", asked)
        return str(Lab(case, None, processes=Processes(rank, case.processes)).device)

    assert [device("cuda*4", rank) for rank in range(4)] == ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]
    assert (device("cuda:1", 0), device("cuda", 0), device("cpu*2", 1)) == ("cuda:1", "cuda", "cpu")


# Who is heard of.


class Peer:
    """A further process that is a pipe's end in a test's hand, with as much of `subprocess.Popen` as is used."""

    def __init__(self, code: int) -> None:
        self.code = code

    def kill(self) -> None:
        """It has no process."""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code."""
        return self.code


class Heard:
    """The first process of three, the pipes of the others, and what it was abandoned with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, grace_seconds: float) -> None:
        monkeypatch.setattr(peers, "GRACE_SECONDS", grace_seconds)
        self.theirs: list[Connection] = []
        self.abandoned: list[Outcome] = []
        self.left = threading.Event()
        case = Case("toy", "delta", "chunkwise", Point(), 0, "smoke", "cpu*3")
        self.peers = peers._Peers(Planned(case, Identity("", ""), "toy", "", 60, 1), Settings(), self.abandon)
        monkeypatch.setattr(self.peers, "_start", self.start)

    def abandon(self, outcome: Outcome) -> None:
        self.abandoned.append(outcome)
        self.left.set()

    def start(self, rank: int) -> None:
        ours, theirs = Pipe()
        theirs.send(Began(0))
        self.peers.connections.append(ours)
        self.peers.processes.append(Peer(-9))  # type: ignore[arg-type]
        self.theirs.append(theirs)


def test_a_first_process_that_waits_in_vain_is_abandoned_with_what_the_other_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard = Heard(monkeypatch, 0.01)
    with heard.peers:
        heard.theirs[0].send(Progressed(0.5, "half"))
        # the one that was left is not the one to blame
        heard.theirs[0].send(Ended(0, Outcome(Status.ERROR, f"{LEFT} (closed)")))
        heard.theirs[1].send(Ended(0, Outcome(Status.OUT_OF_MEMORY, "no memory")))
        assert heard.left.wait(30)
    assert [(one.status, one.reason) for one in heard.abandoned] == [
        (Status.OUT_OF_MEMORY, "process 3 of 3: no memory")
    ]


def test_a_first_process_that_fails_as_the_others_do_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(monkeypatch, 30)

    def fails() -> None:
        with heard.peers:
            heard.theirs[0].send(Ended(0, Outcome(Status.OUT_OF_MEMORY, "no memory")))
            assert heard.peers.is_lost.wait(30)
            raise MemoryError

    with pytest.raises(MemoryError):
        fails()
    assert heard.abandoned == []


def test_a_first_process_that_was_left_says_what_became_of_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(monkeypatch, 30)

    def is_left() -> None:
        with heard.peers:
            heard.theirs[0].close()
            raise PeerLost(f"{LEFT} (closed)")

    with pytest.raises(PeerLost, match=r"process 2 of 3 was killed by SIGKILL") as problem:
        is_left()
    assert problem.value.status is Status.ERROR


def test_processes_that_end_well_are_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(monkeypatch, 0.0)
    with heard.peers:
        for theirs in heard.theirs:
            theirs.send(Ended(0, Outcome(Status.OK)))
            theirs.close()
        heard.peers.listener.join(30)
    assert not heard.peers.is_lost.is_set()


def test_a_process_that_does_not_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(monkeypatch, 0.0)

    def start_and_die(rank: int) -> None:
        Heard.start(heard, rank)
        heard.peers.connections[-1].recv()
        heard.theirs[-1].close()

    monkeypatch.setattr(heard.peers, "_start", start_and_die)
    with pytest.raises(PeerLost, match="process 2 of 3 was killed by SIGKILL"), heard.peers:
        pass
    slow = Heard(monkeypatch, 0.0)
    monkeypatch.setattr(peers, "START_SECONDS", 0.0)
    monkeypatch.setattr(slow.peers, "_start", lambda rank: (Heard.start(slow, rank), slow.peers.connections[-1].recv()))
    with pytest.raises(PeerLost, match="process 2 of 3 took longer than 0 s to start"), slow.peers:
        pass


# What can be asked for.


@pytest.mark.parametrize(
    ("device", "processes"),
    [("cpu", ("cpu", 1)), ("cuda:1", ("cuda:1", 1)), ("cpu*2", ("cpu", 2)), ("cuda*16", ("cuda", 16))],
)
def test_a_device_says_how_many_processes_it_is_for(device: str, processes: tuple[str, int]) -> None:
    assert processes_of(device) == processes
    assert Case("toy", "delta", "chunkwise", Point(), 0, "smoke", device).processes == processes[1]


@pytest.mark.parametrize("device", ["cpu*1", "cpu*2", "cpu*16"])
def test_processes_on_the_cpu_can_be_asked_for(device: str) -> None:
    check_device(device, spreads=True)


@pytest.mark.parametrize("device", ["cpu*", "cpu*0", "cpu*02", "cpu*x", "cpu*2*2", "cpu*-1", "cuda:1*2", "gpu*2", "*2"])
def test_a_number_of_processes_that_makes_no_sense_is_refused(device: str) -> None:
    expected = f"no device '{device}'. For one model trained by N processes: cpu*N or cuda*N, N from 1 up, as in cpu*2."
    with pytest.raises(UnknownDevice, match=re.escape(expected)):
        check_device(device, spreads=True)


def test_processes_need_a_gpu_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        UnknownDevice, match=r"'cuda\*4' is not here: torch sees no CUDA device\. Use --device cpu\*4\."
    ):
        check_device("cuda*4", spreads=True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check_device("cuda*2", spreads=True)
    with pytest.raises(UnknownDevice, match=r"'cuda\*4' is not here: CUDA devices 0 to 1\. Use cuda\*2\."):
        check_device("cuda*4", spreads=True)


def test_what_is_for_one_process_refuses_several() -> None:
    with pytest.raises(
        UnknownDevice, match=r"one process was needed, but 'cpu\*2' is for several\. Use --device cpu\."
    ):
        check_device("cpu*2")


def planned(suite: Suite, device: str) -> list[Planned]:
    asked = plan({suite.name: suite}, Request(scale="smoke", device=device), lambda name: pytest.fail(name))
    return planned_cases(asked, Options("bench.db"), Console(quiet=True))


def test_a_suite_that_does_not_spread_refuses_several_processes() -> None:
    with pytest.raises(
        BadParameter, match=r"suite 'fake' is for one process, got device 'cpu\*2'\. Use --device cpu\."
    ):
        planned(fake_suites.FAKE, "cpu*2")


def test_a_case_of_several_processes_has_a_worker_of_its_own() -> None:
    assert [one.isolates for one in planned(fake_training.FAKE_TRAINING, "cpu*2")] == [True]
    assert [one.isolates for one in planned(fake_training.FAKE_TRAINING, "cpu")] == [False]


def test_a_testbed_says_how_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "cpu_model", lambda: "EPYC")
    monkeypatch.setattr(environment, "usable_cores", lambda: 8)
    monkeypatch.setattr(environment, "_nvidia_smi", lambda: (("NVIDIA H200", 1, "1"),) * 4)
    names = [environment.hardware(device) for device in ("cpu", "cpu*2", "cuda", "cuda*4")]
    assert names == ["EPYC, 8 cores", "EPYC, 8 cores, 2 processes", "NVIDIA H200", "4 x NVIDIA H200"]
