"""Two selections of rows against each other: what is matched, the ratio, and its interval."""

import io
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from attnbench.harness.errors import BadParameter
from attnbench.harness.rows import Status
from attnbench.harness.spec import Point
from attnbench.reports.comparison import (
    compare,
    interval_of,
    interval_of_medians,
    parse_selector,
    show_comparison,
)

SPEED = "training_tokens_per_second"
ROUNDS = (100.0, 101.0, 99.0, 100.0, 102.0, 98.0, 100.0)


def point(tokens=256, **more):
    return Point(tokens=tokens, phase="training", **more)


def compared(rows, a, b):
    return compare(rows, parse_selector(a), parse_selector(b))


def only(rows, a, b):
    (one,) = compared(rows, a, b).cases
    return one


# What is asked.


def test_a_selector_names_keys_with_values():
    assert parse_selector("variant=delta,form=triton") == {"variant": "delta", "form": "triton"}
    # a variant's name may have anything but a comma
    assert parse_selector("variant=a=b") == {"variant": "a=b"}


@pytest.mark.parametrize("text", ["", "delta", "variant=", "=delta", "variant=delta,", "variant=delta,form"])
def test_what_is_no_selector_is_refused_with_an_example(text):
    with pytest.raises(BadParameter, match="as in variant=delta,form=chunkwise"):
        parse_selector(text)


def test_a_key_named_twice_is_refused():
    with pytest.raises(BadParameter, match="names each key once"):
        parse_selector("form=step,form=sdpa")


def test_a_key_that_no_row_has_is_refused_with_the_nearest(made):
    rows = made.attempt("speed", "delta", point(), {SPEED: 100.0})
    with pytest.raises(BadParameter, match=r"no key 'varant' to select by\. .*Did you mean 'variant'"):
        compared(rows, "varant=delta", "variant=linear")


def test_a_side_that_selects_nothing_that_ended_well_is_refused(made):
    rows = made.attempt("speed", "delta", point(), {SPEED: 100.0})
    rows += made.attempt("speed", "linear", point(), status=Status.ERROR, reason="no")
    with pytest.raises(BadParameter, match="nothing that is stored and ended well fits variant=linear"):
        compared(rows, "variant=delta", "variant=linear")


def test_a_side_that_selects_two_of_a_kind_is_refused(made):
    rows = made.attempt("speed", "delta", point(), {SPEED: 100.0})
    for form in ("chunkwise", "parallel"):
        rows += made.attempt("speed", "linear", point(), {SPEED: 100.0}, form=form)
    with pytest.raises(BadParameter, match=r"variant=linear selects more than one .*chunkwise.*parallel.*Say which"):
        compared(rows, "variant=delta", "variant=linear")
    assert only(rows, "variant=delta", "variant=linear,form=parallel").ratio.value == 1


def test_sides_without_a_case_in_common_are_refused_and_told(made):
    rows = made.attempt("speed", "delta", point(256), {SPEED: 100.0})
    rows += made.attempt("speed", "linear", point(1024), {SPEED: 100.0})
    with pytest.raises(BadParameter, match=r"no case in common.*A is speed/delta.*256.*B is speed/linear.*1024"):
        compared(rows, "variant=delta", "variant=linear")
    assert only(rows, "variant=delta,tokens=256", "variant=linear,tokens=1024").ratio.value == 1


# What is matched.


def test_cases_are_matched_in_all_that_neither_side_names(made):
    rows = []
    for tokens, speeds in ((256, (100.0, 200.0)), (1024, (100.0, 50.0))):
        for variant, speed in zip(("softmax", "delta"), speeds, strict=True):
            form = "sdpa" if variant == "softmax" else "chunkwise"
            rows += made.attempt("speed", variant, point(tokens), {SPEED: speed}, form=form)
    rows += made.attempt("speed", "delta", point(4096), {SPEED: 1.0})
    found = compared(rows, "variant=softmax", "variant=delta")
    assert [(dict(one.key)["tokens"], one.a, one.b, one.ratio.value) for one in found.cases] == [
        (256, 100, 200, 2),
        (1024, 100, 50, 0.5),
    ]
    assert (found.only_a, found.only_b) == (0, 1)


