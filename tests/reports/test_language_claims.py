"""The claims on language modelling: each cell of Tables 2 to 5, their orders, and counts shown as arithmetic."""

from dataclasses import replace

import pytest

from attnbench.harness.rows import Status
from attnbench.harness.spec import Point
from attnbench.reports.findings import in_print, published_words
from attnbench.reports.published import printed
from attnbench.reports.published.claims import Difference, Order, Value, claims, remarks
from attnbench.reports.published.protocol import differences, protocols
from attnbench.reports.verdict_board import verdict_board
from attnbench.reports.verdicts import Ruling, ruling_of, verdict
from attnbench.suites import find_suites

SUITES = ("language_modelling", "unbounded_context")
CLAIMS = {claim.id: claim for claim in claims() if claim.suite in SUITES}
CELLS = [claim for claim in CLAIMS.values() if isinstance(claim.test, Value) and "Table" in claim.says.split(":")[0]]
ORDERS = [claim for claim in CLAIMS.values() if isinstance(claim.test, Order)]
PERPLEXITIES = {"word_perplexity", "validation_word_perplexity"}


# What was printed.


def test_each_printed_perplexity_is_one_claim_of_its_table():
    numbers = [one for one in printed() if one.suite in SUITES]
    # two parts of the text for 5 + 5 cells of Table 2, 3 more of Table 3, 6 of Table 4, 4 more of Table 5
    assert len(numbers) == len(CELLS) == 2 * (10 + 3 + 6 + 4)
    claimed = {
        (claim.suite, claim.test.variants, claim.test.quantity, claim.protocol.name, claim.point) for claim in CELLS
    }
    assert len(claimed) == len(CELLS)


@pytest.mark.parametrize("claim", [one for one in CELLS if not one.failing], ids=lambda one: one.id)
def test_a_cell_says_the_number_that_it_holds_and_finds_itself_in_print(claim):
    assert f"{claim.test.value:.1f}" in claim.says
    assert claim.test.relative == 0.03
    assert ruling_of(in_print(claim)) is Ruling.REPRODUCED
    assert in_print(claim).measured == f"{claim.test.value:.1f}"


@pytest.mark.parametrize("claim", ORDERS, ids=lambda one: one.id)
@pytest.mark.parametrize("quantity", sorted(PERPLEXITIES))
def test_every_order_is_that_of_the_printed_test_and_validation_perplexities(claim, quantity):
    found = in_print(replace(claim, test=replace(claim.test, quantity=quantity)))
    assert ruling_of(found) is Ruling.REPRODUCED, found.why


def test_a_number_that_is_only_known_to_be_larger_is_a_bound():
    claim = CLAIMS["unbounded_context-table-4-linear-test-perplexity"]
    assert (claim.says, published_words(claim)) == ("Table 4: the test perplexity of linear is above 260.", "above 260")
    assert (claim.test.value, claim.test.above, claim.failing) == (None, 260, ("linear",))


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("language_modelling-beta-parameters-small", 16 * 128 * 8),
        ("language_modelling-beta-parameters-medium", 16 * 256 * 8),
        # keys and values of memory and context in 16 layers of width 256
        ("unbounded_context-state-of-xl-16", 16 * (15 + 1) * (256 + 256)),
        ("unbounded_context-state-of-xl-128", 16 * (64 + 64) * (256 + 256)),
        ("unbounded_context-state-of-xl-256", 16 * (128 + 128) * (256 + 256)),
        ("unbounded_context-state-of-xl-768", 16 * (384 + 384) * (256 + 256)),
        # 8 heads of width 32, without and with the sums of the features
        ("unbounded_context-state-of-fast-weights", 16 * 8 * 32 * 32),
        ("unbounded_context-state-of-fast-weights", 16 * 8 * (32 * 32 + 32)),
    ],
)
def test_a_printed_count_is_the_rounded_product_of_the_sizes(name, count):
    claim = CLAIMS[name]
    assert isinstance(claim.test, Value | Difference)
    assert abs(count - claim.test.value) <= claim.test.absolute
    assert f"{count:,}" in claim.note or "sums" in claim.note


