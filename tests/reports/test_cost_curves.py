"""Exponents and crossovers of times that grow as they are told to."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.harness.rows import Status
from attnbench.harness.spec import Point
from attnbench.reports.cost_curves import (
    CostCurve,
    crossover,
    crossover_written,
    curves_of,
    exponent,
    fastest,
    interval_written,
)
from attnbench.reports.cost_passage import cost_passage, cost_table

TRAINING, DECODING = "training_tokens_per_second", "decode_tokens_per_second"
LENGTHS = (256, 512, 1024, 2048, 4096)
JITTER = (1.0, 1.02, 0.98, 1.01, 0.99, 1.0, 1.03)


def curve(seconds, variant="delta", form="chunkwise", lengths=LENGTHS, jitter=JITTER):
    return CostCurve(variant, form, TRAINING, (), {T: tuple(seconds(T) * one for one in jitter) for T in lengths})


def softmax(lengths=LENGTHS, jitter=JITTER):
    """One second at 1,024 tokens, quadratic."""
    return curve(lambda T: (T / 1024) ** 2, "softmax", "sdpa", lengths, jitter)


@given(power=st.floats(0.0, 3.0), scale=st.floats(1e-6, 10.0))
@settings(max_examples=30, deadline=None)
def test_a_power_of_the_length_is_found_and_lies_in_its_interval(power, scale):
    found = exponent(curve(lambda T: scale * T**power))
    assert found.at == pytest.approx(power, abs=1e-6)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.at <= found.high
    assert found.high - found.low < 0.1


def test_what_a_short_text_costs_whatever_it_is_does_not_count():
    # an overhead that is all of the time up to 256 tokens; fitted from 512 on, an eighth of the longest
    found = exponent(curve(lambda T: max(T, 512) ** 2))
    assert found.at == pytest.approx(2)


def test_two_lengths_are_enough_for_an_exponent():
    assert exponent(curve(lambda T: T, lengths=(64, 4096))).at == pytest.approx(1)


def test_a_single_round_gives_no_interval():
    found = exponent(curve(lambda T: T, jitter=(1.0,)))
    assert (found.low, found.high) == (None, None)
    assert interval_written(found, LENGTHS) == ""


@given(at=st.floats(300.0, 4000.0))
@settings(max_examples=30, deadline=None)
def test_a_linear_variant_overtakes_where_the_times_are_equal(at):
    # (T / 1024)^2 = a T at T = a 1024^2
    found = crossover(curve(lambda T: T * at / 1024**2), softmax())
    assert found is not None
    assert found.at == pytest.approx(at, rel=1e-6)
    # rounds are drawn for both sides together, and each side has the same jitter
    assert (found.low, found.high) == pytest.approx((at, at))


def test_an_overtaking_beyond_the_lengths_is_told_as_such():
    never = crossover(curve(lambda T: 100 * T**2), softmax())
    always = crossover(curve(lambda T: 1e-9 * T), softmax())
    assert never is not None
    assert always is not None
    assert (never.at, always.at) == (math.inf, -math.inf)
    assert crossover_written(never, LENGTHS) == "none up to 4,096"
    assert crossover_written(always, LENGTHS) == "from 256 on"


def test_faster_only_for_a_while_is_not_faster_from_there_on():
    found = crossover(curve(lambda T: 0.5 * (T / 1024) ** 2 if T < 4096 else 100.0), softmax())
    assert found is not None
    assert found.at == math.inf


def test_noise_gives_an_interval_that_may_reach_beyond_the_lengths():
    wild = (0.2, 5.0, 1.0, 0.3, 4.0, 1.0, 2.0)
    found = crossover(curve(lambda T: (T / 1024) ** 2 * (0.9 if T > 2048 else 1.1), jitter=wild), softmax())
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.at <= found.high
    assert interval_written(found, LENGTHS).endswith("> 4,096")


def test_without_two_lengths_in_common_there_is_no_crossover():
    assert crossover(curve(lambda T: T, lengths=(64, 128)), softmax()) is None
    assert crossover(curve(lambda T: T, lengths=(128, 256)), softmax()) is None


def test_of_several_forms_the_fastest_at_its_longest_text_is_taken():
    slow, fast = curve(lambda T: 2 * T, form="recurrent"), curve(lambda T: T)
    assert fastest([slow, fast]) is fast
    assert fastest([]) is None


# From rows.


def point(tokens, phase="training"):
    return Point(tokens=tokens, phase=phase, batch=1)


def test_curves_are_made_of_times_and_not_of_rates(made):
    rows = []
    for tokens in (256, 512):
        rows += made.attempt("speed", "linear", point(tokens), {TRAINING: [1024.0, 512.0, 256.0]})
        rows += made.attempt("speed", "linear", point(tokens, "decoding"), {DECODING: [4.0, 2.0, 1.0]}, form="step")
    training, decoding = curves_of(rows, "tokens")
    assert training.seconds == {256: (0.25, 0.5, 1.0), 512: (0.5, 1.0, 2.0)}
    # a token behind so many others
    assert decoding.seconds == {256: (0.25, 0.5, 1.0), 512: (0.25, 0.5, 1.0)}


def test_what_failed_what_is_no_timing_and_a_single_length_make_no_curve(made):
    rows = made.attempt("speed", "linear", point(256), {TRAINING: [1.0, 1.0]})
    rows += made.attempt("speed", "linear", point(512), status=Status.ERROR, reason="no")
    rows += made.attempt("speed", "linear", point(512), {"observed_tokens_per_second": 1.0})
    assert curves_of(rows, "tokens") == []
    assert cost_table(rows, made.speed) is None
    assert cost_passage(rows, made.speed) == ()


def test_the_table_has_a_line_a_variant_form_and_metric(made):
    rows = []
    for tokens in LENGTHS:
        # rates: quadratic, linear, and linear but slower everywhere
        for variant, form, rate in (
            ("softmax", "sdpa", 1e6 / tokens),
            ("linear", "chunkwise", 1000.0),
            ("linear", "recurrent", 10.0),
        ):
            rows += made.attempt("speed", variant, point(tokens), {TRAINING: [rate] * 5}, form=form)
    table = cost_table(rows, made.speed)
    assert table is not None
    assert table.heads == ("variant", "form", "metric")
    told = [(*line.labels[:2], *(cell.text for cell in line.cells)) for line in table.lines]
    assert told == [
        ("linear", "chunkwise", "1.00", "1,000"),
        ("linear", "recurrent", "1.00", "none up to 4,096"),
        ("softmax", "sdpa", "2.00", "–"),
    ]
    (passage,) = cost_passage(rows, made.speed)
    assert passage.tables == (table,)
