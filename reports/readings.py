"""What was seen of each variant at each point, by seed: from rows, or from what was published. Verdicts are read from it.

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
from attnbench.reports.published.claims import STEPS_TO_SOLVE, At, Claim
from attnbench.reports.tables import FLOOR_FORM, Floor, beaten_by_counting, compares_nothing, hardest, status_words

Place = tuple[str, At | None]
# What a text is to a model that counts its words: the settings that its perplexity hangs on.
_TEXT = ("data", "tokeniser", "vocabulary")


@dataclass(frozen=True)
class Seen:
    """One attempt: how it ended, in words where it was not well, and its numbers by metric.

    `floor` says that counting words does better, where it does: then the numbers that are good or bad compare nothing.
    `attempt` is its number; None of what was published.
    """

    status: Status
    numbers: Mapping[str, float]
    words: str = ""
    is_shipped: bool = False
    floor: str = ""
    attempt: int | None = None

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
        if self.floor and (quantity not in METRICS or METRICS[quantity].better != "neither"):
            return None
        worst = {"lower": math.inf, "higher": -math.inf}.get(METRICS[quantity].better) if quantity in METRICS else None
        if self.status is Status.DIVERGED:
            return worst
        value = self.numbers.get(quantity) if self.status is Status.OK else None
        return worst if value is not None and not math.isfinite(value) else value


class Readings:
    """What was seen of each variant at each point of a claim, by seed."""

    def __init__(self, cells: Mapping[Place, Mapping[int, Seen]]) -> None:
        self._cells = cells

    def seen(self, variant: str, at: At | None) -> Mapping[int, Seen]:
        """The attempts of one case by seed."""
        return self._cells.get((variant, at), {})

    def numbers(self, variant: str, at: At | None, quantity: str) -> dict[int, float]:
        """The numbers of one case by seed, of those seeds that have one."""
        found = {seed: one.number(quantity) for seed, one in self.seen(variant, at).items()}
        return {seed: value for seed, value in found.items() if value is not None}

    def number(self, variant: str, at: At | None, quantity: str) -> float | None:
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

    def attempts(self) -> tuple[int, ...]:
        """The attempts whose endings count."""
        seen = (one for seeds in self._cells.values() for one in seeds.values() if one.counts)
        return tuple(one.attempt for one in seen if one.attempt is not None)

    def endings(self) -> dict[str, None]:
        """The words of the attempts that gave nothing, each once."""
        return {one.words: None for seeds in self._cells.values() for one in seeds.values() if one.words}

    def beaten(self) -> str:
        """Which variants counting words does better than: "linear above the bigram floor: compares nothing"; else nothing."""
        found: dict[str, dict[str, None]] = {}
        for (variant, _), seeds in self._cells.items():
            for one in seeds.values():
                if one.floor:
                    found.setdefault(one.floor, {})[variant] = None
        return "; ".join(f"{', '.join(variants)} {words}" for words, variants in found.items())


class Floors:
    """What n-gram models reach on each text, from the rows of suites that have them counted."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._found: dict[tuple[str, str, tuple[Setting | None, ...]], list[Floor]] = {}
        for row in rows:
            if row.form == FLOOR_FORM and row.status is Status.OK and row.value is not None:
                self._found.setdefault(_counted(row), []).append((row.variant, row.value))

    def words(self, row: Row) -> str:
        """That counting does better than the number of a row: "above the bigram floor: compares nothing"; or that it is too low
        to compare anything; else nothing.
        """
        if row.value is None:
            return ""
        if low := compares_nothing(row.value, row.metric):
            return low
        return beaten_by_counting(row.value, hardest(self._found.get(_counted(row), ()), row.better), row.better)


def _counted(row: Row) -> tuple[str, str, tuple[Setting | None, ...]]:
    return row.suite, row.metric, tuple(row.point.get(name) for name in _TEXT)


def measured_readings(rows: Iterable[Row], claim: Claim, floors: Floors | None = None) -> Readings:
    """The readings of rows that `claim` speaks of. Where it names no points, all cases of a variant count as one.

    Of several attempts of one case and seed, the newest that ended with a number counts.
    """
    attempts: dict[Place, dict[int, dict[int, list[Row]]]] = {}
    for row in rows:
        place = (row.variant, claim.place(row.variant, row.point))
        attempts.setdefault(place, {}).setdefault(row.seed, {}).setdefault(row.attempt_id, []).append(row)
    return Readings(
        {
            place: {
                seed: _newest(list(tries.values()), None if place[0] in claim.failing else floors)
                for seed, tries in seeds.items()
            }
            for place, seeds in attempts.items()
        }
    )


def published_readings(numbers: Iterable[Published], runs: Iterable[LoggedRun], claim: Claim) -> Readings:
    """The readings of what was published of the cases of `claim`. A log that ended in NaN diverged."""
    found: dict[Place, dict[str, float]] = {}
    for one in numbers:
        if one.suite == claim.suite and claim.asks(one.variant, one.point) and _is_of(one, claim):
            place = (one.variant, claim.place(one.variant, one.point))
            found.setdefault(place, {})[one.metric] = one.value
    cells: dict[Place, dict[int, Seen]] = {place: {1: Seen(Status.OK, values)} for place, values in found.items()}
    for run in runs:
        point = Point({run.axis: run.at})
        if run.suite == claim.suite and run.hit_nan and claim.asks(run.variant, point):
            cells[run.variant, claim.place(run.variant, point)] = {1: Seen(Status.DIVERGED, {})}
    return Readings(cells)


def _is_of(one: Published, claim: Claim) -> bool:
    """Whether a number is of the protocol of a claim, as far as is known of it."""
    return all(one.point.get(name, value) == value for name, value in claim.protocol.point_of(one.variant).items())


def _newest(tries: Sequence[list[Row]], floors: Floors | None) -> Seen:
    found = [_seen(rows, floors) for rows in newest_first(tries)]
    return next((one for one in found if one.counts), found[0])


def _seen(rows: Sequence[Row], floors: Floors | None) -> Seen:
    first = rows[0]
    words = "" if first.status is Status.OK else status_words(first.status, first.reason)
    numbers = {row.metric: row.value for row in rows if row.value is not None}
    floor = next(filter(None, map(floors.words, rows)), "") if floors else ""
    return Seen(first.status, numbers, words, is_shipped(first), floor, first.attempt_id)
