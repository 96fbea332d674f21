"""How numbers moved from run to run: each suite's headline, as the ratio to the first run that has the same case.

A variant's number in a run is the geometric mean of that ratio over its cases there. What only one run has is no trend.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from attnbench.harness.rows import Row, Status
from attnbench.reports.drawing import Curve, Scales, curves_drawn
from attnbench.reports.figures import Figure, svg_text
from attnbench.reports.grids import Cell, Line, Table, measured_metrics
from attnbench.reports.palette import Look
from attnbench.reports.passage import Passage
from attnbench.reports.provenance import RunFacts
from attnbench.reports.section import SuiteSection
from attnbench.reports.sections import section_of
from attnbench.reports.tables import FLOOR_FORM, SuiteFacts, metric_words, order

Case = tuple[object, ...]


@dataclass(frozen=True)
class Moved:
    """A variant's mean ratio in one run, over how many cases, and the attempts behind it."""

    ratio: float
    cases: int
    attempts: tuple[int, ...]


def trends(
    rows: Sequence[Row], suites: Sequence[SuiteFacts], runs: Sequence[RunFacts], looks: Mapping[str, Look]
) -> tuple[Passage, ...]:
    """A passage for each suite that has a case in two runs. `rows` are all attempts, not only the newest."""

    def place(suite: SuiteFacts) -> tuple[int, str]:
        section: SuiteSection = section_of(suite.name)
        return section.place, suite.name

    found = []
    for suite in sorted(suites, key=place):
        theirs = [row for row in rows if row.suite == suite.name]
        metric = measured_metrics(theirs, suite)[0] if theirs else ""
        moved = moved_by_run(theirs, metric, runs)
        if moved:
            found.append(_passage(suite, metric, moved, runs, looks))
    return tuple(found)


def moved_by_run(rows: Iterable[Row], metric: str, runs: Sequence[RunFacts]) -> dict[str, dict[str, Moved]]:
    """Variant -> run -> its mean ratio, for the cases that two runs or more have with a number above zero."""
    values: dict[Case, dict[str, list[Row]]] = {}
    for row in rows:
        if row.metric == metric and row.status is Status.OK and row.value and row.value > 0 and row.form != FLOOR_FORM:
            values.setdefault(_case(row), {}).setdefault(row.run_id, []).append(row)
    listed = [run.id for run in sorted(runs, key=lambda run: (run.started_at, run.id))]
    found: dict[str, dict[str, list[tuple[float, list[Row]]]]] = {}
    for by_run in values.values():
        order_of_runs = [name for name in listed if name in by_run]
        if len(order_of_runs) < 2:
            continue
        first = _middle(by_run[order_of_runs[0]])
        for name in order_of_runs:
            ratios = found.setdefault(by_run[name][0].variant, {}).setdefault(name, [])
            ratios.append((_middle(by_run[name]) / first, by_run[name]))
    return {
        variant: {
            name: Moved(
                math.exp(fmean(math.log(ratio) for ratio, _ in ratios)),
                len(ratios),
                tuple(row.attempt_id for _, behind in ratios for row in behind),
            )
            for name, ratios in by_run.items()
        }
        for variant, by_run in sorted(found.items(), key=lambda item: order(item[0]))
    }


def _case(row: Row) -> Case:
    return (row.variant, row.form, row.point.json(), row.scale, row.device, row.testbed, row.threads, row.data_hash)


def _middle(rows: Sequence[Row]) -> float:
    return median(row.value for row in rows if row.value is not None)


def _passage(
    suite: SuiteFacts,
    metric: str,
    moved: Mapping[str, Mapping[str, Moved]],
    runs: Sequence[RunFacts],
    looks: Mapping[str, Look],
) -> Passage:
    shown = [
        run
        for run in sorted(runs, key=lambda run: (run.started_at, run.id))
        if any(run.id in one for one in moved.values())
    ]
    places = {run.id: number for number, run in enumerate(shown, start=1)}
    curves = [
        Curve(
            variant,
            variant,
            looks[variant],
            tuple(float(places[name]) for name in by_run),
            tuple(one.ratio for one in by_run.values()),
        )
        for variant, by_run in moved.items()
    ]
    title = f"{suite.title}: {metric_words(metric)} from run to run"
    scales = Scales("linear", "linear", "run, the oldest first", "ratio to the first run", "1")
    ends = (f"{curve.label} {curve.ys[-1]:.3g}" for curve in curves)
    alt = f"{title}, as the ratio to the first run of each case. The last: {'; '.join(ends)}."
    svg = svg_text(lambda: curves_drawn(curves, scales), f"trend-{suite.name}", alt)
    columns = tuple(
        f"{places[run.id]}: {run.started_at:%Y-%m-%d %H:%M}, {run.commit[:7] or 'no commit'}" for run in shown
    )
    lines = tuple(
        Line(variant, (variant,), tuple(_cell(by_run.get(run.id), metric) for run in shown))
        for variant, by_run in moved.items()
    )
    notes = (
        "The geometric mean over the cases that two runs or more have of the ratio to the first of them; n counts cases",
    )
    table = Table(f"Runs of {suite.title}", notes, ("variant",), "", columns, lines)
    caption = (
        "One is where the first run of each case stands. How far numbers scatter by themselves is in each run's page."
    )
    return Passage(title, (), (table,), (Figure(metric, title, svg, alt, caption),))


def _cell(moved: Moved | None, metric: str) -> Cell:
    if moved is None:
        return Cell(metric)
    return Cell(
        metric, f"{moved.ratio:.3g}", value=moved.ratio, n=moved.cases, counted="cases", attempts=moved.attempts
    )
