"""From statistics to tables as they are shown, the same for the page and the terminal: a line is a variant, each cell
a number with its spread, or the words that stand in its place.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from attnbench.harness.metrics import METRICS
from attnbench.harness.rows import Row
from attnbench.harness.spec import Setting
from attnbench.reports.numbers import setting_written, written
from attnbench.reports.published import Published, find
from attnbench.reports.tables import (
    FLOOR_FORM,
    NOT_SET,
    Floor,
    Layout,
    SuiteFacts,
    Summary,
    beaten_by_counting,
    column,
    compares_nothing,
    floors,
    frame,
    hardest,
    metric_words,
    order,
    summary,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Cell:
    """One place in a table. `text` is the number, or the short words instead of one; `words` says those in full.

    `lost` counts the attempts that gave no number where others did; `remark` adds to a number; `mark` says that it compares
    nothing. `attempts` stand behind it; a number that was not measured says its `source` instead.
    """

    metric: str
    text: str = "not run"
    value: float | None = None
    low: float | None = None
    high: float | None = None
    spread: str = ""
    spread_kind: str = ""
    n: int = 0
    counted: str = "seeds"
    words: tuple[str, ...] = ()
    lost: str = ""
    remark: str = ""
    mark: str = ""
    published: Published | None = None
    published_text: str = ""
    attempts: tuple[int, ...] = ()
    source: str = ""

    @property
    def has_failed(self) -> bool:
        """Whether an attempt stands behind the cell and gave no number."""
        return self.value is None and any(not word.startswith("not measured") for word in self.words)


@dataclass(frozen=True)
class Line:
    """One variant under one combination of the settings that tell lines apart; `remarks` are about all its cells."""

    variant: str
    labels: tuple[str, ...]
    cells: tuple[Cell, ...]
    is_floor: bool = False
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """Lines and columns of one metric along an axis, or of all metrics where the axis has one value."""

    title: str
    notes: tuple[str, ...]
    heads: tuple[str, ...]
    axis: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    usual_n: tuple[int, str] = (0, "")

    @cached_property
    def has_remarks(self) -> bool:
        """Whether any line needs a last column with words."""
        return any(line.remarks for line in self.lines)


# Share of the median that the spread of a timing may have before the cell says so: smaller differences are not told apart.
STEADY = 0.15


# What explains a number rather than being one. It stands where it explains something (`reports/passages.py`), and not in a
# table of its own along the axis, unless it is asked for by name.
EXPLANATIONS = frozenset({"feature_width", "feature_rank", "denominator_at_start", "denominator_at_end"})


def tables(
    rows: Sequence[Row], suite: SuiteFacts, numbers: Iterable[Published] = (), *, named: Collection[str] = ()
) -> tuple[Table, ...]:
    """The tables of one suite under one set of conditions, the headline first.

    Where the axis has several values, one table a metric with the axis as columns; else one table with the metrics as
    columns. `numbers` are published ones, shown where suite, variant, metric and all their settings fit. `named` are
    metrics that were asked for by name: the others get no table where they are EXPLANATIONS.
    """
    data = frame(rows)
    theirs = [one for one in numbers if one.suite == suite.name]
    axis_values = axis_values_of(data, suite.axis)
    is_along = len(axis_values) > 1
    metrics = [
        metric
        for metric in measured_metrics(rows, suite)
        if not is_along or metric not in EXPLANATIONS or metric in named
    ]
    sums = [summary(data, metric, suite.axis) for metric in metrics]
    if is_along:
        parts = (_along_axis(one, suite, theirs, axis_values) for one in sums)
        return tuple(_finished(part) for part in parts if part.lines)
    # what a variant has one number of stands in one table; what it has several of, one a phase say, would tear that apart
    parted = [[one for one in sums if _is_single(one) == single] for single in (True, False)]
    found = tuple(_by_metric(part, suite, theirs) for part in parted if part)
    if axis_values != [NOT_SET]:
        at = f"at {metric_words(suite.axis)} {setting_written(axis_values[0])}"
        titles = ("Every metric",) if len(found) == 1 else ("Metrics", "More metrics")
        found = tuple(replace(table, title=f"{title} {at}") for title, table in zip(titles, found, strict=True))
    return tuple(map(_finished, found))


def measured_metrics(rows: Iterable[Row], suite: SuiteFacts) -> tuple[str, ...]:
    """The suite's metrics in its order, then whatever else was measured; the headline even where nothing was."""
    seen = dict.fromkeys(row.metric for row in rows if row.metric)
    named = [metric for position, metric in enumerate(suite.metrics) if position == 0 or metric in seen]
    return (*named, *(metric for metric in seen if metric not in named))


def axis_values_of(data: "pd.DataFrame", axis: str) -> list[Setting]:
    """The values along the axis, sorted; those of counted floors alone do not count."""
    if column(axis) not in data:
        return [NOT_SET]
    models = data[data["form"] != FLOOR_FORM]
    return sorted(set((data if models.empty else models)[column(axis)]), key=order)


