"""Curves of language models: which are drawn, in which figure, and what is said of them."""

from xml.etree import ElementTree

import pytest

from attnbench.harness.rows import Series
from attnbench.harness.spec import Point
from attnbench.reports.palette import looks
from attnbench.reports.text_curves import text_passage

POINT = Point(data="web-bible", vocabulary=1000, width=64, context=32)


@pytest.fixture
def curves():
    return {}


def asked(made, curves, variant, point=POINT, seed=0, **named):
    rows = made.attempt("unbounded_context", variant, point, {"word_perplexity": 100.0}, seed=seed)
    curves[rows[0].attempt_id] = [
        Series(name, "x", tuple(float(number) for number in range(1, len(values) + 1)), tuple(values))
        for name, values in named.items()
    ]
    return rows


def figures_of(rows, curves):
    return [
        figure
        for passage in text_passage(rows, looks(row.variant for row in rows), curves, "x")
        for figure in passage.figures
    ]


def texts(figure):
    return {element.text for element in ElementTree.fromstring(figure.svg).iter("{http://www.w3.org/2000/svg}text")}


def test_each_kind_of_curve_has_a_figure_with_a_line_a_variant_and_seed(made, curves):
    rows = [
        *asked(made, curves, "linear", perplexity_by_position=(60.0, 40.0), carried_loss=(3.0, 4.0)),
        *asked(made, curves, "linear", seed=1, perplexity_by_position=(61.0, 41.0)),
        *asked(made, curves, "delta", perplexity_by_position=(50.0, 30.0), carried_loss=(3.0, 2.0)),
    ]
    position, carried = figures_of(rows, curves)
    assert position.title == "Perplexity by position in the context: web-bible, width 64, context 32"
    assert position.alt.endswith("The last values: linear 40.0 and 41.0; delta 30.0. Lower is better.")
    assert {"linear", "delta", "tokens seen", "token perplexity"} <= texts(position)
    assert position.caption.endswith("A line a seed, 2 seeds.")
    assert {"token of the test text", "nats a token"} <= texts(carried)


def test_points_of_one_variant_are_told_apart_by_what_differs(made, curves):
    rows = []
    for memory in (15, 64):
        point = Point({**POINT, "evaluation_memory": memory})
        rows += asked(made, curves, "xl", point, carried_loss=(3.0, 2.0))
    (figure,) = figures_of(rows, curves)
    assert {"xl, evaluation memory 15", "xl, evaluation memory 64"} <= texts(figure)


def test_another_text_or_size_has_a_figure_of_its_own(made, curves):
    rows = [
        *asked(made, curves, "linear", validation_loss=(3.0, 2.0)),
        *asked(made, curves, "linear", Point({**POINT, "width": 128}), validation_loss=(3.0, 2.0)),
        *asked(made, curves, "linear", Point({**POINT, "data": "wiki-mini"}), validation_loss=(3.0, 2.0)),
    ]
    assert [figure.title.split(": ")[1] for figure in figures_of(rows, curves)] == [
        "web-bible, width 64, context 32",
        "web-bible, width 128, context 32",
        "wiki-mini, width 64, context 32",
    ]


def test_what_is_not_finite_is_left_out_and_without_curves_there_is_nothing(made, curves):
    rows = asked(made, curves, "linear", carried_loss=(3.0, float("nan")))
    assert "linear 3.00." in figures_of(rows, curves)[0].alt
    assert figures_of(made.attempt("unbounded_context", "linear", POINT, {"word_perplexity": 1.0}), {}) == []
