"""What a suite's part of the report is made of: its figures, its passages, what it adds to the trade-off.

Each suite has one module in `reports/sections/`, which exports a `SECTION`; nothing else names a suite.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from attnbench.harness.rows import Artefact, Row, Series
from attnbench.reports.board import Part
from attnbench.reports.figures import Plan
from attnbench.reports.grids import Table
from attnbench.reports.palette import Look
from attnbench.reports.passage import Passage
from attnbench.reports.published import Published
from attnbench.reports.tables import SuiteFacts


@dataclass(frozen=True)
class Material:
    """What a section is made from: the rows of one suite under one set of conditions, and what belongs to them.

    `curves` and `texts` are by attempt; `prefix` keeps the ids of figures on one page apart.
    """

    rows: Sequence[Row]
    suite: SuiteFacts
    looks: Mapping[str, Look]
    curves: Mapping[int, Sequence[Series]]
    texts: Mapping[int, Sequence[Artefact]]
    numbers: Sequence[Published]
    prefix: str


@dataclass(frozen=True)
class Reading:
    """One number of a variant on one axis of the trade-off, with the ends of its spread (None without one).

    `n` counts what the spread goes over. `beyond` is -1 or 1 where the number is only known to lie below or above.
    """

    value: float
    low: float | None = None
    high: float | None = None
    n: int = 1
    beyond: int = 0
    attempts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Readings:
    """The numbers of one measure by variant, under one set of settings, which `says` names."""

    says: str
    better: str
    unit: str
    by_variant: Mapping[str, Reading]


@dataclass(frozen=True)
class Measure:
    """One thing to get or to pay, an axis of the trade-off: how its numbers are read from the rows of a part.

    Without `read`, it is the metric of that name, where the suite's axis ends.
    """

    key: str
    role: Literal["quality", "cost"]
    title: str
    metric: str
    read: Callable[[Part], Readings | None] | None = None


def _no_passages(_material: Material) -> tuple[Passage, ...]:
    return ()


def _no_table(_rows: Sequence[Row], _suite: SuiteFacts) -> Table | None:
    return None


@dataclass(frozen=True)
class SuiteSection:
    """The part of one suite. Smaller `place` is shown earlier: first what one gets, then what one pays.

    `table` is what the numbers come to beyond the tables of metrics, for the terminal. `needs_curves` and `needs_texts`
    say whether `passages` reads the series and the texts of attempts.
    """

    suite: str
    place: int
    plan: Plan = field(default_factory=Plan)
    passages: Callable[[Material], tuple[Passage, ...]] = _no_passages
    table: Callable[[Sequence[Row], SuiteFacts], Table | None] = _no_table
    measures: tuple[Measure, ...] = ()
    needs_curves: bool = False
    needs_texts: bool = False
