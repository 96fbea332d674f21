"""The tables in a terminal: the same as on the page, one after another."""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from attnbench.harness.errors import UnknownMetric, UnknownScale, UnknownSuite, UnknownVariant
from attnbench.harness.metrics import metric
from attnbench.harness.rows import Row
from attnbench.reports.board import board, board_table
from attnbench.reports.choice import check_names
from attnbench.reports.failures import failures_of
from attnbench.reports.grids import Cell, Table, tables
from attnbench.reports.measured import RunOrigin, origins
from attnbench.reports.parts import parts_of
from attnbench.reports.published import Published, published
from attnbench.reports.sections import section_of
from attnbench.reports.tables import SuiteFacts, metric_words, mixtures

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


class Reader(Protocol):
    """A store, as far as it is read here."""

    def rows(self) -> list[Row]:
        """The newest attempt of each case, flat."""

    def suites(self) -> Sequence[SuiteFacts]:
        """The suites that the database knows."""


def show(
    store: Reader,
    console: "Console",
    *,
    suites: Collection[str] | None = None,
    variants: Collection[str] | None = None,
    scales: Collection[str] | None = None,
    metrics: Collection[str] | None = None,
    runs: Iterable[RunOrigin] = (),
) -> None:
    """Print the summary and the tables of what is stored, of the chosen alone where any are named.

    `runs` say where shipped rows are from, if the store gives any (`reports/measured`).
    Raises UnknownSuite, UnknownVariant, UnknownScale or UnknownMetric for a name that nothing stored has.
    """
    facts = store.suites()
    stored = store.rows()
    check_names(suites, {one.name for one in facts}, "suite", UnknownSuite)
    check_names(variants, {row.variant for row in stored}, "variant", UnknownVariant)
    check_names(scales, {row.scale for row in stored}, "scale", UnknownScale)
    for name in metrics or ():
        metric(name)
    check_names(metrics, {row.metric for row in stored if row.metric}, "metric", UnknownMetric)
    chosen = [
        row
        for row in stored
        if (not suites or row.suite in suites)
        and (not variants or row.variant in variants)
        and (not scales or row.scale in scales)
        and (not metrics or row.metric in {"", *metrics})
    ]
    print_tables(chosen, facts, console, numbers=published(), runs=runs, named=metrics or ())


def print_tables(
    rows: Sequence[Row],
    suites: Sequence[SuiteFacts],
    console: "Console",
    *,
    numbers: Iterable[Published] = (),
    runs: Iterable[RunOrigin] = (),
    named: Collection[str] = (),
) -> None:
    """Print the summary, then suite by suite its question, its tables, and the failures in words.

    `named` are metrics that were asked for by name: see `reports/grids.tables`.
    """
    from rich.rule import Rule
    from rich.text import Text

    theirs, made = tuple(numbers), tuple(runs)
    parts = parts_of(rows, suites)
    if not parts:
        console.print(Text("Nothing is stored for this. `attnbench run` measures; `attnbench ls suites` lists what."))
        return
    if len(parts) > 1:
        print_table(board_table(*board(parts)), console)
    for part in parts:
        console.print(Rule(Text(f"{part.suite.title}: {part.conditions}", style="bold")))
        console.print(Text(part.suite.question))
        for words in (*origins(part.rows, made), *mixtures(part.rows)):
            console.print(Text(f"{words}.", style="yellow"))
        for table in tables(part.rows, part.suite, theirs, named=named):
            console.print()
            print_table(table, console)
            if table.notes:
                console.print(Text(". ".join(table.notes) + ".", style="dim"))
        if (further := section_of(part.suite.name).table(part.rows, part.suite)) is not None:
            console.print()
            print_table(further, console)
            console.print(Text(". ".join(further.notes) + ".", style="dim"))
        for failure in failures_of(part.rows, part.suite.axis):
            console.print(Text.assemble((failure.variant, "bold"), f", {failure.places}: ", (failure.words, "red")))
        console.print()


def print_table(table: Table, console: "Console") -> None:
    """Print a table, in several pieces where the terminal is narrower than its columns."""
    from rich.table import Table as Drawn
    from rich.text import Text

    title = f"{table.title}, by {metric_words(table.axis)}" if table.axis else table.title
    shown = [[_cell(cell, table.usual_n) for cell in line.cells] for line in table.lines]
    for places in _pieces(table, shown, console.width):
        drawn = Drawn(title=Text(title, style="bold"), title_justify="left")
        for place, head in enumerate(table.heads):
            longest = max((len(line.labels[place]) for line in table.lines), default=0)
            drawn.add_column(Text(metric_words(head)), overflow="fold", min_width=min(longest, console.width // 2))
        for place in places:
            drawn.add_column(Text(table.columns[place]), justify="right", overflow="fold")
        for line, cells in zip(table.lines, shown, strict=True):
            labels = map(Text, line.labels)
            drawn.add_row(*labels, *(cells[place] for place in places), style="dim" if line.is_floor else None)
        console.print(drawn)
    for mark in dict.fromkeys(cell.mark for line in table.lines for cell in line.cells if cell.mark):
        console.print(Text.assemble((f"{MARK} {mark}", "red")))


MARK = "*"


def _pieces(table: Table, shown: Sequence[Sequence["Text"]], width: int) -> list[list[int]]:
    """The places of the columns, in pieces that fit beside the labels; at least one column a piece."""
    labels = zip(table.heads, *(line.labels for line in table.lines), strict=True)
    taken = 1 + sum(3 + max(map(len, column)) for column in labels)
    pieces: list[list[int]] = [[]]
    room = width - taken
    for place, head in enumerate(table.columns):
        parts = [*head.split(), *(part for cells in shown for part in cells[place].plain.split("\n"))]
        needed = 3 + max(map(len, parts))
        if pieces[-1] and needed > room:
            pieces.append([])
            room = width - taken
        pieces[-1].append(place)
        room -= needed
    return pieces


def _cell(cell: Cell, usual_n: tuple[int, str]) -> "Text":
    from rich.text import Text

    style = "" if cell.value is not None else "red" if cell.has_failed else "dim"
    shown = Text.assemble((f"{cell.text} {MARK}" if cell.mark else cell.text, style))
    below = (
        (cell.spread, "dim"),
        (_count(cell) if (cell.n, cell.counted) != usual_n else "", "dim"),
        (cell.remark, "dim"),
        (cell.lost, "red"),
        (f"published {cell.published_text}" if cell.published else "", "dim"),
    )
    for text, style in below:
        if text:
            shown.append(f"\n{text}", style=style)
    return shown


def _count(cell: Cell) -> str:
    return f"n = {cell.n} {cell.counted if cell.n > 1 else cell.counted.removesuffix('s')}" if cell.n else ""
