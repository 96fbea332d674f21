"""What others reported, as data: the number, the case it belongs to, and where it was read.

`paper.toml` holds what arXiv:2102.11174 prints: `*_claims.toml` says under which protocols; `synthetic.csv` the last lines of the 320 training logs that its
authors released (github.com/ischlag/fast-weight-transformers, MIT), which the figures of its section 6.1 are drawn from.
"""

import csv
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from attnbench.harness.spec import Point, Setting
from attnbench.reports.published.protocol import protocols


@dataclass(frozen=True)
class Published:
    """One number that somebody published. It belongs to every case whose point has all settings of `point`.

    `table` names the table that it was printed in, `own` the settings in which it differs from others of that table, and
    `protocol` how all of it was measured, where that is known. Of a number that `is_bound` only that is known: the true
    one is larger.
    """

    suite: str
    variant: str
    point: Point
    metric: str
    value: float
    source: str
    note: str
    table: str = ""
    own: Point = field(default_factory=Point)
    protocol: str = ""
    is_bound: bool = False

    @property
    def citation(self) -> str:
        """Where the number is from and what it is, in one line."""
        return f"published ({self.source}), {self.note}"

    def belongs_to(self, point: Mapping[str, Setting]) -> bool:
        """Whether a case at `point` asks what this number answers."""
        return all(name in point and point[name] == value for name, value in self.point.items())


@dataclass(frozen=True)
class LoggedRun:
    """What one of the 320 released training logs says. All are of seed 1.

    `axis` and `at` say where it stands: pairs 60. `best_loss` and `last_loss` are evaluation losses, None where they
    are not finite. `hit_nan`: the loss became NaN before the run stopped. Where not `is_complete`, the log breaks off
    with neither success nor patience spent, so it is no result. `remark` says how the run differed from its siblings.
    """

    suite: str
    variant: str
    axis: str
    at: int
    best_loss: float | None
    last_loss: float | None
    steps: int
    hit_nan: bool
    is_complete: bool
    remark: str
    source: str


@cache
def published() -> tuple[Published, ...]:
    """All published numbers: the printed ones, then those of the released logs."""
    return (*printed(), *_logged())


@cache
def printed() -> tuple[Published, ...]:
    """The numbers of `paper.toml`, in its order."""
    tables = tomllib.loads(_text("paper.toml"))["table"]
    return tuple(one for table in tables for number in table["numbers"] for one in _numbers(table, number))


def find(
    numbers: Iterable[Published], suite: str, variant: str, metric: str, point: Mapping[str, Setting]
) -> Published | None:
    """The published number of one case, or None. Where several fit, the one that says most about the case."""
    fitting = [
        one
        for one in numbers
        if (one.suite, one.variant, one.metric) == (suite, variant, metric) and one.belongs_to(point)
    ]
    return max(fitting, key=lambda one: len(one.point), default=None)


def _numbers(table: Mapping[str, Any], number: Mapping[str, Any]) -> Iterator[Published]:
    """One line of a table: one number, or several of different metrics."""
    variant, own, name = number["variant"], Point(number.get("point")), table.get("protocol", "")
    shared = {**(protocols()[name].point_of(variant) if name else {}), **table.get("point", {})}
    values = number["values"] if "values" in number else {table["metric"]: number["value"]}
    for metric, value in values.items():
        yield Published(
            table["suite"],
            variant,
            Point({**shared, **own}),
            metric,
            float(value["above"] if isinstance(value, Mapping) else value),
            table["source"],
            table["note"],
            table.get("name", ""),
            own,
            name,
            isinstance(value, Mapping),
        )


# setting -> suite, axis, source, what to know about it
_SETTINGS = {
    "1": ("capacity", "pairs", "arXiv:2102.11174, Fig. 2", ""),
    "2": ("rewrite", "keys", "arXiv:2102.11174, Figs. 3 and 5", "evaluated on sequences of length S, not 2S"),
}


@cache
def logged_runs() -> tuple[LoggedRun, ...]:
    """The 320 released training logs, those that broke off or ended in NaN among them."""
    runs = []
    for line in csv.DictReader(_text("synthetic.csv").splitlines()):
        suite, axis, source, remark = _SETTINGS[line["setting"]]
        runs.append(
            LoggedRun(
                suite,
                line["variant"],
                axis,
                int(line["keys"]),
                _finite(line["best_loss"]),
                _finite(line["last_loss"]),
                int(line["steps"]),
                line["hit_nan"] == "1",
                line["is_complete"] == "1",
                "; ".join(filter(None, (remark, line["remark"]))),
                source,
            )
        )
    return tuple(runs)


def _finite(text: str) -> float | None:
    value = float(text or "nan")
    return value if math.isfinite(value) else None


def _logged() -> Iterator[Published]:
    for run in logged_runs():
        # The log of dpfp-nu2+delta at 100 keys stops at step 300 with neither success nor patience spent: no result.
        if not run.is_complete:
            continue
        remarks = "".join(
            f"; {words}" for words in (run.remark, "the run ended in NaN" if run.hit_nan else "") if words
        )
        point = Point({run.axis: run.at, "key_width": 64})
        for metric, value, what in (
            ("retrieval_loss", run.best_loss, "best loss"),
            ("last_retrieval_loss", run.last_loss, "last loss"),
            ("training_steps", float(run.steps), "steps until the run stopped"),
        ):
            if value is not None:
                yield Published(run.suite, run.variant, point, metric, value, run.source, f"seed 1, {what}{remarks}")


def _text(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
