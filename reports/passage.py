"""What a suite's section says beyond the tables of its metrics: a heading, words, tables, figures."""

from collections.abc import Iterable
from dataclasses import dataclass

from attnbench.harness.rows import Row, Status
from attnbench.reports.figures import Figure
from attnbench.reports.grids import Cell, Table
from attnbench.reports.tables import status_words


@dataclass(frozen=True)
class Passage:
    """One such piece. Of `tables` the first `open_tables` are seen at once, the others are folded."""

    title: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    open_tables: int = 1


def ending_cell(metric: str, rows: Iterable[Row]) -> Cell:
    """The cell of a case without a number: how its attempts ended, or that there were none."""
    endings = {row.attempt_id: (row.status, row.reason) for row in rows if row.status is not Status.OK}
    if not endings:
        return Cell(metric)
    short = dict.fromkeys(status_words(status, "") for status, _ in endings.values())
    words = dict.fromkeys(status_words(*ending) for ending in endings.values())
    return Cell(metric, ", ".join(short), words=tuple(words))
