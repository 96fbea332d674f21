"""How many pairs fit: capacity curves with the published ones behind them, capacity points, learning curves, the released runs."""

import math

from attnbench.reports.against import against_passage
from attnbench.reports.board import Part
from attnbench.reports.capacity_passage import capacity_passage, capacity_table
from attnbench.reports.capacity_points import THRESHOLDS, LinePoints, points_of_lines
from attnbench.reports.denominators import denominators_passage
from attnbench.reports.figures import Plan
from attnbench.reports.learning_curves import learning_passage
from attnbench.reports.passage import Passage
from attnbench.reports.section import Material, Measure, Reading, Readings, SuiteSection
from attnbench.reports.tables import metric_words


def passages(given: Material) -> tuple[Passage, ...]:
    """Points, denominators, learning curves, and the released runs beside ours."""
    return (
        *capacity_passage(given.rows, given.suite, given.looks, given.prefix),
        *denominators_passage(given.rows, given.suite),
        *learning_passage(given.rows, given.suite, given.looks, given.curves, given.prefix),
        *against_passage(given.rows, given.suite, given.looks, given.prefix),
    )


def capacity(part: Part) -> Readings | None:
    """The capacity points of the settings that most variants have; None where fewer than two numbers of pairs were asked."""
    if len({row.point[part.suite.axis] for row in part.rows if part.suite.axis in row.point}) < 2:
        return None
    varying, lines = points_of_lines(part.rows, part.suite)
    groups: dict[tuple[str, ...], list[LinePoints]] = {}
    for line in lines:
        groups.setdefault(line.labels[1:], []).append(line)
    if not groups:
        return None
    labels = max(groups, key=lambda key: len(groups[key]))
    settings = (f"{metric_words(name)} {value}" for name, value in zip(varying, labels, strict=True))
    threshold = THRESHOLDS[0]
    says = ", ".join(
        (f"{metric_words(part.suite.axis)} at which half of the runs retrieve (loss ≤ {threshold:g})", *settings)
    )
    return Readings(says, "higher", "1", {line.variant: _reading(line, threshold) for line in groups[labels]})


def _reading(line: LinePoints, threshold: float) -> Reading:
    point = line.points[threshold]

    def inside(pairs: float | None) -> float | None:
        return None if pairs is None else min(max(pairs, point.first), point.last)

    beyond = 0 if math.isfinite(point.at) else 1 if point.at > 0 else -1
    return Reading(point.drawn_at, inside(point.low), inside(point.high), point.runs, beyond, line.attempts)


SECTION = SuiteSection(
    "capacity",
    0,
    Plan(x="linear", y="linear"),
    passages,
    capacity_table,
    (Measure("capacity", "quality", "capacity (pairs)", "retrieval_loss", capacity),),
    needs_curves=True,
)
