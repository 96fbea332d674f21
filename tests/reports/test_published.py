"""The published numbers, against values copied by hand from the paper and its logs."""

from collections import Counter

import pytest

from attnbench.harness.metrics import METRICS
from attnbench.harness.spec import Point
from attnbench.reports.published import find, published
from attnbench.reports.published.protocol import protocols
from attnbench.suites.tasks.language.points import small
from attnbench.suites.tasks.language.steps import model_point


@pytest.mark.parametrize(
    ("suite", "variant", "metric", "point", "value"),
    [
        # released logs, setting 1, best loss
        ("capacity", "linear", "retrieval_loss", {"pairs": 60}, 0.0245),
        ("capacity", "dpfp-nu1", "retrieval_loss", {"pairs": 120}, 0.0083),
        ("capacity", "dpfp-nu2", "retrieval_loss", {"pairs": 300}, 0.068),
        ("capacity", "dpfp-nu3", "retrieval_loss", {"pairs": 600}, 0.198),
        ("capacity", "performer-m64", "retrieval_loss", {"pairs": 20}, 0.117),
        ("capacity", "performer-m128", "retrieval_loss", {"pairs": 40}, 0.175),
        ("capacity", "performer-m512", "retrieval_loss", {"pairs": 60}, 0.407),
        ("capacity", "softmax", "retrieval_loss", {"pairs": 500}, 0.0089),
        ("capacity", "softmax", "last_retrieval_loss", {"pairs": 500}, 0.174),
        # setting 2
        ("rewrite", "dpfp-nu1+delta", "retrieval_loss", {"keys": 20}, 0.0008),
        ("rewrite", "dpfp-nu1", "retrieval_loss", {"keys": 20}, 0.097),
        ("rewrite", "dpfp-nu1+fwm", "retrieval_loss", {"keys": 20}, 0.040),
        ("rewrite", "fwm", "training_steps", {"keys": 20}, 15400),
        ("rewrite", "delta", "retrieval_loss", {"keys": 200}, 0.342),
        ("rewrite", "performer-m64+delta", "retrieval_loss", {"keys": 60}, 0.40),
    ],
)
def test_the_logs_say_what_was_read_in_them(suite, variant, metric, point, value):
    found = find(published(), suite, variant, metric, Point({**point, "key_width": 64}))
    assert found is not None
    assert found.value == pytest.approx(value, rel=0.05)


@pytest.mark.parametrize(
    ("suite", "variant", "metric", "point", "value"),
    [
        ("speed", "linear", "model_training_tokens_per_second", model_point(small(), accumulation=12), 66000),
        ("speed", "dpfp-nu1", "model_training_tokens_per_second", model_point(small()), 63000),
        ("memory", "softmax", "model_peak_bytes", model_point(small()), 17e9),
        ("memory", "delta", "predicted_peak_bytes", model_point(small()), 14e9),
    ],
)
def test_the_tables_say_what_the_paper_prints(suite, variant, metric, point, value):
    found = find(published(), suite, variant, metric, Point({**point, "data": "wikitext-103"}))
    assert found is not None
    assert found.value == value


SMALL, MEDIUM, CARRIED = (protocols()[name] for name in ("small", "medium", "carried"))
POSITIONS, NO_POSITIONS = Point(positions="sinusoidal"), Point(positions="none")


