"""Perplexity where the memory is carried on for ever: beside the published table, by position, along the text."""

from attnbench.reports.beside import beside_passage
from attnbench.reports.passage import Passage
from attnbench.reports.section import Material, Measure, SuiteSection
from attnbench.reports.text_curves import text_passage


def passages(given: Material) -> tuple[Passage, ...]:
    """The published table with ours beside it, and the curves along the text."""
    return (
        *beside_passage(given.rows, given.suite, given.numbers),
        *text_passage(given.rows, given.looks, given.curves, given.prefix),
    )


SECTION = SuiteSection(
    "unbounded_context",
    35,
    passages=passages,
    measures=(Measure("unbounded", "quality", "perplexity, unbounded context", "word_perplexity"),),
    needs_curves=True,
)
