"""What memory costs: peaks and state against the length, and peaks beside their predictions."""

from attnbench.reports.figures import Plan
from attnbench.reports.passage import Passage
from attnbench.reports.predictions import predictions_passage
from attnbench.reports.section import Material, Measure, SuiteSection


def passages(given: Material) -> tuple[Passage, ...]:
    """Predicted against measured peaks."""
    return predictions_passage(given.rows, given.suite, given.looks, given.prefix)


SECTION = SuiteSection(
    "memory",
    90,
    Plan(("training_peak_bytes", "prefill_peak_bytes", "decode_state_bytes"), x="log", y="log"),
    passages,
    measures=(
        Measure("state", "cost", "bytes of state", "decode_state_bytes"),
        Measure("peak", "cost", "peak memory, training", "training_peak_bytes"),
    ),
)
