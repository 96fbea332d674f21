"""What a suite's section says beyond the tables of its metrics: a heading, words, tables, figures."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from attnbench.harness.rows import Row, Status
from attnbench.reports.figures import Figure
from attnbench.reports.grids import Cell, Table
from attnbench.reports.numbers import written
from attnbench.reports.tables import status_words


@dataclass(frozen=True)
class Passage:
    """One such piece. Of `tables` the first `open_tables` are seen at once, the others are folded."""

    title: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    open_tables: int = 1


def loss_cell(losses: Iterable[float | None], attempts: Iterable[int] = (), *, source: str = "") -> Cell:
    """The median of the losses of several seeds, below it smallest and largest; `attempts` or a `source` stand behind it.

    A loss that is None or not finite is of a run that diverged, so it is above all others: NaN where half of them are.
    """
    values = sorted(math.inf if loss is None or not math.isfinite(loss) else loss for loss in losses)
    if not values:
        return Cell("retrieval_loss", "not measured", source=source)
    middle = median(values)
    if not math.isfinite(middle):
        return Cell("retrieval_loss", "NaN", attempts=tuple(attempts), source=source)
    ends = (written(loss, "1") if math.isfinite(loss) else "NaN" for loss in (values[0], values[-1]))
    spread = " – ".join(ends) if values[0] != values[-1] else ""
    return Cell(
        "retrieval_loss",
        written(middle, "1"),
        value=middle,
        spread=spread,
        attempts=tuple(attempts),
        source=source,
    )


def ending_cell(metric: str, rows: Iterable[Row]) -> Cell:
    """The cell of a case without a number: how its attempts ended, or that there were none."""
    endings = {row.attempt_id: (row.status, row.reason) for row in rows if row.status is not Status.OK}
    if not endings:
        return Cell(metric)
    short = dict.fromkeys(status_words(status, "") for status, _ in endings.values())
    words = dict.fromkeys(status_words(*ending) for ending in endings.values())
    return Cell(metric, ", ".join(short), words=tuple(words), attempts=tuple(endings))
