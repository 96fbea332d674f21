"""The published tables of perplexities and of BLEU, with what was measured here beside each line, whatever its text and size.

Another text or size gives another number: the two columns are read for their order, and the table says what differs.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from attnbench.harness.metrics import METRICS
from attnbench.harness.rows import Row, Status
from attnbench.harness.spec import Point
from attnbench.reports.grids import Cell, Line, Table, capitalised, metric_head
from attnbench.reports.numbers import setting_written, written
from attnbench.reports.passage import Passage, ending_cell
from attnbench.reports.published import Published
from attnbench.reports.published.protocol import differences
from attnbench.reports.tables import FLOOR_FORM, SuiteFacts, metric_words, order

_TITLE = "Beside the published tables"
# settings that make it another number, in the order in which they are told
_TOLD = ("data", "tokeniser", "vocabulary", "width", "layers", "context", "steps")
_METRICS = ("validation_word_perplexity", "word_perplexity", "validation_bleu", "bleu")


def beside_passage(rows: Sequence[Row], suite: SuiteFacts, numbers: Sequence[Published]) -> tuple[Passage, ...]:
    """The published tables that have a variant which was measured here; nothing without any."""
    models = [row for row in rows if row.form != FLOOR_FORM]
    tables: dict[str, list[Published]] = {}
    for one in numbers:
        if one.suite == suite.name and one.table and one.metric in _METRICS:
            tables.setdefault(one.table, []).append(one)
    shown = tuple(table for name, theirs in tables.items() if (table := _table(name, theirs, models)) is not None)
    return (Passage(_TITLE, (), shown, open_tables=1),) if shown else ()


def _table(name: str, theirs: Sequence[Published], rows: Sequence[Row]) -> Table | None:
    keys = list(dict.fromkeys((one.variant, one.own) for one in theirs))
    if not {variant for variant, _ in keys} & {row.variant for row in rows}:
        return None
    metrics = [metric for metric in _METRICS if any(one.metric == metric for one in theirs)]
    found = {(one.variant, one.own, one.metric): one for one in theirs}
    settings = list(dict.fromkeys(setting for _, own in keys for setting in own))
    lines = []
    differing: dict[str, str] = {}
    for variant, own in keys:
        measured = _measured(variant, own, rows)
        cells = [cell for metric in metrics for cell in _pair(found.get((variant, own, metric)), measured, metric)]
        labels = (variant, *(setting_written(own.get(setting, "–")) for setting in settings))
        lines.append(Line(variant, labels, tuple(cells)))
        if measured:
            differing |= dict(_told(found[variant, own, metrics[0]].point, measured[0].point))
    columns = [f"{metric_words(metric)}, {where}" for metric in metrics for where in ("published", "here")]
    return Table(name, tuple(_notes(theirs, differing)), ("variant", *settings), "", tuple(columns), tuple(lines))


def _notes(theirs: Sequence[Published], differing: Mapping[str, str]) -> Iterator[str]:
    yield f"Published: {theirs[0].source}, {theirs[0].note}"
    if differing:
        yield f"Here {', '.join(differing.values())}: read the order, not the numbers"
    else:
        yield "Here the settings are those of the publication"
    better, head = METRICS[theirs[0].metric].better, capitalised(metric_head(theirs[0].metric))
    yield f"{head}: {better} is better; of several seeds here the median, below it the range"


def _told(published: Point, ours: Point) -> Iterator[tuple[str, str]]:
    """What differs from the published settings, in words, as far as it decides a perplexity."""
    names = differences(published, ours)
    for name in _TOLD:
        if name in names and name in ours:
            yield name, f"{metric_words(name)} {setting_written(ours[name])} (not {setting_written(published[name])})"


def _measured(variant: str, own: Point, rows: Sequence[Row]) -> list[Row]:
    """The rows of a variant with these settings; where others vary, those of the settings with most numbers."""
    fitting = [row for row in rows if row.variant == variant and not differences(own, row.point)]
    points: dict[str, list[Row]] = {}
    for row in fitting:
        points.setdefault(row.point.json(), []).append(row)
    return max(points.values(), key=len, default=[])


def _pair(theirs: Published | None, rows: Sequence[Row], metric: str) -> Iterator[Cell]:
    if theirs is None:
        yield Cell(metric, "not published")
    else:
        text = f"above {theirs.value:g}" if theirs.is_bound else written(theirs.value, "1")
        yield Cell(metric, text, value=theirs.value, source=theirs.citation)
    values = {row.attempt_id: row.value for row in rows if row.metric == metric and row.status is Status.OK}
    numbers = sorted((value for value in values.values() if value is not None), key=order)
    if not numbers:
        yield ending_cell(metric, rows)
        return
    middle = median(numbers)
    ends = (written(numbers[0], "1"), written(numbers[-1], "1"))
    spread = " – ".join(ends) if len(numbers) > 1 else ""
    yield Cell(metric, written(middle, "1"), value=middle, spread=spread, n=len(numbers), attempts=tuple(values))
