"""What a training is gone on from: whole or absent, only its own, and to the same bits as if it had not been killed."""

import math
import os
import resource
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fake_training
import pytest
import torch
from commands import Command, Commands, until
from torch import Tensor, nn

from attnbench.harness import checkpoints as saving
from attnbench.harness.checkpoints import Checkpoint, checkpoint_folder, checkpoints, read
from attnbench.harness.errors import Diverged
from attnbench.harness.lab import Lab
from attnbench.harness.rows import Status
from attnbench.harness.spec import Case, Point
from attnbench.harness.store import Store
from attnbench.harness.training import Kept, Stopping, Training, train

TRAINING: dict[str, str | int] = {"suite": "toy", "variant": "delta", "seed": 0}


class Killed(BaseException):
    """What a kill is to a test that has to go on."""


class Toy:
    """A model with dropout, its optimiser, what it carries along, and its best weights so far."""

    def __init__(self, checkpoint: Checkpoint | None, killed_at: int = 0, spoiled_at: int = 0) -> None:
        self.checkpoint, self.killed_at, self.spoiled_at = checkpoint, killed_at, spoiled_at
        self.model = nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.3), nn.Linear(5, 1))
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.copy_(
                    torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
                )
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.memory = torch.zeros(3)
        self.best: dict[str, Tensor] = {}
        self.steps: list[int] = []

    def parts(self, step: int) -> Iterator[Tensor]:
        for part in range(2):
            if step == self.killed_at and part == 1:
                raise Killed
            x = torch.randn(4, 3, generator=torch.Generator().manual_seed(10 * step + part)) + self.memory
            self.memory = x.mean(0) / 2
            spoiled = math.nan if step == self.spoiled_at else 1.0
            yield spoiled * (self.model(x) - x.sum(1, keepdim=True)).square().mean() / 2
        self.steps.append(step)

    def evaluate(self, step: int) -> float:
        self.model.eval()
        loss = self.model(torch.eye(3)).square().mean().item()
        self.model.train()
        return loss

    def restore(self, state: dict[str, dict[str, Tensor]]) -> None:
        self.model.load_state_dict(state["model"])
        self.memory = state["memory"]  # type: ignore[assignment]
        self.best.update(state["best"])

    def train(self) -> Training:
        return train(
            self.parts,
            self.evaluate,
            self.optimiser,
            Stopping(12, evaluate_every=3),
            learning_rate=lambda step: 0.01 * (1 + math.cos(math.pi * step / 12)),
            clip=1.0,
            seed_of_step=lambda step: 7 * step,
            on_best=lambda step: self.best.update({k: v.clone() for k, v in self.model.state_dict().items()}),
            kept=Kept(
                self.checkpoint,
                lambda: {"model": self.model.state_dict(), "memory": self.memory, "best": self.best},
                self.restore,
            ),
        )

    def numbers(self, trained: Training) -> dict[str, object]:
        """All that has to be the same, to the bit."""
        weights = {name: one.tolist() for name, one in self.model.state_dict().items()}
        best = {name: one.tolist() for name, one in self.best.items()}
        told = (trained.training_losses, trained.curve, trained.best_loss, trained.best_step, trained.ending)
        return {"weights": weights, "best": best, "told": told, "memory": self.memory.tolist()}


@pytest.fixture(scope="module")
def unbroken() -> dict[str, object]:
    toy = Toy(None)
    return toy.numbers(toy.train())


def every(steps: int, folder: Path, **more: object) -> Checkpoint:
    return Checkpoint(folder, TRAINING, every_steps=steps, **more)  # type: ignore[arg-type]


# Going on.


@pytest.mark.parametrize("killed_at", range(1, 13))
def test_a_training_killed_at_any_step_goes_on_to_the_same_bits(
    killed_at: int, tmp_path: Path, unbroken: dict[str, object]
) -> None:
    with pytest.raises(Killed):
        Toy(every(2, tmp_path), killed_at).train()
    toy = Toy(every(2, tmp_path))
    trained = toy.train()
    assert toy.numbers(trained) == unbroken
    # from the last even step that was taken whole
    assert trained.resumed_at == (killed_at - 1) // 2 * 2
    assert toy.steps == list(range(trained.resumed_at + 1, 13))


def test_a_training_that_ended_is_not_done_again_but_restored(tmp_path: Path, unbroken: dict[str, object]) -> None:
    Toy(every(5, tmp_path)).train()
    (path,) = tmp_path.iterdir()
    assert "optimiser" not in read(path).state
    toy = Toy(every(5, tmp_path))
    trained = toy.train()
    assert (toy.steps, trained.steps, trained.resumed_at) == ([], 12, 12)
    assert toy.numbers(trained) == unbroken
    assert trained.training_seconds > 0


