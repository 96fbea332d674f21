"""Suite, case, point, scale: what can be asked. Nothing here runs anything or needs torch."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from attnbench.harness.errors import UnknownScale, did_you_mean

Setting = int | float | str | bool
SCALES = ("smoke", "quick", "standard", "paper")


class Point(Mapping[str, Setting]):
    """The settings of a case, by name: frozen, hashable, with one spelling (`key=value,key=value`, keys sorted)."""

    __slots__ = ("_items",)

    def __init__(self, settings: Mapping[str, Setting] | None = None, /, **more: Setting) -> None:
        self._items = dict(sorted({**(settings or {}), **more}.items()))

    def __getitem__(self, name: str) -> Setting:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(self.json())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and self.json() == other.json()

    def __repr__(self) -> str:
        return f"Point({self})"

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self._items.items())

    def __reduce__(self) -> tuple[Any, ...]:
        return (Point, (self._items,))

    def integer(self, name: str) -> int:
        """The setting `name`, which has to be a whole number."""
        value = self._items[name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"point setting {name} must be a whole number, got {value!r}")
        return value

    def number(self, name: str) -> float:
        """The setting `name`, which has to be a number."""
        value = self._items[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"point setting {name} must be a number, got {value!r}")
        return float(value)

    def text(self, name: str) -> str:
        """The setting `name`, which has to be a text."""
        value = self._items[name]
        if not isinstance(value, str):
            raise TypeError(f"point setting {name} must be a text, got {value!r}")
        return value

    def json(self) -> str:
        """The canonical JSON text: the same settings always give the same text."""
        return json.dumps(self._items, separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Point":
        """The point that `json` wrote."""
        return cls(json.loads(text))


@dataclass(frozen=True)
class Case:
    """One question to one variant: the unit that is run, stored and compared. Threads are part of it, since they change floats."""

    suite: str
    variant: str
    form: str
    point: Point
    seed: int
    scale: str
    device: str = "cpu"
    threads: int = 1

    @property
    def processes(self) -> int:
        """How many processes train its one model: 2 on `cpu*2`, else 1."""
        return processes_of(self.device)[1]

    def key(self) -> str:
        """A hash that names the case in the database: 64 hexadecimal digits."""
        parts = [
            self.suite,
            self.variant,
            self.form,
            self.point.json(),
            self.seed,
            self.scale,
            self.device,
            self.threads,
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.suite}/{self.variant}/{self.form}/{self.point}/seed{self.seed}"


def processes_of(device: str) -> tuple[str, int]:
    """The device without its number of processes, and that number: `cuda*4` is ("cuda", 4), `cuda:1` is ("cuda:1", 1)."""
    kind, _, number = device.partition("*")
    return kind, int(number or 1)


@dataclass(frozen=True)
class Grid:
    """What a suite asks at one scale.

    `points` hold for every variant, unless `points_for` gives a variant its own; so do `seeds` and `seeds_for`.
    `timeout_seconds` ends one case; `seconds_per_case` is a first guess for the time left shown before any case has finished.
    """

    variants: tuple[str, ...]
    points: tuple[Point, ...]
    seeds: tuple[int, ...] = (0,)
    points_for: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)
    seeds_for: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    timeout_seconds: float = 600.0
    seconds_per_case: float = 5.0

    def points_of(self, variant: str) -> tuple[Point, ...]:
        """The points that `variant` is asked at."""
        return self.points_for.get(variant, self.points)

    def seeds_of(self, variant: str) -> tuple[int, ...]:
        """The seeds that `variant` is run with."""
        return self.seeds_for.get(variant, self.seeds)


def _no_data(point: Point) -> tuple[str, ...]:
    return ()


def _no_limits(point: Point) -> None:
    return None


@dataclass(frozen=True)
class Suite:
    """One question, and the grids it is asked on.

    `axis` is the point setting that figures run along; the first of `metrics` is the headline. `forms` is the order in
    which a form is chosen for a variant when nobody names one, `forms_for` that order where it hangs on the point. `references` are rows that are not variants (an n-gram
    floor). `data` names the data sets that a point needs, `data_hash(point, hashes)` what is made of them
    where that is more than their text. `check` raises BadParameter for settings that do not go together. A suite with `is_timing` is measured alone on its device, in
    interleaved rounds over the variants of a point; one that `isolates` gives each case a fresh process. `evaluation` names
    the settings that change only how a trained model is evaluated: nothing random hangs on them. A suite that `spreads`
    can train one model with several processes (device `cpu*2`).
    """

    name: str
    title: str
    question: str
    source: str
    module: str
    axis: str
    metrics: tuple[str, ...]
    scales: Mapping[str, Grid]
    forms: tuple[str, ...]
    references: tuple[str, ...] = ()
    data: Callable[[Point], tuple[str, ...]] = _no_data
    data_hash: Callable[[Point, Mapping[str, str]], str] | None = None
    check: Callable[[Point], None] = _no_limits
    forms_for: Callable[[Point], tuple[str, ...]] | None = None
    threads: int = 1
    is_timing: bool = False
    isolates: bool = False
    evaluation: tuple[str, ...] = ()
    spreads: bool = False

    def grid(self, scale: str) -> Grid:
        """The grid of `scale`. Raises UnknownScale."""
        if scale not in self.scales:
            raise UnknownScale(f"suite '{self.name}' has no scale '{scale}'. {did_you_mean(scale, self.scales)}")
        return self.scales[scale]
