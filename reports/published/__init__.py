"""What others reported, as data: the number, the case it belongs to, and where it was read.

`paper.toml` holds what arXiv:2102.11174 prints; `synthetic.csv` the last lines of the 320 training logs that its
authors released (github.com/ischlag/fast-weight-transformers, MIT), which the figures of its section 6.1 are drawn from.
"""

import csv
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from attnbench.harness.spec import Point, Setting


@dataclass(frozen=True)
class Published:
    """One number that somebody published. It belongs to every case whose point has all settings of `point`."""

    suite: str
    variant: str
    point: Point
    metric: str
    value: float
    source: str
    note: str

    @property
    def citation(self) -> str:
        """Where the number is from and what it is, in one line."""
        return f"published ({self.source}), {self.note}"

    def belongs_to(self, point: Mapping[str, Setting]) -> bool:
        """Whether a case at `point` asks what this number answers."""
        return all(name in point and point[name] == value for name, value in self.point.items())


@cache
def published() -> tuple[Published, ...]:
    """All published numbers: the printed ones, then those of the released logs."""
    return (*_printed(), *_logged())


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


def _printed() -> Iterator[Published]:
    for table in tomllib.loads(_text("paper.toml"))["table"]:
        for number in table["numbers"]:
            point = Point({**table["point"], **number.get("point", {})})
            yield Published(
                table["suite"],
                number["variant"],
                point,
                table["metric"],
                float(number["value"]),
                table["source"],
                table["note"],
            )


# setting -> suite, axis, source, what to know about it
_SETTINGS = {
    "1": ("capacity", "pairs", "arXiv:2102.11174, Fig. 2", ""),
    "2": ("rewrite", "keys", "arXiv:2102.11174, Figs. 3 and 5", "; evaluated on sequences of length S, not 2S"),
}


def _logged() -> Iterator[Published]:
    for run in csv.DictReader(_text("synthetic.csv").splitlines()):
        # The log of dpfp-nu2+delta at 100 keys stops at step 300 with neither success nor patience spent: no result.
        if run["is_complete"] == "0":
            continue
        suite, axis, source, remark = _SETTINGS[run["setting"]]
        if run["remark"]:
            remark += f"; {run['remark']}"
        if run["hit_nan"] == "1":
            remark += "; the run ended in NaN"
        point = Point({axis: int(run["keys"]), "key_width": 64})
        for metric, column, what in (
            ("retrieval_loss", "best_loss", "best loss"),
            ("last_retrieval_loss", "last_loss", "last loss"),
            ("training_steps", "steps", "steps until the run stopped"),
        ):
            value = float(run[column] or "nan")
            if math.isfinite(value):
                yield Published(suite, run["variant"], point, metric, value, source, f"seed 1, {what}{remark}")


def _text(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
