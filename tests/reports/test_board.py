"""The summary across suites."""

from dataclasses import replace

import pytest

from attnbench.harness.rows import Status
from attnbench.harness.spec import Point
from attnbench.reports.board import Part, board, headline
from attnbench.reports.tables import Conditions

CONDITIONS = Conditions("quick", "cpu", "")


def capacity(made, losses):
    rows = []
    for number, loss in losses.items():
        if isinstance(loss, Status):
            rows += made.attempt("capacity", "a", made.pairs(number), status=loss, reason="x")
        else:
            rows += made.attempt("capacity", "a", made.pairs(number), {"retrieval_loss": loss})
    return headline(Part(made.capacity, CONDITIONS, rows))


@pytest.mark.parametrize(
    ("losses", "text", "remark"),
    [
        ({20: 0.001, 60: 0.01, 100: 0.011}, "60", ""),
        ({20: 0.001, 60: 0.001, 100: 0.001}, "100", "all that was asked"),
        ({20: 0.2, 60: 0.3}, "below 20", ""),
        # a lucky point beyond the first failure is no reach
        ({20: 0.001, 60: 0.2, 100: 0.001}, "20", ""),
        ({20: 0.001, 60: Status.DIVERGED}, "20", ""),
        ({20: Status.DIVERGED, 60: 0.001}, "diverged", ""),
    ],
)
def test_the_reach_is_the_last_length_before_the_first_that_is_not_retrieved(made, losses, text, remark):
    found = capacity(made, losses)
    assert found.says == "pairs still retrieved (loss ≤ 0.01)"
    assert (found.cells["a"].text, found.cells["a"].remark) == (text, remark)


def test_a_rate_is_shown_at_the_longest_length_with_its_best_form_named(made):
    rows = []
    for tokens in (128, 2048):
        for form, rate in (("chunkwise", 9000.0), ("recurrent", 100.0)):
            rows += made.attempt("speed", "a", Point(tokens=tokens), {"training_tokens_per_second": rate}, form=form)
    found = headline(Part(made.speed, CONDITIONS, rows))
    assert found.says == "training tokens per second at tokens 2,048"
    assert (found.cells["a"].text, found.cells["a"].remark) == ("9.00k", "chunkwise")


def test_a_variant_without_a_number_at_the_longest_length_shows_its_status(made):
    rows = made.attempt("memory", "a", Point(tokens=128), {"training_peak_bytes": 1024})
    rows += made.attempt("memory", "a", Point(tokens=2048), status=Status.OUT_OF_MEMORY, reason="x")
    rows += made.attempt("memory", "b", Point(tokens=128), {"training_peak_bytes": 1024})
    rows += made.attempt("memory", "c", Point(tokens=2048), {"training_peak_bytes": 1024})
    cells = headline(Part(made.memory, CONDITIONS, rows)).cells
    assert {name: cell.text for name, cell in cells.items()} == {"a": "out of memory", "b": "not run", "c": "1.00 KiB"}


def test_floors_are_no_variants_but_mark_what_is_above_them(made):
    rows = made.attempt("language_modelling", "a", Point(context=64), {"word_perplexity": 310.0})
    rows += made.attempt("language_modelling", "bigram", Point(context=64), {"word_perplexity": 300.0}, form="count")
    variants, (found,) = board([Part(made.language, CONDITIONS, rows)])
    assert variants == ("a",)
    assert found.cells["a"].mark == "above the bigram floor: compares nothing"


def test_floors_of_an_accuracy_mark_what_is_below_the_highest(made):
    suite = replace(made.capacity, name="listops", axis="longest", metrics=("classification_accuracy",))
    rows = []
    for name, form, value in (
        ("a", "sdpa", 0.36),
        ("b", "sdpa", 0.38),
        ("majority", "count", 0.17),
        ("first_operator", "count", 0.37),
    ):
        rows += made.attempt("listops", name, Point(longest=64), {"classification_accuracy": value}, form=form)
    _, (found,) = board([Part(suite, CONDITIONS, rows)])
    assert {name: cell.mark for name, cell in found.cells.items()} == {
        "a": "below the first_operator floor: compares nothing",
        "b": "",
    }


def test_a_setting_of_the_best_line_is_named_with_its_value(made):
    rows = []
    for keys, text, code in ((20, 0.2, 0.001), (40, 0.3, 0.2)):
        for protocol, loss in (("text", text), ("code", code)):
            rows += made.attempt("rewrite", "a", Point(keys=keys, protocol=protocol), {"retrieval_loss": loss})
    cell = headline(Part(made.rewrite, CONDITIONS, rows)).cells["a"]
    assert (cell.text, cell.remark) == ("20", "protocol code")
