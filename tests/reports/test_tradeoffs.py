"""Quality against cost, and its front."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.harness.spec import Point
from attnbench.reports.palette import looks
from attnbench.reports.parts import parts_of
from attnbench.reports.section import Reading, Readings
from attnbench.reports.tradeoffs import at_the_end, front_of, is_ahead, tradeoffs


def readings(better, **values):
    return Readings(
        "", better, "1", {name: one if isinstance(one, Reading) else Reading(one) for name, one in values.items()}
    )


def test_the_front_has_whom_nobody_is_ahead_of_from_cheap_to_dear():
    quality = readings("higher", a=1.0, b=3.0, c=2.0, d=5.0)
    cost = readings("lower", a=1.0, b=2.0, c=3.0, d=4.0)
    # c costs more than b and gives less
    assert front_of(quality, cost) == ("a", "b", "d")


def test_directions_are_those_of_the_metrics():
    perplexity = readings("lower", a=100.0, b=50.0, c=120.0)
    speed = readings("higher", a=1000.0, b=100.0, c=900.0)
    assert front_of(perplexity, speed) == ("a", "b")


def test_a_difference_inside_the_noise_is_no_win():
    quality = readings("higher", a=Reading(2.0, 1.0, 3.0, 3), b=Reading(2.5, 1.5, 3.5, 3))
    assert front_of(quality, readings("lower", a=1.0, b=1.0)) == ("a", "b")
    apart = readings("higher", a=Reading(2.0, 1.9, 2.1, 3), b=Reading(2.5, 2.4, 2.6, 3))
    assert front_of(apart, readings("lower", a=1.0, b=1.0)) == ("b",)
    # better beyond the noise on one axis, nominally worse on the other
    assert front_of(apart, readings("lower", a=Reading(1.0, 0.5, 1.5, 3), b=Reading(1.1, 0.6, 1.6, 3))) == ("a", "b")


def test_a_variant_with_one_of_the_two_numbers_is_not_on_the_front():
    assert front_of(readings("higher", a=1.0, b=9.0), readings("lower", a=1.0)) == ("a",)


NUMBERS = st.floats(0.1, 1e6, allow_nan=False)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=12), st.sampled_from(["lower", "higher"]))
def test_somebody_is_always_on_the_front_and_all_others_are_behind_one_of_it(points, better):
    names = [f"v{number}" for number in range(len(points))]
    quality = Readings("", "higher", "1", {name: Reading(one) for name, (one, _) in zip(names, points, strict=True)})
    cost = Readings("", better, "1", {name: Reading(one) for name, (_, one) in zip(names, points, strict=True)})
    front = front_of(quality, cost)
    assert front
    for name in set(names) - set(front):
        q, c = quality.by_variant[name], cost.by_variant[name]
        assert any(
            not is_ahead(q, quality.by_variant[other], "higher") and not is_ahead(c, cost.by_variant[other], better)
            for other in front
        )


@given(NUMBERS, NUMBERS)
def test_of_two_numbers_at_most_one_is_ahead(one, other):
    pair = Reading(one), Reading(other)
    ahead = [is_ahead(*pair, "lower"), is_ahead(*reversed(pair), "lower")]
    assert sum(ahead) == (one != other)


def test_a_metric_is_read_where_the_axis_ends_under_the_settings_of_most_variants_and_the_best_form(made):
    rows = []
    for variant, forms in (("a", ("chunkwise", "recurrent")), ("b", ("chunkwise",))):
        for tokens in (128, 256):
            for place, form in enumerate(forms):
                rate = {"training_tokens_per_second": [tokens * (1.0 + place + one / 10) for one in range(5)]}
                rows += made.attempt("speed", variant, Point(tokens=tokens, heads=8), rate, form=form)
    # another setting that only one variant has, and a length that only one reaches
    rows += made.attempt("speed", "a", Point(tokens=256, heads=1), {"training_tokens_per_second": 1e9})
    rows += made.attempt("speed", "a", Point(tokens=512, heads=8), {"training_tokens_per_second": 1e9})
    (part,) = parts_of(rows, made.suites)
    found = at_the_end(part, "training_tokens_per_second")
    # the middle of five rounds: 256 * 2.2 and 256 * 1.2
    assert {name: one.value for name, one in found.by_variant.items()} == pytest.approx({"a": 563.2, "b": 307.2})
    assert found.says == "training tokens per second at tokens 256, heads 8"
    assert found.by_variant["b"].n == 5
    assert found.by_variant["b"].attempts


def test_every_quality_is_drawn_against_every_cost_that_shares_two_variants(made):
    rows = []
    for place, variant in enumerate(("delta", "linear", "softmax")):
        for number in (20, 40, 80):
            loss = 0.0001 if number <= 20 << place else 0.4
            rows += made.attempt("capacity", variant, made.pairs(number), {"retrieval_loss": loss})
        rows += made.attempt("memory", variant, Point(tokens=64), {"decode_state_bytes": 4096 << place})
    rows += made.attempt("speed", "delta", Point(tokens=64), {"training_tokens_per_second": 10.0})
    (one,) = tradeoffs(parts_of(rows, made.suites), looks(row.variant for row in rows))
    assert one.name == "capacity-state"
    # twice the state holds twice as much
    assert one.front == ("delta", "linear", "softmax")
    assert one.shared == 3
    assert "delta 28.3 for 4.00 KiB" in one.figure.alt
    assert "softmax" in one.figure.svg
    assert "One reading and no spread" in one.figure.caption
    assert all(math.isfinite(reading.value) for reading in one.quality.readings.by_variant.values())


def test_without_two_variants_there_is_no_trade_off(made):
    rows = made.attempt("capacity", "delta", made.pairs(20), {"retrieval_loss": 0.1})
    assert tradeoffs(parts_of(rows, made.suites), looks(["delta"])) == ()