def test_the_remark_on_the_state_of_transformer_xl_is_the_arithmetic_of_both_readings():
    (remark,) = [one for one in remarks() if one.id == "xl-state-plus"]
    assert f"{16 * 64 * 64 * (256 + 256) / 1e6:.1f} million" in remark.says


def test_the_remark_on_epochs_is_the_arithmetic_of_steps():
    # 56 streams of 384 tokens a step, 103.2 million tokens of training text
    (remark,) = [one for one in remarks() if one.id == "epochs-medium"]
    assert f"about {400_000 * 56 * 384 / 103.2e6:.0f}" in remark.says


# Protocols.


@pytest.mark.parametrize("name", SUITES)
def test_the_paper_scale_of_the_suite_asks_each_claimed_case_under_the_published_protocol(name):
    grid = find_suites()[name].grid("paper")
    for claim in (one for one in CLAIMS.values() if one.suite == name and one.protocol.scale):
        for variant in claim.variants:
            asked = [point for point in grid.points_of(variant) if claim.asks(variant, point)]
            fitting = [point for point in asked if not differences(claim.protocol.point_of(variant), point)]
            places = {claim.place(variant, point) for point in fitting}
            assert fitting, (claim.id, variant)
            assert not claim.points_of[variant] or places == set(claim.points_of[variant]), (claim.id, variant)


@pytest.mark.parametrize("name", SUITES)
def test_counts_are_answered_at_paper_scale_by_one_size_alone(name):
    grid = find_suites()[name].grid("paper")
    for claim in (one for one in CLAIMS.values() if one.suite == name and not one.protocol.scale):
        for variant in claim.variants:
            points = [point for point in grid.points_of(variant) if claim.asks(variant, point)]
            found = {point["width"] for point in points if not differences(claim.protocol.needs, point)}
            assert found == {claim.protocol.needs["width"]}, (claim.id, variant)


def test_transformer_xl_is_published_with_half_the_steps_of_the_others():
    carried = protocols()["carried"]
    assert (carried.point_of("delta")["steps"], carried.point_of("delta")["memory"]) == (400_000, 0)
    xl = carried.point_of("xl")
    assert (xl["steps"], xl["warm_up"], xl["memory"], xl["width"]) == (200_000, 1000, 384, 256)


def test_only_directions_are_read_from_another_text_and_none_at_quick_scale():
    elsewhere = {claim.id for claim in CLAIMS.values() if claim.protocol.name.endswith("-direction")}
    assert elsewhere == {
        "language_modelling-order-small",
        "language_modelling-delta-beats-sum-small",
        "language_modelling-softmax-beats-delta-small",
        "language_modelling-delta-diverges-without-sum-norm",
        "unbounded_context-delta-beats-sum",
    }
    for name in elsewhere:
        assert CLAIMS[name].protocol.scales == ("standard", "paper")
        assert not isinstance(CLAIMS[name].test, Value)


# Verdicts, of rows made up for the test.

BIBLE = {"data": "web-bible", "tokeniser": "bpe", "vocabulary": 1000, "layers": 4, "width": 64, "steps": 3000}


@pytest.fixture
def asked(made):
    """Rows of one variant under the protocol `name`, or at another scale with other settings."""

    def rows(name, variant, numbers, *, suite="language_modelling", scale="paper", **more):
        ending = {key: more.pop(key) for key in ("status", "reason", "seed", "form") if key in more}
        positions = {} if name == "carried" else {"positions": "sinusoidal"}
        point = Point({**protocols()[name].point_of(variant), **positions, **more})
        return made.attempt(suite, variant, point, numbers, scale=scale, **ending)

    return rows


