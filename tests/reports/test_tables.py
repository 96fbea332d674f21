"""From rows to statistics."""

import math
from dataclasses import replace

import pytest

from attnbench.harness.rows import Status
from attnbench.harness.spec import Point
from attnbench.reports.tables import (
    beaten_by_counting,
    by_conditions,
    floors,
    frame,
    layout,
    mixtures,
    order,
    status_words,
    summary,
)


def cell(rows, metric="retrieval_loss", axis="pairs", variant=None, at=None):
    """The statistics of one cell of a summary: the only one, if it is not named."""
    lines = [line for line in summary(frame(rows), metric, axis).lines() if variant in {None, line.key[0]}]
    cells = [cell for line in lines for value, cell in line.cells.items() if at in {None, value}]
    assert len(cells) == 1
    return cells[0]


def seeds(made, values, **more):
    return [
        row
        for seed, value in enumerate(values)
        for row in made.attempt("capacity", "linear", made.pairs(20), {"retrieval_loss": value}, seed=seed, **more)
    ]


def test_the_frame_has_one_line_a_row_and_one_column_a_setting(made):
    rows = made.attempt("capacity", "linear", made.pairs(20), {"retrieval_loss": 0.25, "training_steps": 100})
    data = frame(rows)
    assert list(data["metric"]) == ["retrieval_loss", "training_steps"]
    assert list(data["point.pairs"]) == [20, 20]
    assert list(data["value"]) == [0.25, 100.0]


def test_a_setting_that_a_case_does_not_have_leaves_the_others_their_type(made):
    rows = made.attempt("capacity", "a", made.pairs(20)) + made.attempt("capacity", "b", Point(pairs=20))
    assert list(frame(rows)["point.key_width"]) == [64, "–"]


def test_three_seeds_give_their_median_with_min_and_max(made):
    found = cell(seeds(made, [0.3, 0.1, 0.2]))
    assert (found["median"], found["low"], found["high"]) == (0.2, 0.1, 0.3)
    assert (found["n"], found["counted"], found["spread"]) == (3, "seeds", "min–max")


def test_from_four_seeds_on_the_spread_is_the_interquartile_range(made):
    # quartiles of 1 2 3 4 5 are 2 and 4
    found = cell(seeds(made, [5, 1, 4, 2, 3]))
    assert (found["median"], found["low"], found["high"]) == (3, 2, 4)
    assert (found["n"], found["spread"]) == (5, "interquartile range")


def test_one_seed_has_no_spread(made):
    found = cell(seeds(made, [0.3]))
    assert found["median"] == 0.3
    assert found["spread"] == ""


def test_the_samples_of_a_single_timing_are_its_spread(made):
    point = Point(tokens=128)
    rows = made.attempt("speed", "linear", point, {"training_tokens_per_second": [90, 100, 110]})
    found = cell(rows, "training_tokens_per_second", "tokens")
    assert (found["median"], found["low"], found["high"]) == (100, 90, 110)
    assert (found["n"], found["counted"]) == (3, "samples")


def test_samples_that_do_not_lie_around_the_value_are_not_its_spread(made):
    rows = made.attempt("speed", "linear", Point(tokens=128), {"training_tokens_per_second": [0.1, 0.2, 0.3]})
    from dataclasses import replace

    found = cell([replace(row, value=640.0) for row in rows], "training_tokens_per_second", "tokens")
    assert (found["median"], found["n"], found["spread"]) == (640.0, 1, "")


@pytest.mark.parametrize("status", [one for one in Status if one is not Status.OK])
def test_a_failure_never_enters_a_median(made, status):
    rows = seeds(made, [0.1, 0.2])
    rows += made.attempt(
        "capacity", "linear", made.pairs(20), {"retrieval_loss": 9.0}, seed=2, status=status, reason="x"
    )
    found = cell(rows)
    assert found["median"] == pytest.approx(0.15)
    assert found["n"] == 2
    assert found["asked"] == 3
    assert dict(found["failed"]) == {f"{status.value.replace('_', ' ')}: x": 1}


def test_a_number_that_is_not_finite_is_told_in_words(made):
    found = cell(seeds(made, [math.nan]))
    assert math.isnan(found["median"])
    assert dict(found["failed"]) == {"not finite": 1}


def test_a_failure_says_its_status_and_its_reason():
    assert status_words("diverged", "the loss was not finite") == "diverged: the loss was not finite"
    assert status_words("out_of_memory", "") == "out of memory"


def test_settings_are_told_apart_as_constant_along_the_axis_or_varying(made):
    rows = []
    for tokens, batch in ((128, 8), (256, 4)):
        for form in ("chunkwise", "recurrent"):
            rows += made.attempt("speed", "linear", Point(tokens=tokens, batch=batch, heads=4), form=form)
    found = layout(frame(rows), "tokens")
    assert found.constant == {"heads": 4, "threads": 1}
    assert found.along_axis == {"batch": {128: 8, 256: 4}}
    assert found.varying == ("form",)