def test_a_training_that_ended_before_a_given_time_is_done_again(tmp_path: Path) -> None:
    Toy(every(5, tmp_path)).train()
    again = Toy(every(5, tmp_path, trained_since=time.time() + 1))
    assert again.train().resumed_at == 0
    with pytest.raises(Killed):
        Toy(every(5, tmp_path, trained_since=time.time() + 1), killed_at=8).train()
    # what did not end is gone on with all the same
    assert Toy(every(5, tmp_path, trained_since=time.time() + 1)).train().resumed_at == 5


def test_a_training_shorter_than_the_interval_leaves_no_file(tmp_path: Path, unbroken: dict[str, object]) -> None:
    toy = Toy(Checkpoint(tmp_path / "folder", TRAINING))
    assert toy.numbers(toy.train()) == unbroken
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_is_due_when_the_seconds_since_the_last_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(saving.time, "monotonic", lambda: now[0])
    checkpoint = Checkpoint(tmp_path, TRAINING, every_seconds=600, _saved=1000.0)
    due = []
    for now[0] in (1599.0, 1600.0, 1700.0, 2199.0, 2200.0):
        due.append(checkpoint.is_due(1))
        if due[-1]:
            checkpoint.save(1, {})
    assert due == [False, True, False, False, True]
    assert [checkpoint.keeps(10**6, seconds) for seconds in (599.9, 600.0)] == [False, True]