def cell_of(statistics: Mapping[str, Any], sums: Summary) -> Cell:
    """The cell that shows one median, or the words in its place."""
    failed: Mapping[str, int] = statistics["failed"]
    several = statistics["asked"] > 1
    words = tuple(f"{word} ({count} of {statistics['asked']})" if several else word for word, count in failed.items())
    lost: Counter[str] = Counter()
    for word, count in failed.items():
        lost[word.partition(":")[0]] += count
    if not statistics["n"]:
        return Cell(sums.metric, ", ".join(lost), words=words, attempts=statistics["attempts"])
    cell = Cell(
        sums.metric,
        written(statistics["median"], sums.unit),
        value=statistics["median"],
        n=statistics["n"],
        counted=statistics["counted"],
        words=words,
        lost=", ".join(f"{count} of {statistics['asked']} {word}" for word, count in lost.items()),
        attempts=statistics["attempts"],
    )
    if not statistics["spread"]:
        return cell
    low, high = statistics["low"], statistics["high"]
    ends = written(low, sums.unit), written(high, sums.unit)
    spread = "all equal" if low == high else f"{ends[0]} – {ends[1]}"
    return replace(
        cell, low=low, high=high, spread=spread, spread_kind=statistics["spread"], remark=_unsteady(cell, low, high)
    )


def _unsteady(cell: Cell, low: float, high: float) -> str:
    """That the rounds of a timing lie too far apart to tell small differences; else nothing."""
    if cell.counted != "samples" or not cell.value or high - low <= STEADY * abs(cell.value):
        return ""
    return f"unsteady: spread {(high - low) / abs(cell.value):.0%} of the median"


def capitalised(text: str) -> str:
    """The text with a capital letter in front; the rest as it is."""
    return text[:1].upper() + text[1:]


def metric_head(metric: str) -> str:
    """A metric as the head of a column, with its unit where its name does not say it."""
    words = metric_words(metric)
    unit = METRICS[metric].unit if metric in METRICS else ""
    is_said = any(word in words for word in (_SPELLED.get(unit, unit), unit.removesuffix("s")))
    return words if is_said else f"{words} ({unit})"


# units as the names of metrics spell them; a pure number and bytes, which carry theirs in each cell, say nothing
_SPELLED = {"1": "", "fraction": "", "B": "", "tokens/s": "tokens per second", "ms": "milliseconds", "s": "seconds"}


def _along_axis(
    sums: Summary, suite: SuiteFacts, numbers: Sequence[Published], axis_values: Sequence[Setting]
) -> Table:
    summed = list(sums.lines())
    counted = floors(summed, sums.better)
    theirs = [one for one in numbers if one.metric == sums.metric]
    asked = [at for at in axis_values if any(at in line.cells for line in summed)]
    lines = []
    for line in summed:
        cells = []
        of_variant = [one for one in theirs if one.variant == line.key[0]]
        for at in asked:
            cell = cell_of(line.cells[at], sums) if at in line.cells else Cell(sums.metric)
            cell = _beside_published(
                cell, find(of_variant, suite.name, line.key[0], sums.metric, sums.point(line, at)), sums
            )
            cells.append(cell if line.is_floor else _marked(cell, counted.get(at, counted.get(NOT_SET)), sums.better))
        lines.append(Line(line.key[0], _labels(line.key), tuple(cells), line.is_floor))
    notes = (*_metric_notes(sums.metric), *_settings_notes(sums.layout, sums.axis))
    return Table(
        capitalised(metric_head(sums.metric)),
        notes,
        sums.by,
        sums.axis,
        tuple(map(setting_written, asked)),
        tuple(lines),
    )


def _is_single(sums: Summary) -> bool:
    """Whether every variant has one line of the metric."""
    return max(Counter(line.key[0] for line in sums.lines()).values(), default=1) == 1