def test_a_counted_floor_makes_no_setting_vary(made):
    rows = made.attempt("language_modelling", "linear", Point(context=64, width=32))
    rows += made.attempt("language_modelling", "bigram", Point(context=64), form="count")
    assert layout(frame(rows), "context").varying == ()


def test_a_metric_is_not_the_business_of_cases_that_measure_another_under_their_setting(made):
    rows = made.attempt("speed", "a", Point(tokens=1, phase="training"), {"training_tokens_per_second": 5})
    rows += made.attempt("speed", "a", Point(tokens=1, phase="prefill"), {"prefill_tokens_per_second": 7})
    rows += made.attempt("speed", "b", Point(tokens=1, phase="training"), status=Status.TIMEOUT)
    rows += made.attempt("speed", "b", Point(tokens=1, phase="prefill"), status=Status.ERROR)
    training = {
        line.key[0]: line.cells[1] for line in summary(frame(rows), "training_tokens_per_second", "tokens").lines()
    }
    assert training["a"]["median"] == 5
    assert dict(training["b"]["failed"]) == {"timeout": 1}


def test_the_lowest_floor_counts_and_a_number_above_it_compares_nothing(made):
    rows = []
    for name, value in (("unigram", 800.0), ("bigram", 300.0)):
        rows += made.attempt("language_modelling", name, Point(context=64), {"word_perplexity": value}, form="count")
    found = floors(summary(frame(rows), "word_perplexity", "context").lines(), "lower")
    assert found == {64: ("bigram", 300.0)}
    assert beaten_by_counting(301.0, found[64], "lower") == "above the bigram floor: compares nothing"
    assert beaten_by_counting(300.0, found[64], "lower") == ""
    assert beaten_by_counting(299.0, found[64], "lower") == ""
    assert beaten_by_counting(299.0, None, "lower") == ""


def test_where_higher_is_better_the_highest_floor_counts_and_a_number_below_it_compares_nothing(made):
    rows = []
    for name, value in (("majority", 0.17), ("first_operator", 0.37)):
        rows += made.attempt("listops", name, Point(longest=64), {"classification_accuracy": value}, form="count")
    sums = summary(frame(rows), "classification_accuracy", "longest")
    assert sums.better == "higher"
    found = floors(sums.lines(), sums.better)
    assert found == {64: ("first_operator", 0.37)}
    assert beaten_by_counting(0.36, found[64], "higher") == "below the first_operator floor: compares nothing"
    assert beaten_by_counting(0.37, found[64], "higher") == ""
    assert beaten_by_counting(0.38, found[64], "higher") == ""


def test_rows_of_different_scale_device_or_testbed_stand_apart_and_larger_scales_come_first(made):
    rows = made.attempt("capacity", "a", made.pairs(1), scale="smoke")
    rows += made.attempt("capacity", "a", made.pairs(1), scale="quick", device="cuda")
    rows += made.attempt("capacity", "a", made.pairs(1), scale="quick")
    rows += made.attempt("capacity", "a", made.pairs(1), scale="quick", testbed="box, 2 cores")
    assert [str(part) for part in by_conditions(rows)] == [
        "quick scale on cpu",
        "quick scale on box, 2 cores",
        "quick scale on cuda",
        "smoke scale on cpu",
    ]


def test_names_sort_as_people_count_and_numbers_before_texts():
    assert sorted(["performer-m128", "performer-m64", "delta", 100, 20], key=order) == [
        20,
        100,
        "delta",
        "performer-m64",
        "performer-m128",
    ]


def test_seeds_of_one_cell_by_different_code_are_told(made):
    def seeds(variant, number, codes, **more):
        return [
            replace(row, code_hash=code)
            for seed, code in enumerate(codes)
            for row in made.attempt(
                "capacity", variant, made.pairs(number), {"retrieval_loss": 0.25}, seed=seed, **more
            )
        ]

    alike = seeds("linear", 20, "aa") + seeds("linear", 60, "bb") + seeds("dpfp-nu2", 20, "cc")
    assert mixtures(alike) == ()
    failed = made.attempt("capacity", "linear", made.pairs(20), seed=2, status=Status.TIMEOUT, reason="300 s")
    assert mixtures(alike + failed) == ()
    mixed = seeds("dpfp-nu10", 20, "ab") + seeds("dpfp-nu2", 60, "ab")
    assert mixtures(alike + mixed) == (
        "Some cells have seeds that were measured by different code or on different data: dpfp-nu2, dpfp-nu10",
    )