def rulings(rows):
    return {one.claim.id: one.ruling for one in verdict_board(rows, SUITES).verdicts}


def of(name, rows):
    return verdict(CLAIMS[name], rows)


def test_rows_of_the_published_protocol_are_held_against_its_numbers(asked):
    rows = asked("small", "softmax", {"word_perplexity": 34.9, "validation_word_perplexity": 40.0})
    rows += asked("small", "delta", {"word_perplexity": 35.5})
    found = rulings(rows)
    # 34.1 + 3 % = 35.1
    assert found["language_modelling-table-2-small-softmax-test-perplexity"] is Ruling.REPRODUCED
    assert found["language_modelling-table-2-small-softmax-validation-perplexity"] is Ruling.CONTRADICTED
    assert found["language_modelling-softmax-beats-delta-small"] is Ruling.REPRODUCED
    assert found["language_modelling-order-small"] is Ruling.DIRECTION_ONLY
    assert found["language_modelling-order-medium"] is Ruling.NOT_MEASURED
    assert found["language_modelling-table-2-medium-softmax-test-perplexity"] is Ruling.NOT_MEASURED


def test_lines_of_one_variant_with_and_without_positions_are_kept_apart(asked):
    rows = asked("medium", "delta", {"word_perplexity": 31.5})
    rows += asked("medium", "delta", {"word_perplexity": 31.1}, positions="none")
    rows += asked("medium", "delta+attnnorm", {"word_perplexity": 32.1})
    rows += asked("medium", "delta+attnnorm", {"word_perplexity": 31.2}, positions="none")
    found = of("language_modelling-ablation-order", rows)
    assert (found.ruling, found.why) == (Ruling.REPRODUCED, "6 of 6 in this order")
    assert found.measured.startswith("delta 31.1 at positions none, delta+attnnorm 31.2 at positions none")
    assert of("language_modelling-table-3-delta-positions-none-test-perplexity", rows).measured == "31.1"
    assert of("language_modelling-table-2-medium-delta-test-perplexity", rows).measured == "31.5"


def test_another_text_and_size_supports_a_direction_never_a_number(asked):
    rows = []
    for variant, number in (("softmax", 90.0), ("delta", 100.0), ("linear", 120.0)):
        rows += asked("small", variant, {"word_perplexity": number}, scale="standard", **BIBLE)
    found = of("language_modelling-order-small", rows)
    assert found.ruling is Ruling.DIRECTION_ONLY
    assert found.why == (
        "another text and size (standard scale, data=web-bible, tokeniser=bpe, layers=4, width=64, steps=3000 and 1 more "
        "setting): the direction is the same, 3 of 3 in this order"
    )
    answered = {name for name, ruling in rulings(rows).items() if ruling is not Ruling.NOT_MEASURED}
    assert answered == {
        "language_modelling-order-small",
        "language_modelling-delta-beats-sum-small",
        "language_modelling-softmax-beats-delta-small",
    }


def test_another_order_on_another_text_is_contradicted_in_direction_there_alone(asked):
    rows = asked("small", "softmax", {"word_perplexity": 508.0}, scale="standard", **BIBLE)
    rows += asked("small", "delta", {"word_perplexity": 406.0}, scale="standard", **BIBLE)
    found = of("language_modelling-softmax-beats-delta-small", rows)
    assert found.ruling is Ruling.NOT_COMPARABLE
    assert (
        "): contradicted in direction here, 0 of 1 in this order; reversed: softmax 508.0 against delta 406.0"
        in found.why
    )


def test_the_quick_scale_answers_no_claim(asked):
    rows = asked("small", "softmax", {"word_perplexity": 90.0}, scale="quick", **BIBLE)
    rows += asked("small", "delta", {"word_perplexity": 100.0}, scale="quick", **BIBLE)
    assert set(rulings(rows).values()) == {Ruling.NOT_MEASURED}


