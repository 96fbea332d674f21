"""Cost curves as they are shown: a table of exponents and crossover lengths."""

from collections.abc import Mapping, Sequence

from attnbench.harness.rows import Row
from attnbench.harness.spec import Setting
from attnbench.reports.cost_curves import (
    SOFTMAX,
    CostCurve,
    crossover,
    crossover_written,
    curves_of,
    exponent,
    fastest,
    interval_written,
)
from attnbench.reports.grids import Cell, Line, Table
from attnbench.reports.numbers import setting_written
from attnbench.reports.passage import Passage
from attnbench.reports.tables import NOT_SET, SuiteFacts, metric_words

_TITLE = "What longer texts cost"
_TABLE_TITLE = "Growth with the text, and where softmax is overtaken"


def cost_passage(rows: Sequence[Row], suite: SuiteFacts) -> tuple[Passage, ...]:
    """Exponents and crossovers of a suite of timings under one set of conditions; nothing where fewer than two lengths were timed."""
    table = cost_table(rows, suite)
    return () if table is None else (Passage(_TITLE, (), (table,)),)


def cost_table(rows: Sequence[Row], suite: SuiteFacts) -> Table | None:
    """The table, or None where no variant was timed at two lengths."""
    curves = curves_of(rows, suite.axis)
    if not curves:
        return None
    places: dict[tuple[object, ...], list[CostCurve]] = {}
    for curve in curves:
        places.setdefault((curve.metric, curve.settings), []).append(curve)
    varying = _varying([dict(curve.settings) for curve in curves])
    lines = []
    for theirs in places.values():
        softmax = fastest([one for one in theirs if one.variant == SOFTMAX])
        lines += [_line(one, softmax, varying) for one in sorted(theirs, key=lambda one: (one.variant, one.form))]
    notes = (
        "Cost exponent: slope of log time against log T, over the lengths from an eighth of the longest up; 1 is linear, 2 "
        "quadratic. In decoding the time of one token behind T others",
        f"Faster than softmax from: the length from which on the variant takes less time than {SOFTMAX} in its fastest form "
        "at all longer lengths, interpolated in logarithms between two that were timed",
        "Below a number its 95 % interval, a bootstrap over rounds",
    )
    return Table(
        _TABLE_TITLE,
        notes,
        ("variant", "form", "metric", *varying),
        "",
        ("cost exponent", "faster than softmax from"),
        tuple(lines),
    )


def _varying(settings: Sequence[Mapping[str, Setting]]) -> tuple[str, ...]:
    """The settings that tell curves apart beside the metric, which the phase goes along with."""
    names = dict.fromkeys(name for one in settings for name in one)
    return tuple(name for name in names if name != "phase" and len({one.get(name) for one in settings}) > 1)


def _line(curve: CostCurve, softmax: CostCurve | None, varying: Sequence[str]) -> Line:
    settings = dict(curve.settings)
    grown = exponent(curve)
    spread = "" if grown.low is None or grown.high is None else f"{grown.low:.2f} – {grown.high:.2f}"
    labels = (
        curve.variant,
        curve.form,
        metric_words(curve.metric),
        *(setting_written(settings.get(name, NOT_SET)) for name in varying),
    )
    cells = (
        Cell("cost_exponent", f"{grown.at:.2f}", value=grown.at, spread=spread, attempts=curve.attempts),
        _crossover_cell(curve, softmax),
    )
    return Line(curve.variant, labels, cells)


def _crossover_cell(curve: CostCurve, softmax: CostCurve | None) -> Cell:
    if softmax is None or curve.variant == SOFTMAX:
        return Cell("crossover", NOT_SET)
    found = crossover(curve, softmax)
    if found is None:
        return Cell("crossover", "not measured")
    lengths = [length for length in curve.seconds if length in softmax.seconds]
    return Cell(
        "crossover",
        crossover_written(found, lengths),
        value=found.at,
        spread=interval_written(found, lengths),
        attempts=(*curve.attempts, *softmax.attempts),
    )
