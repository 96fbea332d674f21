"""Can a stored value be replaced: learning curves, what the paper's text and code ask, the released runs."""

from attnbench.reports.against import against_passage
from attnbench.reports.figures import Plan
from attnbench.reports.learning_curves import learning_passage
from attnbench.reports.passage import Passage
from attnbench.reports.protocols import protocols_passage
from attnbench.reports.section import Material, SuiteSection
from attnbench.reports.tables import RETRIEVES


def passages(given: Material) -> tuple[Passage, ...]:
    """Learning curves, both protocols, and the released runs beside ours."""
    return (
        *learning_passage(given.rows, given.suite, given.looks, given.curves, given.prefix),
        *protocols_passage(given.rows, given.suite),
        *against_passage(given.rows, given.suite, given.looks, given.prefix),
    )


SECTION = SuiteSection(
    "rewrite", 10, Plan(x="linear", y="log", levels={"retrieves": RETRIEVES}), passages, needs_curves=True
)
