"""Predicted against measured peaks of memory: a figure with the line on which they are equal, and the errors in words."""

from collections.abc import Mapping, Sequence
from statistics import median

from attnbench.harness.rows import Row, Status
from attnbench.reports.figures import Figure, svg_text
from attnbench.reports.fronts import Pairing, pairings_drawn
from attnbench.reports.palette import Look
from attnbench.reports.passage import Passage
from attnbench.reports.tables import SuiteFacts

_TITLE = "Predicted and measured memory"
_PREDICTED = "predicted_peak_bytes"
_MEASURED = ("training_peak_bytes", "prefill_peak_bytes", "model_peak_bytes")


def predictions_passage(
    rows: Sequence[Row], suite: SuiteFacts, looks: Mapping[str, Look], prefix: str
) -> tuple[Passage, ...]:
    """The peaks of attempts that have both numbers; nothing without any."""
    found: dict[int, dict[str, Row]] = {}
    for row in rows:
        if row.status is Status.OK and row.value is not None and row.value > 0:
            found.setdefault(row.attempt_id, {})[row.metric] = row
    drawn: dict[str, list[tuple[float, float]]] = {}
    for metrics in found.values():
        measured = next((metrics[name] for name in _MEASURED if name in metrics), None)
        if measured is not None and _PREDICTED in metrics:
            drawn.setdefault(measured.variant, []).append((_value(measured), _value(metrics[_PREDICTED])))
    if not drawn:
        return ()
    errors = [predicted / peak - 1 for points in drawn.values() for peak, predicted in points]
    within = sum(abs(error) <= 0.1 for error in errors)
    words = (
        f"A peak is predicted on tensors that have sizes and no contents. Of {len(errors)} cases with both numbers {within} are "
        f"predicted within 10 %; the middle error is {median(errors):+.1%}, the largest {max(errors, key=abs):+.1%}."
    )
    alt = f"{_TITLE}, {suite.title}: one point a case, on the line where both are equal. {words}"
    pairings = [Pairing(variant, looks[variant], tuple(points)) for variant, points in sorted(drawn.items())]
    svg = svg_text(lambda: pairings_drawn(pairings, "measured peak", "predicted peak", "B"), f"{prefix}-predicted", alt)
    return (Passage(_TITLE, (words,), figures=(Figure(_PREDICTED, _TITLE, svg, alt, "Line: predicted as measured."),)),)


def _value(row: Row) -> float:
    assert row.value is not None
    return row.value
