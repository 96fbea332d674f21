"""The capacity point: the number of pairs S at which half of the runs retrieve.

    fraction of runs that retrieve      1  1  1  2/3  1  1/3  0  0
    logistic curve through them         ----------------\\________
    capacity point                                      ^  where it passes one half

A run retrieves if its best loss is at most a threshold. Runs are not monotone in S (one that fails by bad luck may stand
between two that retrieve), so the point is a fit and not the first failure.

The curve falls over the S that were asked, within about one step of that grid, and between two of them it is taken in
log S: the numbers of pairs of interest span a factor of thirty, and what a step resolves is a ratio. Its width is held.
Left free it is not determined by a few seeds (it is zero where all retrieve up to some S and none beyond), and a single
early failure flattens it so far that the point rises. A lapse, as in psychometric functions (Wichmann & Hill 2001,
Perception & Psychophysics 63), keeps one run from outweighing all others. So held, one failure more never raises the point.

The interval is a 95 % bootstrap over the seeds of each S. Its ends are taken outward to an S that was asked, since nothing
was seen between two of them. Where all seeds of an S end alike the bootstrap sees no doubt there, though a fourth seed
might end otherwise: with three seeds the interval is coarse, and rather too short than too long.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnbench.harness.rows import Row, Status
from attnbench.harness.spec import Setting
from attnbench.reports.agreement import newest_first
from attnbench.reports.numbers import setting_written
from attnbench.reports.tables import FLOOR_FORM, NOT_SET, SuiteFacts, frame, layout, metric_words, order, status_words

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

# The loss at which the published runs stop, and a second one for runs that come close.
THRESHOLDS = (0.001, 0.01)
# Fewer seeds than this say nothing about how far another seed would be.
SEEDS_FOR_AN_INTERVAL = 3

# Of the curve: from 88 % to 12 % within one step of the grid, and 2 % of all runs end on the wrong side for no reason.
_STEEPNESS = 4.0
_LAPSE = 0.02
_PLACES_A_STEP = 10
_BOOTSTRAPS = 1000
_BOOTSTRAP_SEED = 0


@dataclass(frozen=True)
class CapacityPoint:
    """Where half of the runs retrieve; infinite beyond an end of the grid, from `first` to `last`.

    `low` and `high` are the interval's ends, None with fewer than three runs a number of pairs; `runs` counts the runs at
    the S beside the point, the smaller number of the two.
    """

    at: float
    low: float | None
    high: float | None
    first: float
    last: float
    runs: int

    @property
    def drawn_at(self) -> float:
        """The point, or the end of the grid that it is beyond."""
        return min(max(self.at, self.first), self.last)

    @property
    def text(self) -> str:
        """The point in short: 49, < 20, > 600."""
        return self.written(self.at)

    @property
    def interval_text(self) -> str:
        """The interval in short: "40 – 60", "< 20", "40 – > 600"; empty without one."""
        if self.low is None or self.high is None:
            return ""
        ends = (self.written(self.low), self.written(self.high))
        return ends[0] if ends[0] == ends[1] else " – ".join(ends)

    def written(self, pairs: float) -> str:
        """A number of pairs, or the end of the grid that it is beyond."""
        if math.isfinite(pairs):
            return setting_written(round(pairs))
        return f"< {setting_written(self.first)}" if pairs < 0 else f"> {setting_written(self.last)}"


@dataclass(frozen=True)
class LinePoints:
    """The capacity points of one line of the table, by threshold, and what its features offer.

    `labels` begin with the variant. `feature_width` is d_dot, `feature_rank` the rank that the features span; None where
    the rows have none. `left_out` says which attempts were no runs, `attempts` which there are.
    """

    variant: str
    labels: tuple[str, ...]
    points: Mapping[float, CapacityPoint]
    feature_width: float | None = None
    feature_rank: float | None = None
    left_out: tuple[str, ...] = ()
    attempts: tuple[int, ...] = ()


def capacity_point(runs: Mapping[float, Sequence[bool]]) -> CapacityPoint:
    """The point of the runs at each number of pairs, True for those that retrieve. Raises ValueError without any run."""
    import numpy as np

    grid = sorted(pairs for pairs, outcomes in runs.items() if outcomes)
    if not grid:
        raise ValueError("a capacity point needs at least one run, got none.")
    count = np.array([len(runs[pairs]) for pairs in grid], dtype=float)
    retrieved = np.array([sum(runs[pairs]) for pairs in grid], dtype=float)
    place = float(_places(retrieved[None], count)[0])
    beside = {min(max(edge(place), 0), len(grid) - 1) for edge in (math.floor, math.ceil)}
    fewest = int(min(count[step] for step in beside))
    low = high = None
    if fewest >= SEEDS_FOR_AN_INTERVAL:
        generator = np.random.default_rng(_BOOTSTRAP_SEED)
        again = generator.binomial(count.astype(int), retrieved / count, size=(_BOOTSTRAPS, len(grid)))
        # most S are all or nothing, so few of these are different
        different, which = np.unique(again, axis=0, return_inverse=True)
        places = _places(different.astype(float), count)[which.reshape(-1)]
        low = _pairs_at(math.floor(min(place, float(np.quantile(places, 0.025)))), grid)
        high = _pairs_at(math.ceil(max(place, float(np.quantile(places, 0.975)))), grid)
    return CapacityPoint(_pairs_at(place, grid), low, high, grid[0], grid[-1], fewest)


def _places(retrieved: "Array", count: "Array") -> "Array":
    """The likeliest places of one half on the grid, counted in steps from its first S: below 0 or above the last if beyond.

    `retrieved` is [B,S], `count` [S]. Where several places are as likely, the middle of them.
    """
    import numpy as np

    steps = np.arange(len(count))
    places = np.linspace(-1, len(count), (len(count) + 1) * _PLACES_A_STEP + 1)
    # 1 / (1 + exp(-x)) = (1 + tanh(x / 2)) / 2, which never overflows
    logistic = (1 + np.tanh(_STEEPNESS * (places[:, None] - steps) / 2)) / 2
    curves = _LAPSE + (1 - 2 * _LAPSE) * logistic
    likelihood = retrieved @ np.log(curves).T + (count - retrieved) @ np.log1p(-curves).T
    is_best = likelihood >= likelihood.max(1, keepdims=True) - 1e-9
    first, last = is_best.argmax(1), len(places) - 1 - is_best[:, ::-1].argmax(1)
    return (places[first] + places[last]) / 2


def _pairs_at(place: float, grid: Sequence[float]) -> float:
    """The number of pairs at a place, in log S between two that were asked; infinite beyond the ends."""
    if place < 0:
        return -math.inf
    if place > len(grid) - 1:
        return math.inf
    below = math.floor(place)
    above = min(below + 1, len(grid) - 1)
    return grid[below] if place == below else grid[below] * (grid[above] / grid[below]) ** (place - below)


def points_of_lines(rows: Sequence[Row], suite: SuiteFacts) -> tuple[tuple[str, ...], tuple[LinePoints, ...]]:
    """What tells lines apart beside the variant, and the points of each line with a run, in reading order.

    A run that diverged did not retrieve. One that was skipped, timed out or failed says nothing and is left out. Of several
    attempts with one seed (on older data, say) the newest run counts.
    """
    varying = layout(frame(rows), suite.axis).varying
    lines: dict[tuple[Setting, ...], dict[int, list[Row]]] = {}
    for row in rows:
        if row.form != FLOOR_FORM and isinstance(row.point.get(suite.axis), int | float):
            key = (row.variant, *(_setting(row, name) for name in varying))
            lines.setdefault(key, {}).setdefault(row.attempt_id, []).append(row)
    found = (_line(key, tries.values(), suite.axis) for key, tries in sorted(lines.items(), key=_reading_order))
    return varying, tuple(line for line in found if line is not None)


def _reading_order(item: tuple[tuple[Setting, ...], Any]) -> tuple[Any, ...]:
    return tuple(map(order, item[0]))


def _setting(row: Row, name: str) -> Setting:
    own: dict[str, Setting] = {"form": row.form, "threads": row.threads}
    return own[name] if name in own else row.point.get(name, NOT_SET)


def _line(key: Sequence[Setting], attempts: Iterable[list[Row]], axis: str) -> LinePoints | None:
    losses: dict[float, dict[int, float]] = {}
    widths: list[float] = []
    ranks: list[float] = []
    lost: dict[str, set[tuple[float, int]]] = {}
    behind: list[int] = []
    for rows in newest_first(attempts):
        behind.append(rows[0].attempt_id)
        values = {row.metric: row.value for row in rows if row.value is not None}
        pairs, seed = rows[0].point.number(axis), rows[0].seed
        if rows[0].status is Status.DIVERGED:
            losses.setdefault(pairs, {}).setdefault(seed, math.inf)
        elif rows[0].status is Status.OK and "retrieval_loss" in values:
            losses.setdefault(pairs, {}).setdefault(seed, values["retrieval_loss"])
        else:
            words = "not measured" if rows[0].status is Status.OK else status_words(rows[0].status, "")
            lost.setdefault(words, set()).add((pairs, seed))
        widths += [values["feature_width"]] if "feature_width" in values else []
        ranks += [values["feature_rank"]] if "feature_rank" in values else []
    if not losses:
        return None
    runs = {pairs: tuple(seeds.values()) for pairs, seeds in losses.items()}
    return LinePoints(
        str(key[0]),
        tuple(map(setting_written, key)),
        {
            threshold: capacity_point({pairs: [loss <= threshold for loss in found] for pairs, found in runs.items()})
            for threshold in THRESHOLDS
        },
        max(widths, default=None),
        max(ranks, default=None),
        tuple(_lost_words(lost, losses, axis)),
        tuple(behind),
    )


def _lost_words(
    lost: Mapping[str, set[tuple[float, int]]], losses: Mapping[float, Mapping[int, float]], axis: str
) -> Iterator[str]:
    """How the attempts of seeds that have no run ended, and where, in the order of the axis."""
    without = {
        words: sorted(one for one in places if one[1] not in losses.get(one[0], ())) for words, places in lost.items()
    }
    for words, places in sorted(without.items(), key=lambda item: (item[1], item[0])):
        if places:
            listed = ", ".join(f"{setting_written(pairs)} (seed {seed})" for pairs, seed in places)
            yield f"{words} at {metric_words(axis)} {listed}"
