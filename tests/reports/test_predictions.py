"""Predicted and measured memory."""

from attnbench.harness.rows import Status
from attnbench.harness.spec import Point
from attnbench.reports.palette import looks
from attnbench.reports.predictions import predictions_passage


def test_peaks_with_both_numbers_are_drawn_and_their_errors_told(made):
    rows = []
    for tokens, predicted in ((64, 1000), (128, 1050), (256, 1500)):
        numbers = {"training_peak_bytes": 1000, "predicted_peak_bytes": predicted}
        rows += made.attempt("memory", "delta", Point(tokens=tokens), numbers)
    (passage,) = predictions_passage(rows, made.memory, looks(["delta"]), "memory")
    # 0, 5 and 50 % too much
    assert "Of 3 cases with both numbers 2 are predicted within 10 %" in passage.paragraphs[0]
    assert "the middle error is +5.0%, the largest +50.0%" in passage.paragraphs[0]
    assert "delta" in passage.figures[0].svg


def test_without_a_pair_of_numbers_there_is_nothing(made):
    rows = made.attempt("memory", "delta", Point(tokens=64), {"predicted_peak_bytes": 1000})
    rows += made.attempt("memory", "linear", Point(tokens=64), {"training_peak_bytes": 1000})
    rows += made.attempt("memory", "gated", Point(tokens=64), status=Status.OUT_OF_MEMORY, reason="x")
    assert predictions_passage(rows, made.memory, looks(["delta", "linear", "gated"]), "memory") == ()