def test_a_shorter_training_on_the_published_text_is_another_protocol(asked):
    rows = asked("small", "linear", {"word_perplexity": 90.0}, steps=1000)
    found = of("language_modelling-table-2-small-linear-test-perplexity", rows)
    assert found.ruling is Ruling.NOT_COMPARABLE
    assert found.why.startswith("another protocol (paper scale, steps=1000): ")


def test_a_perplexity_above_the_bigram_floor_compares_nothing(asked):
    models = asked("small", "softmax", {"word_perplexity": 610.0}, scale="standard", **BIBLE)
    models += asked("small", "delta", {"word_perplexity": 620.0}, scale="standard", **BIBLE)
    floors = asked("small", "bigram", {"word_perplexity": 573.0}, scale="standard", form="count", **BIBLE)
    floors += asked("small", "unigram", {"word_perplexity": 19838.0}, scale="standard", form="count", **BIBLE)
    name = "language_modelling-softmax-beats-delta-small"
    assert of(name, models).ruling is Ruling.DIRECTION_ONLY
    found = of(name, models + floors)
    assert found.ruling is Ruling.NOT_COMPARABLE
    assert found.why == "softmax, delta above the bigram floor: compares nothing"
    # the board hands floors to the claims of their suite
    assert rulings(models + floors)[name] is Ruling.NOT_COMPARABLE


def test_what_lies_under_the_floor_is_compared_and_what_does_not_is_named(asked):
    rows = asked("small", "softmax", {"word_perplexity": 400.0}, scale="standard", **BIBLE)
    rows += asked("small", "delta", {"word_perplexity": 450.0}, scale="standard", **BIBLE)
    rows += asked("small", "linear", {"word_perplexity": 574.0}, scale="standard", **BIBLE)
    rows += asked("small", "bigram", {"word_perplexity": 573.0}, scale="standard", form="count", **BIBLE)
    found = of("language_modelling-order-small", rows)
    assert found.ruling is Ruling.DIRECTION_ONLY
    assert "1 of 1 in this order; measured: 1 of 3 comparisons" in found.why
    assert found.why.endswith("; linear above the bigram floor: compares nothing")


def test_the_floor_of_another_text_says_nothing(asked):
    rows = asked("small", "softmax", {"word_perplexity": 34.1})
    rows += asked("small", "bigram", {"word_perplexity": 30.0}, scale="standard", form="count", **BIBLE)
    assert of("language_modelling-table-2-small-softmax-test-perplexity", rows).ruling is Ruling.REPRODUCED


def test_a_count_holds_however_bad_the_perplexity_is(asked):
    rows = asked("small", "delta", {"word_perplexity": 900.0, "parameters": 44_030_000.0}, scale="quick", steps=1)
    rows += asked("small", "linear", {"word_perplexity": 900.0, "parameters": 44_013_616.0}, scale="quick", steps=1)
    rows += asked("small", "bigram", {"word_perplexity": 300.0}, scale="quick", form="count")
    found = of("language_modelling-beta-parameters-small", rows)
    # 44,030,000 - 44,013,616 = 16,384 = 16 * 128 * 8
    assert (found.ruling, found.measured, found.published) == (Ruling.REPRODUCED, "16,384", "16,000 ± 500")


def test_a_variant_of_which_failure_is_claimed_may_lie_above_the_floor(asked):
    suite = "unbounded_context"
    rows = asked("carried", "linear", {"word_perplexity": 900.0}, suite=suite)
    rows += asked("carried", "delta", {"word_perplexity": 29.0}, suite=suite)
    rows += asked("carried", "linear+noattnnorm", {"word_perplexity": 1500.0}, suite=suite)
    rows += asked("carried", "bigram", {"word_perplexity": 300.0}, suite=suite, form="count")
    found = rulings(rows)
    assert found["unbounded_context-table-4-linear-test-perplexity"] is Ruling.REPRODUCED
    assert found["unbounded_context-delta-beats-sum"] is Ruling.REPRODUCED
    assert found["unbounded_context-table-4-delta-test-perplexity"] is Ruling.REPRODUCED
    assert found["unbounded_context-linear-without-norm"] is Ruling.CONTRADICTED


