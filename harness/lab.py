"""What a suite is handed to measure one case: the variant, its randomness, its data, and a place to put numbers."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from attnbench.harness import seeds
from attnbench.harness.checkpoints import EVERY_SECONDS, Checkpoint, checkpoint_folder
from attnbench.harness.metrics import metric
from attnbench.harness.processes import ALONE, Processes
from attnbench.harness.rows import Artefact, Identity, Measurement, Series
from attnbench.harness.spec import Case, Point, processes_of
from attnbench.variants.contract import Variant

Reporter = Callable[[float, str], None]
NAMELESS = Identity("", "")


def silent(fraction: float, note: str) -> None:
    """A reporter that says nothing."""


@dataclass
class Lab:
    """One case on its bench.

    `variant` is None for the references of a suite, which are no variants. `report(fraction, note)` says how far a case
    has come. `cache` is the folder of the data sets, `checkpoints` that of the checkpoints, None for the usual ones.
    `evaluation` names the settings that change only how a trained model is evaluated. `processes` are those that train
    its model: this one, unless the case is for several.
    """

    case: Case
    variant: Variant | None
    report: Reporter = silent
    cache: Path | None = None
    evaluation: tuple[str, ...] = ()
    processes: Processes = ALONE
    identity: Identity = NAMELESS
    checkpoints: Path | None = None
    trained_since: float = 0.0
    kept: Checkpoint | None = None
    measurements: list[Measurement] = field(default_factory=list)
    curves: list[Series] = field(default_factory=list)
    artefacts: list[Artefact] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    _reported: float = 0.0

    @property
    def device(self) -> torch.device:
        """Where this process runs: of several on GPUs each has its own."""
        kind, count = processes_of(self.case.device)
        return torch.device(kind, self.processes.rank) if kind == "cuda" and count > 1 else torch.device(kind)

    @property
    def training_point(self) -> Point:
        """The settings that training hangs on: the point without those that are only for evaluation."""
        return Point({name: value for name, value in self.case.point.items() if name not in self.evaluation})

    def mechanism(self) -> Variant:
        """The variant, where the case has one."""
        assert self.variant is not None, f"{self.case.variant} is a reference, not a variant"
        return self.variant

    def seed(self, *parts: seeds.Part) -> int:
        """A seed for the part of this case that `parts` name: the same for every variant, form and way to evaluate."""
        return seeds.seed(self.case.suite, self.training_point.json(), self.case.seed, *parts)

    def generator(self, *parts: seeds.Part) -> torch.Generator:
        """Randomness for the part of this case that `parts` name, from its `seed`."""
        return torch.Generator().manual_seed(self.seed(*parts))

    def checkpoint(self, every_seconds: float = EVERY_SECONDS, every_steps: int | None = None) -> Checkpoint | None:
        """What the training of this case is gone on from; None where nobody knows which code and data it hangs on.

        It is that of every case with this training point. Raises ValueError where it was asked for before.
        """
        if self.kept is not None:
            raise ValueError("a case has one checkpoint, and it was asked for before")
        if not self.identity.code_hash:
            return None
        case = self.case
        training: dict[str, str | int] = {
            "suite": case.suite,
            "variant": case.variant,
            "form": case.form,
            "point": self.training_point.json(),
            "seed": case.seed,
            "device": case.device.partition(":")[0],
            "threads": case.threads,
            "code": self.identity.code_hash,
            "data": self.identity.data_hash,
            "torch": str(torch.__version__),
        }
        self.kept = Checkpoint(
            checkpoint_folder(self.checkpoints), training, every_seconds, every_steps, self.trained_since
        )
        return self.kept

    def draws(self, heads: int, key_width: int, *parts: seeds.Part, layer: int = 0) -> Tensor | None:
        """What is random in the variant (`Variant.draws`), drawn for `parts` and a layer; None where nothing is."""
        random = self.mechanism().draws
        if random is None:
            return None
        if random.redraw == "never":
            parts = ("once",)
        return random.sample(self.generator("draws", *parts, layer), heads, key_width).to(self.device)

    def record(self, name: str, value: float, samples: tuple[float, ...] = ()) -> None:
        """Keep one number. Raises UnknownMetric, and ValueError for a metric that was recorded before."""
        _refuse_twice("metric", name, (one.metric for one in self.measurements))
        self.measurements.append(Measurement(metric(name).name, float(value), tuple(map(float, samples))))

    def curve(self, name: str, x_name: str, x: list[float], y: list[float]) -> None:
        """Keep a curve. Raises ValueError for a name that was used before."""
        _refuse_twice("curve", name, (one.name for one in self.curves))
        self.curves.append(Series(name, x_name, tuple(map(float, x)), tuple(map(float, y))))

    def artefact(self, name: str, media_type: str, text: str) -> None:
        """Keep a text. Raises ValueError for a name that was used before."""
        _refuse_twice("artefact", name, (one.name for one in self.artefacts))
        self.artefacts.append(Artefact(name, media_type, text))

    def fact(self, name: str, text: str) -> None:
        """Keep what a number hangs on and no setting says, such as the clock of the processor."""
        self.facts[name] = text

    def progress(self, fraction: float, note: str = "") -> None:
        """Say how far the case has come, at most four times a second."""
        now = time.monotonic()
        if now - self._reported > 0.25:
            self._reported = now
            self.report(min(max(fraction, 0.0), 1.0), note)


def _refuse_twice(what: str, name: str, known: Iterable[str]) -> None:
    if name in known:
        raise ValueError(f"a case has one {what} called '{name}', and it was recorded before")
