"""What time costs: tokens a second against the length, exponents, and where softmax is overtaken."""

from attnbench.reports.cost_passage import cost_passage, cost_table
from attnbench.reports.figures import Plan
from attnbench.reports.passage import Passage
from attnbench.reports.section import Material, Measure, SuiteSection

TIMED = (
    *("training_tokens_per_second", "prefill_tokens_per_second", "decode_tokens_per_second"),
    *("model_training_tokens_per_second", "roofline_fraction"),
)


def passages(given: Material) -> tuple[Passage, ...]:
    """Exponents and crossovers."""
    return cost_passage(given.rows, given.suite)


SECTION = SuiteSection(
    "speed",
    80,
    Plan(TIMED, x="log", y="log"),
    passages,
    cost_table,
    (
        Measure("training", "cost", "tokens a second, training", "training_tokens_per_second"),
        Measure("decoding", "cost", "tokens a second, decoding", "decode_tokens_per_second"),
    ),
)