def test_two_runs_of_one_case_are_compared_by_their_names(made):
    rows = made.attempt("speed", "delta", point(), {SPEED: 100.0}, run="old", testbed="here")
    rows += made.attempt("speed", "delta", point(), {SPEED: 150.0}, run="new", testbed="here")
    found = compared(rows, "run=old", "run=new")
    assert [one.ratio.value for one in found.cases] == [1.5]
    assert not found.is_of_two_machines


def test_of_several_attempts_of_one_side_the_newest_counts(made):
    rows = made.attempt("speed", "delta", point(), {SPEED: 1.0})
    rows += made.attempt("speed", "linear", point(), {SPEED: 100.0})
    rows += made.attempt("speed", "delta", point(), {SPEED: 50.0})
    assert only(rows, "variant=linear", "variant=delta").ratio.value == 0.5


def test_timings_of_two_machines_are_told(made):
    rows = made.attempt("speed", "delta", point(), {SPEED: 100.0}, run="old", testbed="there")
    rows += made.attempt("speed", "delta", point(), {SPEED: 150.0}, run="new", testbed="here")
    assert compared(rows, "run=old", "run=new").is_of_two_machines


def test_there_is_no_ratio_to_zero(made):
    rows = made.attempt("speed", "delta", point(), {SPEED: 0.0})
    rows += made.attempt("speed", "linear", point(), {SPEED: 100.0})
    assert compared(rows, "variant=linear", "variant=delta").cases == ()


# Ratios and intervals.


def test_one_reading_a_side_has_no_interval(made):
    rows = made.attempt("speed", "delta", point(), {SPEED: 100.0})
    rows += made.attempt("speed", "linear", point(), {SPEED: 300.0})
    ratio = only(rows, "variant=delta", "variant=linear").ratio
    assert (ratio.value, ratio.low, ratio.high, ratio.n, ratio.is_apart) == (3, None, None, 1, False)


def test_rounds_of_a_timing_give_an_interval(made):
    rows = made.attempt("speed", "delta", point(), {SPEED: ROUNDS})
    rows += made.attempt("speed", "linear", point(), {SPEED: [3 * one for one in ROUNDS]})
    ratio = only(rows, "variant=delta", "variant=linear").ratio
    # timed in turn by one run, so drawn together: three in every round
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((3, 3, 3))
    assert (ratio.n, ratio.counted, ratio.is_apart) == (7, "rounds", True)


def test_rounds_of_two_runs_are_drawn_apart(made):
    rows = made.attempt("speed", "delta", point(), {SPEED: ROUNDS}, run="old")
    rows += made.attempt("speed", "delta", point(), {SPEED: ROUNDS}, run="new")
    ratio = only(rows, "run=old", "run=new").ratio
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low < 1 < ratio.high
    assert not ratio.is_apart


def test_seeds_are_paired_two_give_a_range_and_three_an_interval(made):
    rows = []
    for seed, ratio in enumerate((2.0, 4.0, 3.0)):
        rows += made.attempt("speed", "delta", point(), {SPEED: 10.0 ** (seed + 1)}, seed=seed)
        rows += made.attempt("speed", "linear", point(), {SPEED: ratio * 10.0 ** (seed + 1)}, seed=seed)
    two = [row for row in rows if row.seed < 2]
    ratio = only(two, "variant=delta", "variant=linear").ratio
    assert (ratio.value, ratio.low, ratio.high, ratio.n, ratio.counted) == (3, 2, 4, 2, "seeds")
    ratio = only(rows, "variant=delta", "variant=linear").ratio
    assert (ratio.value, ratio.low, ratio.high, ratio.n) == (3, 2, 4, 3)


NUMBERS = st.lists(st.floats(0.5, 2.0), min_size=5, max_size=12)


@given(samples=NUMBERS, scale=st.floats(0.01, 100.0))
@settings(max_examples=30)
def test_what_is_paired_and_a_multiple_has_that_ratio_without_doubt(samples, scale):
    found = interval_of_medians(samples, [scale * one for one in samples], is_paired=True)
    assert found == pytest.approx((scale, scale, scale))


