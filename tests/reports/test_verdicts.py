"""Verdicts: claims made up for the test, and rows whose numbers a reader can compare by hand."""

import pytest
from claimed import LOSS, claim, order, ruling

from attnbench.harness.rows import Status
from attnbench.harness.spec import Point
from attnbench.reports.published.claims import Curve, Difference, Ending, Ratio, Subject, Threshold, Value, claims
from attnbench.reports.verdicts import Ruling, verdict, verdicts

# Value.

VALUE = claim(Value(("linear",), (20, 40), LOSS, 0.5, absolute=0.01, above=0.4))


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ({20: 0.5, 40: 0.509}, Ruling.REPRODUCED),
        ({20: 0.5}, Ruling.DIRECTION_ONLY),
        ({20: 0.5, 40: 0.45}, Ruling.DIRECTION_ONLY),
        ({20: 0.5, 40: 0.3}, Ruling.CONTRADICTED),
        ({60: 0.5}, Ruling.NOT_MEASURED),
        ({}, Ruling.NOT_MEASURED),
    ],
)
def test_a_value_is_reproduced_within_its_tolerance_at_all_points(measured, losses, expected):
    assert ruling(VALUE, measured("linear", losses)) is expected


def test_a_value_without_a_side_has_no_direction(measured):
    plain = claim(Value(("linear",), (20,), LOSS, 0.5, relative=0.1))
    assert ruling(plain, measured("linear", {20: 0.54})) is Ruling.REPRODUCED
    assert ruling(plain, measured("linear", {20: 0.56})) is Ruling.CONTRADICTED
    other = verdict(plain, measured("linear", {20: 0.5}, scale="quick"))
    assert other.ruling is Ruling.NOT_COMPARABLE
    assert other.why.startswith("another protocol (quick scale): says nothing about the published number")


def test_a_value_outside_says_where(measured):
    found = verdict(VALUE, measured("linear", {20: 0.5, 40: 0.3}))
    assert (found.published, found.measured) == ("0.500 ± 0.0100", "0.300 to 0.500")
    assert found.why == "1 of 2 within the tolerance; not linear 0.300 at 40"


def test_a_value_at_no_point_is_read_from_any(measured):
    width = claim(Value(("linear",), (), "feature_width", 64))
    assert ruling(width, measured("linear", {20: 64.0, 600: 64.0}, metric="feature_width")) is Ruling.REPRODUCED
    assert ruling(width, measured("linear", {20: 128.0}, metric="feature_width")) is Ruling.CONTRADICTED


@pytest.mark.parametrize(
    ("bound", "loss", "expected", "why"),
    [
        ({"above": 0.4}, 0.5, Ruling.REPRODUCED, "1 of 1 above 0.4"),
        ({"above": 0.4}, 0.4, Ruling.CONTRADICTED, "0 of 1 above 0.4; not linear 0.400 at 20"),
        ({"below": 0.4}, 0.3, Ruling.REPRODUCED, "1 of 1 below 0.4"),
        ({"below": 0.4}, 0.5, Ruling.CONTRADICTED, "0 of 1 below 0.4; not linear 0.500 at 20"),
        ({"above": 0.1, "below": 0.4}, 0.3, Ruling.REPRODUCED, "1 of 1 above 0.1 and below 0.4"),
    ],
)
def test_of_a_value_of_which_only_a_bound_was_published_the_bound_is_the_claim(measured, bound, loss, expected, why):
    found = verdict(claim(Value(("linear",), (20,), LOSS, None, **bound)), measured("linear", {20: loss}))
    assert (found.ruling, found.why) == (expected, why)
    assert why.endswith(found.published) or f"{found.published};" in why


def test_a_run_that_diverged_is_above_any_bound(measured):
    test = claim(Value(("linear",), (20,), LOSS, None, above=0.4))
    assert ruling(test, measured("linear", {20: 0.1}, status=Status.DIVERGED)) is Ruling.REPRODUCED


# Difference.

MORE = claim(Difference("delta", "linear", "parameters", 16000, 500))


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [(116_384, Ruling.REPRODUCED), (120_000, Ruling.DIRECTION_ONLY), (99_000, Ruling.CONTRADICTED)],
)
def test_a_difference_has_its_direction_on_the_published_side_of_zero(measured, parameters, expected):
    # 116,384 - 100,000 = 16,384, within 500 of 16,000; 20,000 is not; -1,000 is below zero
    rows = measured("delta", {20: parameters}, metric="parameters")
    rows += measured("linear", {20: 100_000}, metric="parameters")
    found = verdict(MORE, rows)
    assert (found.ruling, found.published) == (expected, "16,000 ± 500")


def test_a_difference_needs_both_numbers(measured):
    assert ruling(MORE, measured("delta", {20: 116_384}, metric="parameters")) is Ruling.NOT_MEASURED