def test_a_sum_rule_that_does_not_break_down_contradicts_its_bound(asked):
    rows = asked("carried", "linear", {"word_perplexity": 40.0}, suite="unbounded_context")
    found = of("unbounded_context-table-4-linear-test-perplexity", rows)
    assert (found.ruling, found.why) == (Ruling.CONTRADICTED, "0 of 1 above 260; not linear 40.0")


def test_carried_context_elsewhere_gives_the_direction_of_one_claim(asked):
    suite, elsewhere = "unbounded_context", {**BIBLE, "scale": "standard"}
    rows = asked("carried", "linear", {"word_perplexity": 399.0}, suite=suite, **elsewhere)
    rows += asked("carried", "delta", {"word_perplexity": 480.0}, suite=suite, **elsewhere)
    found = rulings(rows)
    assert {name for name, ruling in found.items() if ruling is not Ruling.NOT_MEASURED} == {
        "unbounded_context-delta-beats-sum"
    }
    assert "contradicted in direction here" in of("unbounded_context-delta-beats-sum", rows).why


def test_transformer_xl_is_held_against_the_cell_of_its_evaluation(asked):
    suite = "unbounded_context"
    rows = asked("carried", "delta", {"word_perplexity": 29.4, "state_floats": 131_072.0}, suite=suite)
    for size, perplexity in ((64, 30.1), (128, 27.4)):
        numbers = {"word_perplexity": perplexity, "state_floats": 16.0 * 2 * size * 512}
        rows += asked("carried", "xl", numbers, suite=suite, evaluation_memory=size, evaluation_context=size)
    found = rulings(rows)
    assert found["unbounded_context-delta-among-xl"] is Ruling.REPRODUCED
    assert found["unbounded_context-state-of-xl-128"] is Ruling.REPRODUCED
    assert found["unbounded_context-state-of-xl-256"] is Ruling.REPRODUCED
    assert found["unbounded_context-state-of-xl-768"] is Ruling.NOT_MEASURED
    assert found["unbounded_context-delta-beats-xl-at-equal-state"] is Ruling.NOT_MEASURED
    cell = "unbounded_context-table-4-xl-evaluation-context-64-evaluation-memory-64-test-perplexity"
    assert of(cell, rows).measured == "30.1"


def test_an_xl_trained_like_the_others_is_another_protocol(asked):
    rows = asked(
        "carried",
        "xl",
        {"word_perplexity": 25.5},
        suite="unbounded_context",
        steps=400_000,
        evaluation_memory=384,
        evaluation_context=384,
    )
    cell = "unbounded_context-table-4-xl-evaluation-context-384-evaluation-memory-384-test-perplexity"
    assert of(cell, rows).ruling is Ruling.NOT_COMPARABLE


def test_the_delta_rule_without_sum_normalisation_is_to_diverge(asked):
    name = "language_modelling-delta-diverges-without-sum-norm"
    diverged = {"status": Status.DIVERGED, "reason": "not finite at step 120"}
    rows = asked("medium", "delta+nosumnorm", None, **diverged)
    assert of(name, rows).ruling is Ruling.REPRODUCED
    assert of(name, asked("medium", "delta+nosumnorm", {"word_perplexity": 33.0})).ruling is Ruling.CONTRADICTED
    here = of(name, asked("medium", "delta+nosumnorm", None, scale="standard", **diverged, **BIBLE))
    assert here.ruling is Ruling.DIRECTION_ONLY
    assert here.why.startswith("another text and size (standard scale, data=web-bible")
    assert (here.published, here.measured) == ("diverged", "1 of 1 diverged")