@given(a=NUMBERS, b=NUMBERS, scale=st.floats(0.01, 100.0))
@settings(max_examples=30)
def test_a_larger_unit_changes_the_interval_by_itself(a, b, scale):
    plain = interval_of_medians(a, b, is_paired=False)
    scaled = interval_of_medians(a, [scale * one for one in b], is_paired=False)
    assert scaled == pytest.approx([scale * one for one in plain])


@given(ratios=st.lists(st.floats(0.1, 10.0), min_size=3, max_size=9))
@settings(max_examples=30)
def test_an_interval_lies_within_what_was_seen_and_comes_out_the_same_twice(ratios):
    low, high = interval_of(ratios)
    assert min(ratios) <= low <= high <= max(ratios)
    assert interval_of(ratios) == (low, high)
    assert math.isfinite(high)


# What is printed.


class Reader:
    def __init__(self, rows):
        self.stored = rows

    def rows(self, *, latest=True):
        assert not latest
        return self.stored


def printed(rows, a, b):
    console = Console(file=io.StringIO(), width=120, color_system=None)
    show_comparison(Reader(rows), console, a, b)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_comparison_reads_like_this(made):
    rows = []
    for tokens in (256, 1024):
        rows += made.attempt("speed", "softmax", point(tokens), {SPEED: ROUNDS}, form="sdpa")
        rows += made.attempt("speed", "delta", point(tokens), {SPEED: [one * tokens / 512 for one in ROUNDS]})
    rows += made.attempt("speed", "delta", point(4096), {SPEED: 1.0})
    assert printed(rows, "variant=softmax", "variant=delta") == [
        "A: variant=softmax",
        "B: variant=delta",
        "",
        "speed, quick, cpu",
        "┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━┳━━━━━┳━━━━━┳━━━━━━━━━━━┳━━━━━━━━┓",
        "┃ metric                     ┃ tokens ┃   A ┃   B ┃     B / A ┃ better ┃",
        "┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━╇━━━━━╇━━━━━╇━━━━━━━━━━━╇━━━━━━━━┩",
        "│ training tokens per second │ 256    │ 100 │  50 │       0.5 │      A │",
        "│                            │        │     │     │ 0.5 – 0.5 │        │",
        "│ training tokens per second │ 1,024  │ 100 │ 200 │         2 │      B │",
        "│                            │        │     │     │     2 – 2 │        │",
        "└────────────────────────────┴────────┴─────┴─────┴───────────┴────────┘",
        "B / A of the medians, below it 95 % of a bootstrap over 7 rounds a side, unless the cell says n. Better: the side that",
        "its metric's direction and the interval speak for. The same everywhere: threads 1, phase training.",
        "1 number of B without a counterpart.",
    ]


def test_what_the_interval_does_not_tell_apart_has_no_better_side(made):
    rows = made.attempt("speed", "delta", point(), {SPEED: ROUNDS}, run="old")
    rows += made.attempt("speed", "delta", point(), {SPEED: ROUNDS}, run="new")
    assert "not told apart" in "\n".join(printed(rows, "run=old", "run=new"))


def test_on_a_metric_where_less_is_better_the_smaller_side_is(made):
    rows = []
    for seed in range(3):
        rows += made.attempt("capacity", "linear", made.pairs(20), {"retrieval_loss": 0.5}, seed=seed)
        rows += made.attempt("capacity", "delta", made.pairs(20), {"retrieval_loss": 0.25}, seed=seed)
    (line,) = [line for line in printed(rows, "variant=linear", "variant=delta") if "retrieval loss" in line]
    assert line.split("│")[-2].strip() == "B"


def test_bytes_are_told_in_the_unit_that_suits_them(made):
    rows = made.attempt("memory", "delta", point(), {"training_peak_bytes": 3 * 2.0**20})
    rows += made.attempt("memory", "linear", point(), {"training_peak_bytes": 2.0**20})
    (line,) = [line for line in printed(rows, "variant=linear", "variant=delta") if "peak bytes" in line]
    assert "1.00 MiB" in line
    assert "3.00 MiB" in line