# Ratio.


@pytest.mark.parametrize(
    ("upper", "expected"),
    [(1.5, Ruling.REPRODUCED), (1.0, Ruling.DIRECTION_ONLY), (0.05, Ruling.CONTRADICTED)],
)
def test_a_ratio_has_its_direction_on_the_published_side_of_one(measured, upper, expected):
    # 1.5 / 0.1 = 15 is within half of 15; 10 is not within a fifth; 0.5 is below one
    test = claim(Ratio("fwm", "linear", (20,), LOSS, 15.0, 0.2))
    rows = measured("fwm", {20: upper}) + measured("linear", {20: 0.1})
    assert ruling(test, rows) is expected


def test_a_ratio_needs_both_numbers(measured):
    test = claim(Ratio("fwm", "linear", (20,), LOSS, 15.0, 0.2))
    assert ruling(test, measured("fwm", {20: 1.5})) is Ruling.NOT_MEASURED
    lost = measured("linear", {20: 0.1}, status=Status.DIVERGED)
    assert ruling(test, measured("fwm", {20: 1.5}) + lost) is Ruling.NOT_MEASURED


# Order.


def test_an_order_is_reproduced_where_every_group_beats_all_behind_it(measured):
    test = order(["a"], ["b", "c"])
    rows = measured("a", {20: 0.1}) + measured("b", {20: 0.3}) + measured("c", {20: 0.2})
    found = verdict(test, rows)
    assert found.ruling is Ruling.REPRODUCED
    assert found.measured == "at 20: a 0.100, b 0.300, c 0.200"
    assert found.why == "2 of 2 in this order"


def test_a_reversed_order_is_contradicted_and_says_where(measured):
    found = verdict(order(["a"], ["b"]), measured("a", {20: 0.3}) + measured("b", {20: 0.2}))
    assert found.ruling is Ruling.CONTRADICTED
    assert found.why == "0 of 1 in this order; reversed: a 0.300 at 20 against b 0.200 at 20"


def test_one_exception_in_ten_leaves_an_order_its_direction(measured):
    points = tuple(range(20, 220, 20))
    rows = measured("a", dict.fromkeys(points, 0.1) | {40: 0.3}) + measured("b", dict.fromkeys(points, 0.2))
    assert ruling(order(["a"], ["b"], at=points), rows) is Ruling.DIRECTION_ONLY
    rows = measured("a", dict.fromkeys(points, 0.1) | {40: 0.3, 60: 0.3}) + measured("b", dict.fromkeys(points, 0.2))
    assert ruling(order(["a"], ["b"], at=points), rows) is Ruling.CONTRADICTED


def test_losses_at_which_training_ends_are_equal_whichever_is_smaller(measured):
    rows = measured("a", {20: 0.0009, 40: 0.0009}) + measured("b", {20: 0.0003, 40: 0.2})
    assert ruling(order(["a"], ["b"], at=(20, 40), equal_at_most=0.001), rows) is Ruling.REPRODUCED


def test_an_order_of_equals_compares_nothing(measured):
    rows = measured("a", {20: 0.0009}) + measured("b", {20: 0.0003})
    found = verdict(order(["a"], ["b"], equal_at_most=0.001), rows)
    assert found.ruling is Ruling.NOT_COMPARABLE
    assert found.why == "all that was compared is equal"


def test_an_order_of_which_one_side_is_missing_is_not_measured(measured):
    assert ruling(order(["a"], ["b"]), measured("a", {20: 0.1})) is Ruling.NOT_MEASURED


def test_an_order_of_which_a_part_was_compared_has_a_direction(measured):
    found = verdict(order(["a"], ["b"], ["c"]), measured("a", {20: 0.1}) + measured("b", {20: 0.2}))
    assert found.ruling is Ruling.DIRECTION_ONLY
    assert found.why == "1 of 1 in this order; measured: 1 of 3 comparisons"


def test_an_order_may_be_of_points_of_one_variant(measured):
    grows = order([Subject("a", 20)], [Subject("a", 60)], [Subject("a", 100)], at=())
    assert ruling(grows, measured("a", {20: 0.1, 60: 0.2, 100: 0.3})) is Ruling.REPRODUCED
    assert ruling(grows, measured("a", {20: 0.3, 60: 0.2, 100: 0.1})) is Ruling.CONTRADICTED


