"""BLEU of translators: beside the published table, learning curves, what decoding carries, and sample translations."""

from attnbench.reports.beside import beside_passage
from attnbench.reports.passage import Passage
from attnbench.reports.section import Material, Measure, SuiteSection
from attnbench.reports.text_curves import text_passage
from attnbench.reports.translations import translations_passage


def passages(given: Material) -> tuple[Passage, ...]:
    """The published table with ours beside it, the curves, and a few translations of each variant."""
    return (
        *beside_passage(given.rows, given.suite, given.numbers),
        *text_passage(given.rows, given.looks, given.curves, given.prefix, "On the way"),
        *translations_passage(given.rows, given.texts),
    )


SECTION = SuiteSection(
    "translation",
    37,
    passages=passages,
    measures=(Measure("translation", "quality", "translation (BLEU)", "bleu"),),
    needs_curves=True,
    needs_texts=True,
)
