"""The capacity points as they are shown: a table of them, and a figure beside what the features offer."""

import math
from collections.abc import Mapping, Sequence

from attnbench.harness.rows import Row
from attnbench.reports.capacity_points import (
    SEEDS_FOR_AN_INTERVAL,
    THRESHOLDS,
    CapacityPoint,
    LinePoints,
    points_of_lines,
)
from attnbench.reports.figures import MOST_LINES, Figure, svg_text
from attnbench.reports.grids import Cell, Line, Table
from attnbench.reports.numbers import setting_written
from attnbench.reports.palette import Look
from attnbench.reports.panels import Interval, intervals_drawn
from attnbench.reports.passage import Passage
from attnbench.reports.tables import NOT_SET, SuiteFacts, metric_words

# With fewer numbers of pairs the table of losses says as much.
_FEWEST_ASKED = 3
_TITLE = "Capacity points"
_TABLE_TITLE = "Pairs at which half of the runs retrieve"


def capacity_passage(
    rows: Sequence[Row], suite: SuiteFacts, looks: Mapping[str, Look], prefix: str
) -> tuple[Passage, ...]:
    """The capacity points of one suite under one set of conditions; nothing where fewer than three S were asked."""
    found = _found(rows, suite)
    if found is None:
        return ()
    varying, lines = found
    return (Passage(_TITLE, (), (_table(varying, lines, suite),), (_figure(lines, suite, looks, prefix),)),)


def capacity_table(rows: Sequence[Row], suite: SuiteFacts) -> Table | None:
    """The table of capacity points, or None where fewer than three numbers of pairs were asked."""
    found = _found(rows, suite)
    return None if found is None else _table(*found, suite)


def _found(rows: Sequence[Row], suite: SuiteFacts) -> tuple[tuple[str, ...], tuple[LinePoints, ...]] | None:
    if len({row.point[suite.axis] for row in rows if suite.axis in row.point}) < _FEWEST_ASKED:
        return None
    varying, lines = points_of_lines(rows, suite)
    return (varying, lines) if lines else None


def _table(varying: Sequence[str], lines: Sequence[LinePoints], suite: SuiteFacts) -> Table:
    axis = metric_words(suite.axis)
    shown = tuple(map(_shown, lines))
    counts = [cell.n for line in shown for cell in line.cells if cell.n]
    usual = (max(set(counts), key=lambda n: (counts.count(n), n)), "seeds")
    return Table(
        _TABLE_TITLE,
        _notes(lines, axis, usual[0]),
        ("variant", *varying),
        "",
        (
            *(f"{axis}, loss ≤ {threshold:g}" for threshold in THRESHOLDS),
            "feature width d_dot",
            "rank that the features span",
        ),
        shown,
        usual,
    )


def _notes(lines: Sequence[LinePoints], axis: str, usual: int) -> tuple[str, ...]:
    notes = [
        f"The number of {axis} at which half of the runs retrieve, by a logistic fit to the fraction that do; a run "
        "retrieves if its best loss is at most the threshold, and one that diverged does not",
        "< and >: below the smallest or above the largest number that was asked",
    ]
    if any(point.low is not None for line in lines for point in line.points.values()):
        notes.append(
            "Below a point its 95 % interval, a bootstrap over the seeds of each number, taken outward to the next that "
            "was asked; with few seeds it is coarse, and sees no doubt at a number where all of them end alike"
        )
    if any(point.low is None for line in lines for point in line.points.values()):
        notes.append(f"No interval where fewer than {SEEDS_FOR_AN_INTERVAL} seeds ran beside the point")
    notes.append(f"{usual} {'seed' if usual == 1 else 'seeds'}, unless the cell says n")
    if any(line.feature_width is not None for line in lines):
        notes.append(
            "d_dot is the width of the features, the rank how many directions they really span, both computed by the "
            "case: the memory has room for no more orthogonal keys"
        )
        if any(line.feature_width is None for line in lines):
            notes.append(f"{NOT_SET}: a memory that keeps every pair (softmax) has no features to count")
    return tuple(notes)


def _shown(line: LinePoints) -> Line:
    cells = [
        *(_point_cell(point, line.attempts) for point in line.points.values()),
        _number_cell("feature_width", line.feature_width, line.attempts),
        _number_cell("feature_rank", line.feature_rank, line.attempts),
    ]
    return Line(line.variant, line.labels, tuple(cells), remarks=tuple(f"no run: {words}" for words in line.left_out))


def _point_cell(point: CapacityPoint, attempts: tuple[int, ...]) -> Cell:
    return Cell(
        "capacity_point",
        point.text,
        value=point.drawn_at,
        spread=point.interval_text if point.interval_text != point.text else "",
        n=point.runs,
        attempts=attempts,
    )


def _number_cell(metric: str, value: float | None, attempts: tuple[int, ...]) -> Cell:
    if value is None:
        return Cell(metric, NOT_SET)
    return Cell(metric, setting_written(value), value=value, attempts=attempts)


def _figure(lines: Sequence[LinePoints], suite: SuiteFacts, looks: Mapping[str, Look], prefix: str) -> Figure:
    threshold = THRESHOLDS[0]
    title = f"Capacity points, loss ≤ {threshold:g}"
    most = sorted(lines, key=lambda line: -line.points[threshold].at)[:MOST_LINES]
    drawn = [_interval(line, line.points[threshold], looks) for line in lines if line in most]
    points = [line.points[threshold] for line in lines]
    ends = (min(point.first for point in points), max(point.last for point in points))
    said = [f"{', '.join(line.labels)} {line.points[threshold].text}" for line in lines]
    alt = f"{title}: {'; '.join(said)}. Higher is better."
    head = f"{metric_words(suite.axis)}, and directions"
    svg = svg_text(lambda: intervals_drawn(drawn, head, ends), f"{prefix}-capacity-points", alt)
    caption = "Shaded: the numbers of pairs that were asked. An arrow: the point lies beyond them."
    if len(drawn) < len(lines):
        caption += f" Drawn: {len(drawn)} of {len(lines)} lines, the largest; the table has all."
    # a point beyond the last S that was asked may lie anywhere
    ranked = [
        (line.points[threshold].at, line.feature_rank)
        for line in lines
        if line.feature_rank is not None and line.points[threshold].at < math.inf
    ]
    if ranked:
        within = sum(at <= rank for at, rank in ranked)
        caption += (
            " A sum of features holds at most as many orthogonal keys as their rank: "
            f"{within} of {len(ranked)} points lie at or left of it."
        )
    return Figure("capacity_point", title, svg, alt, caption)


def _interval(line: LinePoints, point: CapacityPoint, looks: Mapping[str, Look]) -> Interval:
    def inside(pairs: float | None) -> float | None:
        return None if pairs is None else min(max(pairs, point.first), point.last)

    offered = {"rank of the features": line.feature_rank, "feature width d_dot": line.feature_width}
    return Interval(
        ", ".join(line.labels),
        looks[line.variant],
        point.drawn_at,
        inside(point.low),
        inside(point.high),
        (point.at > point.last) - (point.at < point.first),
        {name: value for name, value in offered.items() if value},
    )
