"""What was seen of each variant at each axis value, by seed: from rows, or from what was published. Verdicts are read from it.

rows       ->  readings  ->  number(variant, at, quantity): the median over the seeds
published  ->
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from attnbench.harness.metrics import METRICS
from attnbench.harness.rows import Row, Status
from attnbench.harness.spec import Point, Setting
from attnbench.reports.agreement import SOLVED, newest_first
from attnbench.reports.measured import is_shipped
from attnbench.reports.published import LoggedRun, Published
from attnbench.reports.published.claims import STEPS_TO_SOLVE
from attnbench.reports.tables import status_words

Place = tuple[str, Setting | None]


@dataclass(frozen=True)
class Seen:
    """One attempt: how it ended, in words where it was not well, and its numbers by metric."""

    status: Status
    numbers: Mapping[str, float]
    words: str = ""
    is_shipped: bool = False

    @property
    def counts(self) -> bool:
        """Whether the ending says something of the variant; a timeout, say, says something of the run."""
        return self.status in {Status.OK, Status.DIVERGED, Status.OUT_OF_MEMORY}

    def number(self, quantity: str) -> float | None:
        """The number of a metric, or the steps until the loss was small enough (infinite where it never was).

        A run that diverged has the worst number there is; None where nothing can be said.
        """
        if quantity == STEPS_TO_SOLVE:
            loss, steps = self.number("retrieval_loss"), self.numbers.get("training_steps")
            if loss is not None and loss > SOLVED:
                return math.inf
            return None if loss is None else steps
        worst = {"lower": math.inf, "higher": -math.inf}.get(METRICS[quantity].better) if quantity in METRICS else None
        if self.status is Status.DIVERGED:
            return worst
        value = self.numbers.get(quantity) if self.status is Status.OK else None
        return worst if value is not None and not math.isfinite(value) else value


class Readings:
    """What was seen of each variant at each axis value, by seed."""

    def __init__(self, cells: Mapping[Place, Mapping[int, Seen]]) -> None:
        self._cells = cells

    def seen(self, variant: str, at: Setting | None) -> Mapping[int, Seen]:
        """The attempts of one case by seed."""
        return self._cells.get((variant, at), {})

    def numbers(self, variant: str, at: Setting | None, quantity: str) -> dict[int, float]:
        """The numbers of one case by seed, of those seeds that have one."""
        found = {seed: one.number(quantity) for seed, one in self.seen(variant, at).items()}
        return {seed: value for seed, value in found.items() if value is not None}

    def number(self, variant: str, at: Setting | None, quantity: str) -> float | None:
        """The median over the seeds, or None where none has a number."""
        found = self.numbers(variant, at, quantity)
        return median(found.values()) if found else None

    def of_seed(self, seed: int) -> "Readings":
        """The same, of one seed alone."""
        return Readings({place: {seed: seeds[seed]} for place, seeds in self._cells.items() if seed in seeds})

    def seeds(self) -> Sequence[frozenset[int]]:
        """The seeds of each case that has any attempt whose ending counts."""
        found = (frozenset(seed for seed, one in seeds.items() if one.counts) for seeds in self._cells.values())
        return [one for one in found if one]

    def shipped(self) -> tuple[int, int]:
        """How many of the attempts were shipped with attnbench, and how many there are."""
        attempts = [one for seeds in self._cells.values() for one in seeds.values() if one.counts]
        return sum(one.is_shipped for one in attempts), len(attempts)

    def endings(self) -> dict[str, None]:
        """The words of the attempts that gave nothing, each once."""
        return {one.words: None for seeds in self._cells.values() for one in seeds.values() if one.words}


def measured_readings(rows: Iterable[Row], axis: str | None) -> Readings:
    """The readings of rows of one suite. Without an axis all its cases of a variant count as one.

    Of several attempts of one case and seed, the newest that ended with a number counts.
    """
    attempts: dict[Place, dict[int, dict[int, list[Row]]]] = {}
    for row in rows:
        place = (row.variant, row.point.get(axis) if axis else None)
        attempts.setdefault(place, {}).setdefault(row.seed, {}).setdefault(row.attempt_id, []).append(row)
    return Readings(
        {
            place: {seed: _newest(list(tries.values())) for seed, tries in seeds.items()}
            for place, seeds in attempts.items()
        }
    )


def published_readings(
    numbers: Iterable[Published], runs: Iterable[LoggedRun], suite: str, axis: str | None, point: Point
) -> Readings:
    """The readings of what was published of a suite at `point`. A log that ended in NaN diverged."""
    found: dict[Place, dict[str, float]] = {}
    for one in numbers:
        if one.suite == suite and all(one.point.get(name) == value for name, value in point.items()):
            found.setdefault((one.variant, one.point.get(axis) if axis else None), {})[one.metric] = one.value
    cells: dict[Place, dict[int, Seen]] = {place: {1: Seen(Status.OK, values)} for place, values in found.items()}
    for run in runs:
        if run.suite == suite and run.hit_nan:
            cells[run.variant, run.at if axis else None] = {1: Seen(Status.DIVERGED, {})}
    return Readings(cells)


def _newest(tries: Sequence[list[Row]]) -> Seen:
    found = [_seen(rows) for rows in newest_first(tries)]
    return next((one for one in found if one.counts), found[0])


def _seen(rows: Sequence[Row]) -> Seen:
    first = rows[0]
    words = "" if first.status is Status.OK else status_words(first.status, first.reason)
    numbers = {row.metric: row.value for row in rows if row.value is not None}
    return Seen(first.status, numbers, words, is_shipped(first))