def test_a_training_that_diverged_leaves_nothing_to_go_on_from(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        Toy(every(2, tmp_path), killed_at=6).train()
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(Diverged, match="not finite at step 9") as problem:
        Toy(every(2, tmp_path), spoiled_at=9).train()
    assert problem.value.last_finite_loss is not None
    assert list(tmp_path.iterdir()) == []


# The file.


def saved(folder: Path, step: int = 3, **more: str | int) -> Checkpoint:
    checkpoint = Checkpoint(folder, {**TRAINING, **more})
    checkpoint.save(step, {"weights": torch.arange(1000.0)})
    return checkpoint


def test_every_training_has_a_file_of_its_own_and_its_last_state_in_it(tmp_path: Path) -> None:
    first, second = saved(tmp_path), saved(tmp_path, seed=1)
    assert first.path != second.path
    first.save(4, {"weights": torch.zeros(1)}, is_finished=True)
    found = Checkpoint(tmp_path, TRAINING).load()
    assert found is not None
    assert (found.step, found.is_finished, found.state) == (4, True, {"weights": torch.zeros(1)})
    assert len(list(tmp_path.iterdir())) == 2
    first.remove()
    first.remove()
    assert Checkpoint(tmp_path, TRAINING).load() is None


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "flipped": flipped,
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "empty": lambda path: path.write_bytes(b""),
    "a text": lambda path: path.write_text("mine"),
    "a tensor": lambda path: torch.save(torch.zeros(2), path),
    "code": lambda path: torch.save({"format": saving.FORMAT, "state": Path("x")}, path),
    "a later format": lambda path: torch.save({"format": "attnbench checkpoint 2"}, path),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_is_damaged_or_something_else_is_warned_of_and_training_begins_anew(
    tmp_path: Path, damage: str
) -> None:
    checkpoint = saved(tmp_path)
    DAMAGES[damage](checkpoint.path)  # type: ignore[no-untyped-call]
    again = Checkpoint(tmp_path, TRAINING)
    with pytest.warns(
        RuntimeWarning, match=rf"checkpoint .*{checkpoint.path.name}: it cannot be read, and training begins anew"
    ):
        assert again.load() is None
    # the list does not read the tensors
    assert [found is None for _, found in checkpoints(tmp_path)] == [damage != "flipped"]


def test_the_file_of_another_training_is_not_taken(tmp_path: Path) -> None:
    mine, other = Checkpoint(tmp_path, TRAINING), saved(tmp_path, seed=1)
    other.path.rename(mine.path)
    with pytest.warns(RuntimeWarning, match="it belongs to another training, and this one begins anew"):
        assert mine.load() is None


@contextmanager
def largest_file(count: int) -> Iterator[None]:
    """No file can grow beyond `count` bytes: what a full disk is to a writer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_told_once_and_neither_ends_training_nor_costs_the_last_checkpoint(
    tmp_path: Path, unbroken: dict[str, object]
) -> None:
    with pytest.raises(Killed):
        Toy(every(2, tmp_path), killed_at=4).train()
    (path,) = tmp_path.iterdir()
    toy = Toy(every(2, tmp_path))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with largest_file(500):
            trained = toy.train()
    assert [str(one.message).partition(": ")[2] for one in said] == [
        "it cannot be written, and training goes on without (File too large)"
    ]
    assert toy.numbers(trained) == unbroken
    assert list(tmp_path.iterdir()) == [path]
    assert read(path).step == 2


def test_a_folder_that_cannot_be_made_costs_nothing_but_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(RuntimeWarning, match="it cannot be written, and training goes on without"):
        Toy(every(5, tmp_path / "file")).train()


def test_what_could_not_be_read_again_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"a checkpoint holds dicts, .* and texts, got PosixPath\."):
        Checkpoint(tmp_path, TRAINING).save(1, {"weights": [({"path": Path("x")},)]})


def test_what_a_killed_writer_left_is_cleared_away_once_it_is_old(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path)
    old, young = (tmp_path / f".{checkpoint.path.name}.{name}" for name in ("old", "young"))
    for left in (old, young):
        left.write_bytes(b"half")
    os.utime(old, (0, time.time() - saving.ABANDONED_SECONDS - 10))
    checkpoint.save(4, {})
    assert sorted(tmp_path.iterdir()) == sorted([checkpoint.path, young])


def test_checkpoints_lie_in_the_users_own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert checkpoint_folder().parts[-2:] == ("attnbench", "checkpoints")
    assert checkpoint_folder(tmp_path) == tmp_path


# Through the worker and the store.


class Bench:
    """A folder with a database and a cache, and commands that train there."""

    def __init__(self, commands: Commands, folder: Path) -> None:
        self.commands, self.folder, self.gate = commands, folder, folder / "gate"
        self.environment = {
            "XDG_CACHE_HOME": str(folder / "cache"),
            fake_training.GATE: str(self.gate),
            "COLUMNS": "200",
        }

    def start(self, *arguments: str) -> Command:
        words = ("run", "fake_training", "--scale", "smoke", "--db", "bench.db", *arguments)
        return self.commands.start(*words, folder=self.folder, environment=self.environment)

    def run(self, *arguments: str) -> tuple[dict[str, tuple[float, ...]], str]:
        """The curves of a run's attempt, and the step from which it went on."""
        command = self.start(*arguments)
        assert command.wait() == 0, command.errors()
        with Store.open(self.folder / "bench.db", writes=False) as store:
            row = max(store.rows(latest=False), key=lambda row: row.attempt_id)
            assert row.status is Status.OK
            curves = {one.name: one.y for one in store.series([row.attempt_id])[row.attempt_id]}
        return curves, row.facts.get("resumed", "")


def in_one_go() -> dict[str, tuple[float, ...]]:
    """The curves of the same case without a checkpoint, in this process."""
    case = Case("fake_training", "nobody", "count", Point(does="dropout", stride=1), 0, "smoke")
    lab = Lab(case, None, evaluation=("stride",))
    fake_training.measure(lab)
    return {one.name: one.y for one in lab.curves}


def test_a_case_killed_with_its_runner_is_gone_on_with_by_the_next_run(commands: Commands, tmp_path: Path) -> None:
    bench = Bench(commands, tmp_path)
    bench.gate.touch()
    command = bench.start()
    held: list[Path] = until(lambda: list(tmp_path.glob("held-0-*")))
    os.kill(int(held[0].name.split("-")[2]), signal.SIGKILL)
    command.send(signal.SIGKILL)
    command.wait()
    bench.gate.unlink()
    curves, resumed = bench.run("--rerun", "failed")
    assert resumed == "step 10"
    expected = in_one_go()
    assert curves.pop("taken") == tuple(range(11, 25))
    assert expected.pop("taken") == tuple(range(1, 25))
    assert curves == expected

    # another way to evaluate finds the weights; what is asked to be done again is
    curves, resumed = bench.run("--set", "stride=2")
    assert (curves["weights"], curves["taken"], resumed) == (expected["weights"], (), "step 24")
    curves, resumed = bench.run("--set", "stride=2", "--rerun", "always")
    assert (curves["weights"], len(curves["taken"]), resumed) == (expected["weights"], 24, "")

    listed = commands.start("ls", "checkpoints", folder=tmp_path, environment=bench.environment)
    assert listed.wait() == 0
    assert "fake_training/nobody/count/seed0 on cpu" in listed.output()
    assert "does=dropout" in listed.output()
    assert "24, finished" in listed.output()
