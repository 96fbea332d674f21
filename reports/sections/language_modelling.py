"""Perplexity with a limited context: beside the published tables, by position, against the step."""

from attnbench.reports.beside import beside_passage
from attnbench.reports.figures import Plan
from attnbench.reports.passage import Passage
from attnbench.reports.section import Material, Measure, SuiteSection
from attnbench.reports.text_curves import text_passage


def passages(given: Material) -> tuple[Passage, ...]:
    """The published tables with ours beside them, and the curves along the text."""
    return (
        *beside_passage(given.rows, given.suite, given.numbers),
        *text_passage(given.rows, given.looks, given.curves, given.prefix),
    )


SECTION = SuiteSection(
    "language_modelling",
    30,
    Plan(x="log"),
    passages,
    measures=(
        Measure("perplexity", "quality", "perplexity, limited context", "word_perplexity"),
        Measure("floats", "cost", "state of the whole model (floats)", "state_floats"),
    ),
    needs_curves=True,
)
