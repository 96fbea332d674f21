"""What the sections on suites with curves say beyond the tables of their metrics, in reading order."""

from collections.abc import Mapping, Sequence

from attnbench.harness.rows import Row, Series
from attnbench.reports.against import against_passage
from attnbench.reports.capacity_passage import capacity_passage
from attnbench.reports.cost_passage import cost_passage
from attnbench.reports.denominators import denominators_passage
from attnbench.reports.learning_curves import learning_passage
from attnbench.reports.palette import Look
from attnbench.reports.passage import Passage
from attnbench.reports.protocols import protocols_passage
from attnbench.reports.tables import SuiteFacts
from attnbench.reports.text_curves import text_passage


def passages(
    rows: Sequence[Row],
    suite: SuiteFacts,
    looks: Mapping[str, Look],
    curves: Mapping[int, Sequence[Series]],
    *,
    prefix: str = "",
) -> tuple[Passage, ...]:
    """The passages of one suite under one set of conditions. `curves` are series by attempt; `prefix` keeps ids apart."""
    if suite.name == "capacity":
        return (
            *capacity_passage(rows, suite, looks, prefix),
            *denominators_passage(rows, suite),
            *learning_passage(rows, suite, looks, curves, prefix),
            *against_passage(rows, suite, looks, prefix),
        )
    if suite.name == "rewrite":
        return (
            *learning_passage(rows, suite, looks, curves, prefix),
            *protocols_passage(rows, suite),
            *against_passage(rows, suite, looks, prefix),
        )
    if suite.name == "speed":
        return cost_passage(rows, suite)
    return text_passage(rows, suite, looks, curves, prefix)