def _by_metric(all_sums: Sequence[Summary], suite: SuiteFacts, numbers: Sequence[Published]) -> Table:
    """One line for each variant where every metric has one for it; else one for each combination that varies."""
    varying = tuple(dict.fromkeys(name for sums in all_sums for name in sums.by[1:]))
    is_single = all(map(_is_single, all_sums))
    cells: dict[tuple[Any, ...], dict[str, Cell]] = {}
    labels: dict[tuple[Any, ...], dict[str, list[str]]] = {}
    floor_keys: set[tuple[Any, ...]] = set()
    for sums in all_sums:
        summed = list(sums.lines())
        floor = hardest(floors(summed, sums.better).values(), sums.better)
        for line in summed:
            at, statistics = next(iter(line.cells.items()))
            point = sums.point(line, at)
            values = tuple(setting_written(point.get(name, NOT_SET)) for name in varying)
            key = (line.key[0],) if is_single else (line.key[0], *values)
            cell = _beside_published(
                cell_of(statistics, sums), find(numbers, suite.name, line.key[0], sums.metric, point), sums
            )
            cells.setdefault(key, {})[sums.metric] = cell if line.is_floor else _marked(cell, floor, sums.better)
            for name, value in zip(varying, values, strict=True):
                labels.setdefault(key, {}).setdefault(name, []).append(value)
            if line.is_floor:
                floor_keys.add(key)
    lines = []
    for key in sorted(cells, key=lambda key: (key in floor_keys, *map(order, key))):
        label = (key[0], *(", ".join(dict.fromkeys(labels[key][name])) for name in varying))
        row = tuple(cells[key].get(sums.metric, Cell(sums.metric, "not measured")) for sums in all_sums)
        lines.append(_with_remarks(Line(key[0], label, row, key in floor_keys)))
    notes = dict.fromkeys(note for sums in all_sums for note in _settings_notes(_shared(all_sums), sums.axis))
    heads = ("variant", *varying)
    return Table(
        suite.title, tuple(notes), heads, "", tuple(metric_head(sums.metric) for sums in all_sums), tuple(lines)
    )


def _shared(all_sums: Sequence[Summary]) -> Layout:
    """The settings that are the same everywhere, for every metric."""
    first, *others = (sums.layout.constant for sums in all_sums)
    same = {name: value for name, value in first.items() if all(one.get(name) == value for one in others)}
    return Layout(same, {}, ())


def _labels(key: Sequence[Any]) -> tuple[str, ...]:
    return (str(key[0]), *map(setting_written, key[1:]))


def _marked(cell: Cell, floor: Floor | None, better: str) -> Cell:
    if cell.value is None:
        return cell
    mark = compares_nothing(cell.value, cell.metric) or beaten_by_counting(cell.value, floor, better)
    return replace(cell, mark=mark)


def _beside_published(cell: Cell, theirs: Published | None, sums: Summary) -> Cell:
    if theirs is None:
        return cell
    text = f"above {theirs.value:g}" if theirs.is_bound else written(theirs.value, sums.unit)
    return replace(cell, published=theirs, published_text=text)


def _with_remarks(line: Line) -> Line:
    """The line with each failure and mark of its cells said once, in full."""
    words = (word for cell in line.cells for word in (*cell.words, cell.mark) if word and word != "not measured")
    return replace(line, remarks=tuple(dict.fromkeys(words)))


def _finished(table: Table) -> Table:
    """The table with notes on what its numbers are; the cells say n only where it is not the usual one."""
    models = [line for line in table.lines if not line.is_floor] or table.lines
    cells = [cell for line in models for cell in line.cells if cell.value is not None]
    counts = Counter((cell.n, cell.counted) for cell in cells)
    usual = max(counts, key=lambda count: (counts[count], count), default=(0, ""))
    return replace(table, notes=(*_count_notes(cells, usual), *table.notes, *_sources(table)), usual_n=usual)


def _count_notes(cells: Sequence[Cell], usual: tuple[int, str]) -> tuple[str, ...]:
    if not cells:
        return ()
    n, counted = usual
    said = f"Median of {n} {counted}" if n > 1 else f"One {counted.removesuffix('s')}"
    if any((cell.n, cell.counted) != usual for cell in cells):
        said += ", unless the cell says n"
    kinds = sorted({cell.spread_kind for cell in cells if cell.spread_kind})
    if len(kinds) == 1:
        return (f"{said}; below it {kinds[0]}",)
    return (f"{said}; below it interquartile range, or min–max where n < 4",) if kinds else (f"{said}, so no spread",)


def _sources(table: Table) -> tuple[str, ...]:
    """Where the published numbers beside the measured ones are from, each remark once."""
    remarks: dict[str, dict[str, None]] = {}
    for one in (cell.published for line in table.lines for cell in line.cells if cell.published):
        remarks.setdefault(one.source, {}).update(dict.fromkeys(one.note.split("; ")))
    return tuple(f"Published: {source}, {'; '.join(notes)}" for source, notes in remarks.items())


def _metric_notes(metric: str) -> tuple[str, ...]:
    known = METRICS.get(metric)
    if known is None:
        return ()
    direction = "" if known.better == "neither" else f"{known.better.capitalize()} is better. "
    return (f"{direction}{known.definition.rstrip('.')}",)


def _settings_notes(plan: Layout, axis: str) -> tuple[str, ...]:
    notes = []
    if plan.constant:
        parts = (f"{metric_words(name)} {setting_written(value)}" for name, value in plan.constant.items())
        notes.append(f"The same everywhere: {', '.join(parts)}")
    for name, values in plan.along_axis.items():
        steps = ", ".join(f"{setting_written(value)} at {setting_written(at)}" for at, value in values.items())
        notes.append(f"{metric_words(name).capitalize()} goes with {metric_words(axis)}: {steps}")
    return tuple(notes)