@pytest.mark.parametrize(
    ("suite", "protocol", "variant", "own", "validation", "test"),
    [
        # Table 2
        ("language_modelling", SMALL, "softmax", POSITIONS, 33.0, 34.1),
        ("language_modelling", SMALL, "linear", POSITIONS, 37.1, 38.3),
        ("language_modelling", SMALL, "delta", POSITIONS, 34.1, 35.5),
        ("language_modelling", SMALL, "performer-m8", POSITIONS, 39.0, 39.6),
        ("language_modelling", SMALL, "performer-m8+delta", POSITIONS, 36.1, 37.2),
        ("language_modelling", MEDIUM, "softmax", POSITIONS, 27.9, 29.6),
        ("language_modelling", MEDIUM, "linear", POSITIONS, 31.1, 33.0),
        ("language_modelling", MEDIUM, "delta", POSITIONS, 29.7, 31.5),
        ("language_modelling", MEDIUM, "performer-m16", POSITIONS, 32.2, 33.8),
        ("language_modelling", MEDIUM, "performer-m16+delta", POSITIONS, 30.0, 31.8),
        # Table 3
        ("language_modelling", MEDIUM, "delta+attnnorm", POSITIONS, 30.4, 32.1),
        ("language_modelling", MEDIUM, "delta+attnnorm", NO_POSITIONS, 29.2, 31.2),
        ("language_modelling", MEDIUM, "delta", NO_POSITIONS, 28.1, 31.1),
        # Table 4
        ("unbounded_context", CARRIED, "linear", Point(), 260, 260),
        ("unbounded_context", CARRIED, "delta", Point(), 27.8, 29.4),
        ("unbounded_context", CARRIED, "xl", Point(evaluation_memory=15, evaluation_context=1), 65.7, 65.5),
        ("unbounded_context", CARRIED, "xl", Point(evaluation_memory=64, evaluation_context=64), 29.3, 30.1),
        ("unbounded_context", CARRIED, "xl", Point(evaluation_memory=128, evaluation_context=128), 26.4, 27.4),
        ("unbounded_context", CARRIED, "xl", Point(evaluation_memory=384, evaluation_context=384), 24.6, 25.5),
        # Table 5
        ("language_modelling", SMALL, "performer-m16", POSITIONS, 38.0, 38.8),
        ("language_modelling", SMALL, "performer-m16+delta", POSITIONS, 36.0, 37.0),
        ("language_modelling", SMALL, "dpfp-nu1", POSITIONS, 37.7, 38.8),
        ("language_modelling", SMALL, "dpfp-nu1+delta", POSITIONS, 33.9, 35.0),
    ],
)
def test_perplexities_are_those_of_the_tables(suite, protocol, variant, own, validation, test):
    point = Point({**protocol.point_of(variant), **own})
    found = [
        find(published(), suite, variant, metric, point) for metric in ("validation_word_perplexity", "word_perplexity")
    ]
    assert [one.value for one in found if one] == [validation, test]
    assert [one.is_bound for one in found if one] == [variant == "linear" and suite == "unbounded_context"] * 2


@pytest.mark.parametrize(
    "other",
    [{"data": "web-bible"}, {"steps": 1000}, {"stride": 64}, {"context": 128}, {"width": 64}, {"positions": "none"}],
)
def test_a_perplexity_stands_beside_no_case_of_another_text_size_or_training(other):
    point = Point({**SMALL.point, **POSITIONS, **other})
    assert find(published(), "language_modelling", "linear", "word_perplexity", point) is None


def test_each_number_belongs_to_one_place():
    places = Counter((one.suite, one.variant, one.metric, one.point) for one in published())
    assert set(places.values()) == {1}


def test_bleu_is_there_for_every_row_of_table_1():
    valid = {one.variant: one.value for one in published() if one.metric == "bleu"}
    assert valid == {
        "softmax": 27.7,
        "linear": 26.8,
        "performer-m32": 24.4,
        "performer-m128": 25.3,
        "performer-m256": 27.7,
        "dpfp-nu2": 26.9,
        "dpfp-nu4": 27.1,
    }


def test_setting_1_has_thirty_lengths_for_each_of_eight_variants():
    numbers = [one for one in published() if (one.suite, one.metric) == ("capacity", "retrieval_loss")]
    assert len(numbers) == 240
    assert {one.point.integer("pairs") for one in numbers} == set(range(20, 601, 20))


def test_the_log_that_was_cut_off_is_no_result():
    assert find(published(), "rewrite", "dpfp-nu2+delta", "retrieval_loss", Point(keys=100, key_width=64)) is None
    assert find(published(), "rewrite", "dpfp-nu2+delta", "retrieval_loss", Point(keys=120, key_width=64)) is not None


def test_a_run_that_ended_in_nan_says_so_and_has_no_number_where_it_never_had_one():
    found = find(published(), "rewrite", "performer-m64+delta", "retrieval_loss", Point(keys=100, key_width=64))
    assert found is not None
    assert found.note.endswith("the run ended in NaN")
    at_140 = Point(keys=140, key_width=64)
    assert find(published(), "rewrite", "performer-m64+delta", "retrieval_loss", at_140) is None


def test_a_number_belongs_only_to_cases_with_all_its_settings():
    numbers = published()
    assert find(numbers, "capacity", "linear", "retrieval_loss", Point(pairs=60, key_width=16)) is None
    assert find(numbers, "capacity", "linear", "retrieval_loss", Point(pairs=60)) is None
    assert find(numbers, "capacity", "linear", "retrieval_loss", Point(pairs=60, key_width=64, batch=32)) is not None


def test_every_number_names_its_source_and_a_metric_that_exists_or_is_to_come():
    assert all("arXiv:2102.11174" in one.source and one.note for one in published())
    assert {one.metric for one in published()} - set(METRICS) <= {"bleu"}


def test_a_citation_reads_as_one_line():
    found = find(published(), "capacity", "linear", "retrieval_loss", Point(pairs=60, key_width=64))
    assert found is not None
    assert found.citation == "published (arXiv:2102.11174, Fig. 2), seed 1, best loss"
