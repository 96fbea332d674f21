"""The figures, as SVG text."""

import re
import sys
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from attnbench.harness.rows import Status
from attnbench.harness.spec import Point
from attnbench.reports.drawing import tick_written
from attnbench.reports.figures import figures
from attnbench.reports.palette import looks
from attnbench.reports.published import published
from attnbench.reports.sections import section_of


@pytest.fixture
def curves(made):
    rows = []
    for variant, slope in (("linear", 0.002), ("dpfp-nu1", 0.001), ("softmax", 0.0)):
        for number in (20, 60, 100):
            for seed in range(3):
                loss = slope * number * (1 + 0.1 * seed)
                rows += made.attempt("capacity", variant, made.pairs(number), {"retrieval_loss": loss}, seed=seed)
    rows += made.attempt("capacity", "gated", made.pairs(20), {"retrieval_loss": 0.1})
    rows += made.attempt("capacity", "gated", made.pairs(60), status=Status.DIVERGED, reason="x")
    rows += made.attempt("capacity", "gated", made.pairs(100), status=Status.DIVERGED, reason="x")
    return rows


def drawn(rows, suite, numbers=(), prefix=""):
    return figures(
        rows,
        suite,
        looks(row.variant for row in rows),
        numbers,
        plan=section_of(suite.name).plan,
        prefix=prefix,
    )


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_the_capacity_figure_names_its_lines_and_its_axes(made, curves):
    (figure,) = drawn(curves, made.capacity)
    assert {"linear", "dpfp-nu1", "softmax", "gated", "pairs", "retrieval loss", "20", "100"} <= set(texts(figure.svg))


def test_the_legend_reads_in_the_order_in_which_the_lines_end(made, curves):
    (figure,) = drawn(curves, made.capacity)
    named = [text for text in texts(figure.svg) if text in {"linear", "dpfp-nu1", "softmax"}]
    assert named == ["linear", "dpfp-nu1", "softmax"]


def test_a_figure_says_in_words_what_it_shows_and_what_it_leaves_out(made, curves):
    (figure,) = drawn(curves, made.capacity)
    # linear at 100: 0.2, 0.22, 0.24
    assert figure.alt == (
        "Retrieval loss against pairs. Lines: dpfp-nu1, gated, linear, softmax. At 100 the lowest is softmax with 0 and "
        "the highest linear with 0.220. Lower is better."
    )
    assert f'role="img" aria-label="{figure.alt}"' in figure.svg
    assert figure.caption == "Bands and bars: the spread that the table gives. Not drawn: gated at 60, 100 (diverged)."


def test_the_same_rows_give_the_same_text(made, curves):
    assert drawn(curves, made.capacity) == drawn(curves, made.capacity)


def test_nothing_in_a_figure_refers_to_anything_outside_it(made, curves):
    (figure,) = drawn(curves, made.capacity, published())
    without_name = figure.svg.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|data:|file:|<image|<script|<!DOCTYPE|<metadata", without_name)
    identifiers = set(re.findall(r'\bid="([^"]+)"', figure.svg))
    referred = set(re.findall(r'href="#([^"]+)"', figure.svg)) | set(re.findall(r"url\(#([^)]+)\)", figure.svg))
    assert referred <= identifiers


def test_figures_of_one_page_share_no_ids(made, curves):
    (one,) = drawn(curves, made.capacity, prefix="capacity-quick")
    (other,) = drawn(curves, made.capacity, prefix="capacity-smoke")
    ids = [set(re.findall(r'\bid="([^"]+)"', figure.svg)) for figure in (one, other)]
    assert not ids[0] & ids[1]
    assert all(name.startswith("capacity-quick-retrieval_loss-") for name in ids[0])


