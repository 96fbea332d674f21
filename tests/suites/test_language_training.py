"""A language model's training that is broken off goes on to the same bits, and several processes train the model of one."""

from pathlib import Path

import pytest
from commands import Commands

from attnbench.harness.checkpoints import Checkpoint, checkpoints
from attnbench.harness.lab import Lab
from attnbench.harness.rows import Identity
from attnbench.harness.spec import Case, Point, Setting
from attnbench.harness.store import Store
from attnbench.suites import language_modelling, unbounded_context
from attnbench.variants import find

MODULES = {module.SUITE.name: module for module in (language_modelling, unbounded_context)}
STEPS, EVERY_STEPS = 10, 3


class BrokenOff(BaseException):
    """What a kill is to a test that has to go on."""


class OftenKept(Lab):
    """A lab whose training is kept every three steps."""

    def checkpoint(self, every_seconds: float = 1e9, every_steps: int | None = EVERY_STEPS) -> Checkpoint | None:
        return super().checkpoint(every_seconds, every_steps)


def lab_of(suite: str, name: str, form: str, folder: Path | None, killed_at: int = 0, **changed: Setting) -> Lab:
    """A case at smoke scale, with dropout; it is killed when step `killed_at` is over, before it is kept."""
    declared = MODULES[suite].SUITE
    settings: dict[str, Setting] = {"steps": STEPS, "evaluate_every": 4, "dropout": 0.2, **changed}
    point = Point({**declared.scales["smoke"].points_of(name)[0], **settings})
    lab = OftenKept(
        Case(suite, name, form, point, 0, "smoke"),
        find(name),
        evaluation=declared.evaluation,
        identity=Identity("", "") if folder is None else Identity("code", "data"),
        checkpoints=folder,
    )

    def report(fraction: float, note: str) -> None:
        if note.startswith(f"step {killed_at},"):
            raise BrokenOff

    lab.report = report
    return lab


def came_to(lab: Lab) -> dict[str, object]:
    """Everything measured but the time."""
    MODULES[lab.case.suite].measure(lab)
    numbers = {
        one.metric: one.value for one in lab.measurements if "seconds" not in one.metric and "per_" not in one.metric
    }
    return numbers | {one.name: (one.x, one.y) for one in lab.curves}


@pytest.fixture(autouse=True)
def _every_step_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lab, "progress", lambda self, fraction, note="": self.report(fraction, note))


@pytest.mark.parametrize(
    ("suite", "name", "form", "changed"),
    [
        ("language_modelling", "delta", "chunkwise", {"accumulation": 2}),
        ("language_modelling", "performer-m8", "chunkwise", {}),
        ("unbounded_context", "delta", "chunkwise", {"accumulation": 2}),
        ("unbounded_context", "xl", "parallel", {}),
    ],
)
def test_a_training_that_is_broken_off_comes_to_what_an_unbroken_one_does(
    suite: str, name: str, form: str, changed: dict[str, Setting], tmp_path: Path
) -> None:
    expected = came_to(lab_of(suite, name, form, None, **changed))
    with pytest.raises(BrokenOff):
        came_to(lab_of(suite, name, form, tmp_path, killed_at=8, **changed))
    ((_, left),) = checkpoints(tmp_path)
    assert left is not None
    assert left.step == 6
    resumed = lab_of(suite, name, form, tmp_path, **changed)
    assert came_to(resumed) == expected
    assert resumed.kept is not None
    assert resumed.kept.resumed_at == 6


def test_two_processes_train_the_model_of_one_on_the_same_batches(commands: Commands, tmp_path: Path) -> None:
    found = {}
    for device in ("cpu", "cpu*2"):
        asked = ("run", "unbounded_context", "--scale", "smoke", "-v", "delta", "--device", device, "--db", "bench.db")
        command = commands.start(*asked, folder=tmp_path, environment={"XDG_CACHE_HOME": str(tmp_path / "cache")})
        assert command.wait() == 0, command.errors()
    with Store.open(tmp_path / "bench.db", writes=False) as store:
        for row in store.rows():
            if (row.variant, row.metric) == ("delta", "word_perplexity"):
                assert row.value is not None
                curves = {one.name: one.y for one in store.series([row.attempt_id])[row.attempt_id]}
                found[row.device] = curves | {row.metric: (row.value,)}
    assert found.keys() == {"cpu", "cpu*2"}
    assert found["cpu"].keys() == found["cpu*2"].keys() >= {"training_loss", "carried_loss"}
    for name, values in found["cpu"].items():
        # halves are added up in another order
        assert found["cpu*2"][name] == pytest.approx(values, rel=1e-5), name
