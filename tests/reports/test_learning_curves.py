"""Learning curves: which are shown, and what is said of them; and how passages come onto the page."""

from xml.etree import ElementTree

import pytest

from attnbench.harness.rows import Series
from attnbench.harness.spec import Point
from attnbench.reports.learning_curves import learning_passage
from attnbench.reports.page import page
from attnbench.reports.palette import looks


def asked(made, curves, variant, keys, seed, losses, protocol="text"):
    rows = made.attempt(
        "rewrite", variant, Point(keys=keys, protocol=protocol), {"retrieval_loss": min(losses)}, seed=seed
    )
    steps = tuple(100.0 * number for number in range(1, len(losses) + 1))
    curves[rows[0].attempt_id] = [Series("evaluation_loss", "step", steps, tuple(losses))]
    return rows


@pytest.fixture
def curves():
    return {}


@pytest.fixture
def rows(made, curves):
    rows = []
    for seed in (0, 1, 2):
        rows += asked(made, curves, "dpfp-nu1", 20, seed, (0.4, 0.3, 0.25))
        rows += asked(made, curves, "dpfp-nu1+delta", 20, seed, (0.3, 0.01, 0.0005))
        rows += asked(made, curves, "delta", 20, seed, (0.3, 0.02, 0.0008))
        rows += asked(made, curves, "delta", 40, seed, (0.4, 0.3, 0.1))
    return rows


def figures_of(rows, suite, curves):
    (passage,) = learning_passage(rows, suite, looks(row.variant for row in rows), curves, "x")
    return passage.figures


def test_rewrite_shows_its_shortest_length_and_the_rules_of_figure_3_apart(made, rows, curves):
    four, others = figures_of(rows, made.rewrite, curves)
    assert four.title == "Evaluation loss against step at keys 20, protocol text: the rules of Figure 3"
    assert others.title == "Evaluation loss against step at keys 20, protocol text: other variants"
    assert "dpfp-nu1 0.250 and 0.250 and 0.250; dpfp-nu1+delta 0.00050" in four.alt
    texts = {element.text for element in ElementTree.fromstring(four.svg).iter("{http://www.w3.org/2000/svg}text")}
    assert {"dpfp-nu1", "dpfp-nu1+delta", "step", "evaluation loss"} <= texts
    assert four.caption == "A line a seed, 3 seeds; the marker is where training stopped."


def test_each_protocol_has_figures_of_its_own(made, rows, curves):
    rows += asked(made, curves, "delta", 20, 0, (0.3, 0.1), "code")
    assert [figure.title.split(", protocol ")[1] for figure in figures_of(rows, made.rewrite, curves)] == [
        "code",
        "text: the rules of Figure 3",
        "text: other variants",
    ]


def test_capacity_shows_the_largest_length_that_half_of_the_variants_were_asked_at(made, curves):
    rows = []
    for variant, numbers in (("linear", (20, 60)), ("dpfp-nu1", (20,)), ("delta", (20,)), ("softmax", (20, 60, 600))):
        for number in numbers:
            found = made.attempt("capacity", variant, made.pairs(number), {"retrieval_loss": 0.1})
            curves[found[0].attempt_id] = [Series("evaluation_loss", "step", (100.0, 200.0), (0.3, 0.1))]
            rows += found
    (figure,) = figures_of(rows, made.capacity, curves)
    assert figure.title == "Evaluation loss against step at pairs 60"


def test_what_a_logarithm_cannot_show_is_left_out(made, curves):
    rows = asked(made, curves, "delta", 20, 0, (0.3, float("nan"), 0.0))
    (figure,) = figures_of(rows, made.rewrite, curves)
    assert "delta 0.300" in figure.alt


def test_rows_without_curves_show_none(made, rows):
    assert learning_passage(rows, made.rewrite, looks(["delta"]), {}, "x") == ()


def test_the_page_shows_the_passages_of_a_suite_with_ids_of_their_own(made, rows, curves):
    text = page(rows, made.suites, curves=curves)
    assert "<h3>Learning curves</h3>" in text
    assert 'id="rewrite-quick-cpu-learning-text-the-rules-of-Figure-3-' in text
    assert "Learning curves" not in page(rows, made.suites)