def test_text_takes_the_colour_of_its_surroundings_and_the_background_is_left_open(made, curves):
    (figure,) = drawn(curves, made.capacity)
    root = ElementTree.fromstring(figure.svg)
    styles = [element.get("style", "") for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert all("fill: currentColor" in style for style in styles)
    assert "#ffffff" not in figure.svg


def test_a_published_bound_is_no_point_of_a_curve(made, curves):
    bound = [replace(one, is_bound=True) for one in published()]
    (figure,) = drawn(curves, made.capacity, bound)
    assert "published" not in texts(figure.svg)


def test_published_curves_are_dotted_behind_the_measured_ones(made, curves):
    (without,) = drawn(curves, made.capacity)
    (figure,) = drawn(curves, made.capacity, published())
    assert "published" in texts(figure.svg)
    assert "published" not in texts(without.svg)
    # linear, dpfp-nu1 and softmax have logs, and the legend has one more
    assert figure.svg.count("stroke-dasharray: 1,1.6") == 4
    assert figure.caption.startswith("Thin and dotted, or a tick: the published number of the same variant.")


def test_perplexities_at_one_context_are_points_beside_dashed_floors(made):
    point = Point(context=64)
    rows = made.attempt("language_modelling", "linear", point, {"word_perplexity": 250.0})
    rows += made.attempt("language_modelling", "bigram", point, {"word_perplexity": 300.0}, form="count")
    (figure,) = drawn(rows, made.language)
    assert figure.title == "Word perplexity at context 64"
    assert {"linear", "bigram", "word perplexity"} <= set(texts(figure.svg))
    assert "stroke-dasharray" in figure.svg


def test_accuracies_are_shaded_below_the_highest_floor(made):
    suite = replace(made.capacity, name="listops", axis="longest", metrics=("classification_accuracy",))
    rows = []
    for name, form, value in (
        ("a", "sdpa", 0.5),
        ("b", "sdpa", 0.2),
        ("majority", "count", 0.1),
        ("first_operator", "count", 0.3),
    ):
        rows += made.attempt("listops", name, Point(longest=64), {"classification_accuracy": value}, form=form)
    shaded = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnbench.reports.drawing._shade_beyond", lambda axes, *given: shaded.append(given))
        (figure,) = drawn(rows, suite)
    assert shaded == [(0.3, "higher")]
    assert "numbers that its best line beats compare nothing" in figure.caption


def test_perplexities_along_the_context_are_curves_with_floors(made):
    rows = []
    for context in (64, 128):
        rows += made.attempt(
            "language_modelling", "linear", Point(context=context), {"word_perplexity": 250.0 - context}
        )
        rows += made.attempt(
            "language_modelling", "bigram", Point(context=context), {"word_perplexity": 300.0}, form="count"
        )
    (figure,) = drawn(rows, made.language)
    assert figure.title == "Word perplexity against context"
    assert {"linear", "bigram"} <= set(texts(figure.svg))


def test_speed_and_memory_have_a_figure_for_each_metric(made):
    rows = []
    for tokens in (128, 256):
        rates = {f"{kind}_tokens_per_second": [900.0, 1000.0, 1100.0] for kind in ("training", "prefill", "decode")}
        rows += made.attempt("speed", "a", Point(tokens=tokens), rates)
    assert [figure.metric for figure in drawn(rows, made.speed)] == list(made.speed.metrics)


def test_a_logarithm_leaves_out_zeros_and_says_so(made):
    rows = []
    for tokens in (128, 256):
        rows += made.attempt("memory", "a", Point(tokens=tokens), {"decode_state_bytes": 0})
        rows += made.attempt("memory", "b", Point(tokens=tokens), {"decode_state_bytes": tokens})
    (figure,) = drawn(rows, made.memory)
    assert figure.caption == "Not drawn: a at 128 (0); a at 256 (0)."


def test_a_suite_without_numbers_has_no_figure(made):
    rows = made.attempt("capacity", "a", made.pairs(20), status=Status.ERROR, reason="x")
    assert drawn(rows, made.capacity) == ()


def test_two_forms_of_a_variant_are_two_lines_with_their_forms_in_the_name(made):
    rows = []
    for tokens in (128, 256):
        for form in ("chunkwise", "recurrent"):
            rows += made.attempt("speed", "a", Point(tokens=tokens), {"training_tokens_per_second": 1000.0}, form=form)
    (figure,) = drawn(rows, made.speed)
    assert {"a, chunkwise", "a, recurrent"} <= set(texts(figure.svg))


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a$\\frac{1}{2}$b", "_hidden", 'x" onload="y'])
def test_a_name_made_of_markup_or_a_formula_stays_text(made, name):
    rows = []
    for number in (20, 60):
        rows += made.attempt("capacity", name, made.pairs(number), {"retrieval_loss": 0.25})
    (figure,) = drawn(rows, made.capacity)
    assert name in [text.strip() for text in texts(figure.svg)]
    root = ElementTree.fromstring(figure.svg)
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
    assert all(not key.startswith("on") for element in root.iter() for key in element.attrib)


def test_drawing_opens_no_window_and_leaves_no_figure_behind(made, curves):
    drawn(curves, made.capacity)
    assert not sys.modules["matplotlib.pyplot"].get_fignums()


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.5, "1", "0.5"),
        (1000.0, "tokens/s", "1k"),
        (1048576.0, "B", "1 MiB"),
        (100.0, "1", "100"),
        (0.001, "1", "0.001"),
        (1e8, "1", "1e8"),
    ],
)
def test_a_tick_is_written_without_idle_zeros(value, unit, text):
    assert tick_written(value, unit) == text
