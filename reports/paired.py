"""BLEU of two systems on the same sentences: the difference with the interval of a paired bootstrap.

Both sides are resampled alike, so what makes a sentence hard for both cancels. Of several seeds each makes a line.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from attnbench.harness.bleu import STATISTICS, bleu_of, from_json, paired
from attnbench.harness.rows import Artefact, Row
from attnbench.reports.grids import Cell, Line, Table
from attnbench.reports.numbers import written

if TYPE_CHECKING:
    from attnbench.harness.bleu import Statistics

METRIC = "bleu"
_COLUMNS = ("A", "B", "B less A", "p", "better")


def paired_table(pairs: Iterable[tuple[Row, Row]], texts: Mapping[int, Sequence[Artefact]]) -> Table | None:
    """The differences of rows of A and B that share case, seed and data; None where no sentences are known of both.

    `texts` are the artefacts of their attempts.
    """
    lines = []
    for a, b in pairs:
        ones, others = (_statistics(texts.get(row.attempt_id, ())) for row in (a, b))
        if ones is None or others is None or a.data_hash != b.data_hash or len(ones) != len(others):
            continue
        lines.append(_line(a, b, ones, others))
    if not lines:
        return None
    notes = (
        "Differences of BLEU over the same sentences, below them 95 % of a paired bootstrap",
        "p: twice the share of resamples in which the other side is ahead",
    )
    return Table("BLEU, paired by sentence", notes, ("A", "B", "seed", "sentences"), "", _COLUMNS, tuple(lines))


def _line(a: Row, b: Row, ones: "Statistics", others: "Statistics") -> Line:
    difference, low, high, p = paired(ones, others)
    better = "not told apart" if low <= 0 <= high else "B" if difference > 0 else "A"
    cells = (
        *(Cell(METRIC, written(value, "1"), value=value) for value in map(bleu_of, (ones, others))),
        Cell(METRIC, f"{difference:+.2f}", value=difference, spread=f"{low:+.2f} – {high:+.2f}"),
        Cell(METRIC, f"{p:.3f}", value=p),
        Cell(METRIC, better),
    )
    return Line(a.variant, (a.variant, b.variant, str(a.seed), f"{len(ones):,}"), cells)


def _statistics(texts: Sequence[Artefact]) -> "Statistics | None":
    """What each sentence adds to BLEU, where that was kept."""
    return next((from_json(one.text) for one in texts if one.name == STATISTICS), None)