def test_an_order_may_be_of_points_that_differ_in_several_settings_beside_a_variant_at_any(measured):
    near, far = (Point(pairs=at, batch=batch) for at, batch in ((20, 32), (20, 64)))
    test = order([Subject("a", near)], ["b"], [Subject("a", far)], at=())
    rows = measured("a", {20: 0.1}) + measured("a", {20: 0.3}, batch=64) + measured("b", {60: 0.2}, batch=16)
    # of another batch, or with other pairs: neither of the two
    rows += measured("a", {20: 0.9}, batch=128) + measured("a", {60: 0.9}, batch=64)
    found = verdict(test, rows)
    assert found.ruling is Ruling.REPRODUCED
    assert found.measured == "a 0.100 at batch 32 and pairs 20, b 0.200, a 0.300 at batch 64 and pairs 20"


def test_an_order_at_points_of_several_settings_is_compared_at_each(measured):
    test = order(["a"], ["b"], at=(Point(batch=32), Point(batch=64)))
    rows = [
        row
        for batch in (32, 64)
        for name, loss in (("a", 0.1), ("b", 0.2))
        for row in measured(name, {20: loss}, batch=batch)
    ]
    found = verdict(test, rows)
    assert (found.ruling, found.why) == (Ruling.REPRODUCED, "2 of 2 in this order")
    assert found.measured == "at batch 32: a 0.100, b 0.200; at batch 64: a 0.100, b 0.200"


def test_the_worst_a_run_can_do_is_diverge(measured):
    rows = measured("a", {20: 5.0}) + measured("b", {20: 0.1}, status=Status.DIVERGED)
    assert ruling(order(["a"], ["b"]), rows) is Ruling.REPRODUCED


def test_the_reach_is_how_far_every_loss_is_small_enough(measured):
    points = (20, 40, 60)
    # a fails at 60; b at 40, and what it retrieves beyond does not count
    rows = measured("a", {20: 0.0009, 40: 0.001, 60: 0.2}) + measured("b", {20: 0.0009, 40: 0.0011, 60: 0.0001})
    test = order(["a"], ["b"], at=points, better="higher", quantity="reach")
    found = verdict(test, rows)
    assert found.ruling is Ruling.REPRODUCED
    assert found.measured == "pairs reached: a 40, b 20"
    fewer = verdict(test, [row for row in rows if row.point["pairs"] != 60])
    assert fewer.ruling is Ruling.DIRECTION_ONLY
    assert fewer.why == "1 of 1 in this order; read from 2 of 3 points"


def test_a_reach_that_ends_with_the_points_of_both_compares_nothing(measured):
    rows = measured("a", {20: 0.0001, 40: 0.0001}) + measured("b", {20: 0.0001, 40: 0.0001})
    test = order(["a"], ["b"], at=(20, 40), better="higher", quantity="reach")
    assert ruling(test, rows) is Ruling.NOT_COMPARABLE


def test_steps_count_only_for_a_run_that_got_there(measured):
    # b stopped sooner, but without success
    rows = measured("a", {20: 0.0009}, steps=700) + measured("b", {20: 0.1}, steps=500)
    found = verdict(order(["a"], ["b"], quantity="steps_to_solve"), rows)
    assert found.ruling is Ruling.REPRODUCED
    assert found.measured == "at 20: a 700, b never"


# Threshold.

BORDER = claim(Threshold(("linear",), (20, 40, 60), (80, 100, 120), LOSS, 0.001, slack=20))
HELD = {20: 0.0005, 40: 0.0005, 60: 0.001}
BROKEN = {80: 0.1, 100: 0.2, 120: 0.3}


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        (HELD | BROKEN, Ruling.REPRODUCED),
        ({60: 0.0009, 80: 0.1}, Ruling.DIRECTION_ONLY),
        # the border lies one point off: within the slack
        (HELD | BROKEN | {60: 0.2}, Ruling.DIRECTION_ONLY),
        (HELD | BROKEN | {80: 0.0002}, Ruling.DIRECTION_ONLY),
        # two points off
        (HELD | BROKEN | {40: 0.2, 60: 0.2}, Ruling.CONTRADICTED),
        (HELD | BROKEN | {100: 0.0002}, Ruling.CONTRADICTED),
        # a border is not seen from one side
        (HELD, Ruling.NOT_COMPARABLE),
        (BROKEN, Ruling.NOT_COMPARABLE),
    ],
)
def test_a_threshold_is_reproduced_where_all_points_are_on_the_claimed_side(measured, losses, expected):
    assert ruling(BORDER, measured("linear", losses)) is expected


def test_a_threshold_says_what_was_seen_on_each_side(measured):
    found = verdict(BORDER, measured("linear", HELD | BROKEN | {80: 0.0002}))
    assert found.measured == "≤ 0.001 at 20–80, 0.200 to 0.300 at 100–120"
    assert found.why == (
        "5 of 6 on the claimed side of 0.001; not linear 0.00020 at 80; the border is at most 20 pairs off"
    )


