"""The summary: variants down, one headline a suite across. How far a memory reaches, or a number where the axis ends."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from attnbench.harness.rows import Row
from attnbench.harness.spec import Setting
from attnbench.reports.grids import Cell, Line, Table, cell_of, measured_metrics
from attnbench.reports.numbers import setting_written
from attnbench.reports.tables import (
    RETRIEVES,
    Conditions,
    Floor,
    SuiteFacts,
    Summary,
    SummaryLine,
    beaten_by_counting,
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
class Part:
    """The rows of one suite under one set of conditions."""

    suite: SuiteFacts
    conditions: Conditions
    rows: Sequence[Row]

    @cached_property
    def data(self) -> "pd.DataFrame":
        """The rows as a frame."""
        return frame(self.rows)


@dataclass(frozen=True)
class Headline:
    """One column of the board: what it says, and the cell of each variant that the suite asked."""

    part: Part
    says: str
    better: str
    cells: dict[str, Cell]


def board(parts: Sequence[Part]) -> tuple[tuple[str, ...], tuple[Headline, ...]]:
    """The variants, in reading order, and the headline of each part. Counted floors are no variants."""
    headlines = tuple(headline(part) for part in parts)
    return tuple(sorted({name for one in headlines for name in one.cells}, key=order)), headlines


def board_table(variants: Sequence[str], headlines: Sequence[Headline]) -> Table:
    """The board as a table like the others."""
    suites = Counter(one.part.suite.name for one in headlines)
    columns = tuple(
        f"{one.part.suite.title}: {one.says}" + (f", {one.part.conditions}" if suites[one.part.suite.name] > 1 else "")
        for one in headlines
    )
    lines = tuple(
        Line(variant, (variant,), tuple(replace(one.cells.get(variant, Cell("")), n=0) for one in headlines))
        for variant in variants
    )
    return Table("Summary", (), ("variant",), "", columns, lines)


def headline(part: Part) -> Headline:
    """The column of one part: the reach along the axis for a retrieval loss, else the number at the axis' far end.

    Where a variant has several lines (forms, settings), the best of them stands for it and is named.
    """
    metric = measured_metrics(part.rows, part.suite)[0]
    sums = summary(part.data, metric, part.suite.axis)
    summed = list(sums.lines())
    lines = [line for line in summed if not line.is_floor]
    axis_values = sorted({at for line in lines for at in line.cells}, key=order)
    axis, name = metric_words(sums.axis), metric_words(metric)
    better = next((row.better for row in part.rows if row.metric == metric), "neither")
    reaches = metric == "retrieval_loss" and len(axis_values) > 1
    if reaches:
        says, better = f"{axis} still retrieved (loss ≤ {RETRIEVES:g})", "higher"
        found = [(line, _reach(line, sums, axis_values)) for line in lines]
    else:
        far = axis_values[-1] if axis_values else ""
        says = f"{name} at {axis} {setting_written(far)}"
        counted = floors(summed, better)
        floor = counted.get(far, hardest(counted.values(), better))
        found = [(line, _at(line, sums, far, floor)) for line in lines]
    cells: dict[str, Cell] = {}
    for variant in dict.fromkeys(str(line.key[0]) for line in lines):
        theirs = [(line, cell) for line, cell in found if line.key[0] == variant]
        line, cell = min(theirs, key=lambda pair: _rank(pair[1], better))
        if len(theirs) > 1:
            chosen = (_named(name, value) for name, value in zip(sums.by[1:], line.key[1:], strict=True))
            cell = replace(cell, remark=", ".join(filter(None, (*chosen, cell.remark))))
        cells[variant] = cell
    return Headline(part, says, better, cells)


def _named(setting: str, value: Setting) -> str:
    """A setting in words: "protocol code"; the name of a form speaks for itself."""
    return setting_written(value) if setting == "form" else f"{metric_words(setting)} {setting_written(value)}"


def _reach(line: SummaryLine, sums: Summary, axis_values: Sequence[Setting]) -> Cell:
    """How far along the axis every loss is small enough; a failure on the way ends it."""
    reached: Setting | None = None
    for at in axis_values:
        cell = line.cells.get(at)
        if cell is None:
            continue
        if not cell["n"] and reached is None:
            return cell_of(cell, sums)
        if not cell["n"] or cell["median"] > RETRIEVES:
            break
        reached = at
    asked = sorted(line.cells, key=order)
    attempts = tuple(number for cell in line.cells.values() for number in cell["attempts"])
    if reached is None:
        return Cell(sums.metric, f"below {setting_written(asked[0])}", value=0.0, attempts=attempts)
    value = float(reached) if isinstance(reached, int | float) else 0.0
    remark = "all that was asked" if reached == asked[-1] else ""
    return Cell(sums.metric, setting_written(reached), value=value, remark=remark, attempts=attempts)


def _at(line: SummaryLine, sums: Summary, far: Setting, floor: Floor | None) -> Cell:
    if far not in line.cells:
        return Cell(sums.metric)
    cell = cell_of(line.cells[far], sums)
    return cell if cell.value is None else replace(cell, mark=beaten_by_counting(cell.value, floor, sums.better))


def _rank(cell: Cell, better: str) -> tuple[bool, float]:
    if cell.value is None:
        return (True, 0.0)
    return (False, -cell.value if better == "higher" else cell.value)