def test_a_claim_that_something_never_holds_has_one_side_and_counts_divergence_as_failing(measured):
    never = claim(Threshold(("a", "b"), (), (20, 40), LOSS, 0.001))
    rows = measured("a", {20: 0.1, 40: 0.5}) + measured("b", {20: 0.0, 40: 0.0}, status=Status.DIVERGED)
    found = verdict(never, rows)
    assert found.ruling is Ruling.REPRODUCED
    assert found.measured == "a: 0.100 to 0.500 at 20–40; b: 2 diverged at 20–40"
    assert ruling(never, measured("a", {20: 0.1, 40: 0.0005})) is Ruling.CONTRADICTED


# Curve, against the released logs: linear is 0.00089 at 20, 0.0245 at 60, 0.451 at 600.

CURVE = claim(Curve("linear", (20, 60, 600), LOSS))


@pytest.mark.parametrize(
    ("losses", "expected", "why"),
    [
        ({20: 0.0005, 60: 0.03, 600: 0.4}, Ruling.REPRODUCED, "3 of 3 agree"),
        (
            {20: 0.0005, 60: 0.03, 600: 0.3},
            Ruling.DIRECTION_ONLY,
            "2 of 3 agree, 3 of 3 are on the same side of 0.001; at 600: both fail, with different losses",
        ),
        (
            {20: 0.0005, 60: 0.0005, 600: 0.4},
            Ruling.CONTRADICTED,
            "2 of 3 agree, 2 of 3 are on the same side of 0.001; at 60: measured retrieves, published does not",
        ),
        ({20: 0.0005}, Ruling.DIRECTION_ONLY, "1 of 1 agree; measured: 1 of 3 points"),
    ],
)
def test_a_curve_is_reproduced_where_all_its_points_agree(measured, losses, expected, why):
    found = verdict(CURVE, measured("linear", losses))
    assert (found.ruling, found.why) == (expected, why)
    assert found.published == "3 runs, 0.00089 to 0.451"


def test_a_curve_lists_what_it_compares_with_nothing(measured):
    # the log at 100 keys broke off; those of FAVOR+ from 40 keys on ended in NaN
    cut = claim(Curve("dpfp-nu2+delta", (80, 100), LOSS), suite="rewrite", axis="keys")
    found = verdict(cut, measured("dpfp-nu2+delta", {80: 0.0005, 100: 0.0005}, suite="rewrite"))
    assert found.ruling is Ruling.REPRODUCED
    assert found.why == "1 of 1 agree; 1 published in NaN or cut off are compared with nothing"
    nan = claim(Curve("performer-m64+delta", (20, 40), LOSS), suite="rewrite", axis="keys")
    rows = measured("performer-m64+delta", {20: 0.11}, suite="rewrite")
    rows += measured("performer-m64+delta", {40: 0.2}, suite="rewrite", status=Status.DIVERGED)
    assert verdict(nan, rows).why == "1 of 1 agree; 1 ended in NaN on both sides"


def test_a_curve_of_which_only_excluded_points_were_measured_is_not_comparable(measured):
    nan = claim(Curve("performer-m64+delta", (20, 40), LOSS), suite="rewrite", axis="keys")
    found = verdict(nan, measured("performer-m64+delta", {40: 0.2}, suite="rewrite"))
    assert found.ruling is Ruling.NOT_COMPARABLE
    assert found.why.startswith("nothing to compare; 1 published in NaN or cut off")


# Ending.


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ((Status.DIVERGED, Status.DIVERGED), Ruling.REPRODUCED),
        ((Status.DIVERGED, Status.OK), Ruling.CONTRADICTED),
        # a timeout says nothing of the variant
        ((Status.DIVERGED, Status.TIMEOUT), Ruling.DIRECTION_ONLY),
        ((Status.TIMEOUT, Status.TIMEOUT), Ruling.NOT_MEASURED),
    ],
)
def test_an_ending_is_reproduced_where_the_cases_end_so(measured, statuses, expected):
    test = claim(Ending(("a",), (20, 40), Status.DIVERGED))
    rows = [
        row
        for at, status in zip((20, 40), statuses, strict=True)
        for row in measured("a", {at: 0.1}, status=status, reason="x")
    ]
    assert ruling(test, rows) is expected


def test_an_ending_at_no_point_is_read_from_any(measured):
    test = claim(Ending(("a",), (), Status.DIVERGED))
    assert ruling(test, measured("a", {60: 0.1}, status=Status.DIVERGED)) is Ruling.REPRODUCED
    assert ruling(test, measured("a", {60: 0.1})) is Ruling.CONTRADICTED


# All claims.


def test_without_rows_every_claim_is_not_measured():
    assert {one.ruling for one in verdicts([], claims())} == {Ruling.NOT_MEASURED}


def test_every_ruling_has_a_symbol_of_its_own():
    assert len({ruling.symbol for ruling in Ruling}) == len(Ruling)
