"""Published against measured runs: the pairs, and the rule, with losses that a reader can check by hand."""

import math
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.harness.rows import Status
from attnbench.harness.spec import Point
from attnbench.reports.agreement import (
    LOGGED,
    Agreement,
    Difference,
    Outcome,
    agrees,
    median_loss,
    pairs,
)
from attnbench.reports.published import LoggedRun, logged_runs

RETRIEVES, FAILS = 0.0009, 0.2
RUN = LoggedRun("capacity", "linear", "pairs", 60, FAILS, 0.25, 4200, False, True, "", "arXiv:2102.11174, Fig. 2")


def run(**more):
    return replace(RUN, **more)


def asked(made, losses, variant="linear", at=60, *, scale="paper", axis="pairs", suite="capacity", **more):
    """Rows of one case under the published protocol, a seed a loss."""
    settings = {name: more.pop(name, value) for name, value in LOGGED.point.items()}
    point = Point({axis: at, **settings})
    return [
        row
        for seed, loss in enumerate(losses)
        for row in made.attempt(suite, variant, point, {"retrieval_loss": loss}, seed=seed, scale=scale, **more)
    ]


@pytest.mark.parametrize(
    ("theirs", "ours", "said"),
    [
        (RETRIEVES, RETRIEVES, Agreement(Outcome.BOTH_RETRIEVE)),
        (0.001, 0.001, Agreement(Outcome.BOTH_RETRIEVE)),
        (RETRIEVES, 0.0011, Agreement(Outcome.DIFFERS, Difference.MEASURED_FAILS)),
        (0.0011, RETRIEVES, Agreement(Outcome.DIFFERS, Difference.MEASURED_RETRIEVES)),
        # 0.049 apart: within 0.05, though four times the loss
        (0.015, 0.064, Agreement(Outcome.BOTH_FAIL)),
        # 0.07 apart, which is 17.5 % of 0.4
        (0.4, 0.47, Agreement(Outcome.BOTH_FAIL)),
        (0.4, 0.33, Agreement(Outcome.BOTH_FAIL)),
        # 0.09 apart: more than 0.05 and more than 20 % of 0.4
        (0.4, 0.49, Agreement(Outcome.DIFFERS, Difference.LOSS_DIFFERS)),
        (0.1, 0.16, Agreement(Outcome.DIFFERS, Difference.LOSS_DIFFERS)),
        (0.4, math.nan, Agreement(Outcome.DIFFERS, Difference.MEASURED_DIVERGED)),
    ],
)
def test_two_runs_agree_if_both_retrieve_or_both_fail_alike(theirs, ours, said):
    assert agrees(run(best_loss=theirs), {0: ours}) == said


def test_nan_against_nan_is_a_class_of_its_own_and_counts_neither_way():
    said = agrees(run(best_loss=0.18, last_loss=None, hit_nan=True), {0: math.nan})
    assert said.outcome is Outcome.BOTH_DIVERGED
    assert said.agrees is None


@pytest.mark.parametrize("losses", [{}, {0: 0.18}])
def test_a_published_run_that_ended_in_nan_is_excluded_unless_ours_diverged_too(losses):
    said = agrees(run(best_loss=0.18, last_loss=None, hit_nan=True), losses)
    assert str(said) == "excluded: the published run ended in NaN"
    assert said.agrees is None


def test_a_log_that_broke_off_is_excluded_whatever_was_measured():
    said = agrees(run(is_complete=False, steps=300), {0: FAILS})
    assert str(said) == "excluded: the published log breaks off at step 300"


def test_nothing_measured_is_said_so():
    assert agrees(RUN, {}) == Agreement(Outcome.NOT_MEASURED)
    assert agrees(RUN, {}).agrees is None


def test_losses_that_differ_while_both_fail_are_still_on_the_same_side():
    assert agrees(run(best_loss=0.1), {0: 0.4}).same_side
    assert not agrees(run(best_loss=0.1), {0: 0.0001}).same_side


def test_several_seeds_count_by_their_median_and_a_diverged_one_is_above_all_others():
    assert median_loss([0.3, 0.1, 0.2]) == 0.2
    assert median_loss([0.3, math.nan, 0.2]) == 0.3
    assert median_loss([math.nan, math.nan, 0.2]) == math.inf
    assert median_loss([]) is None
    assert agrees(RUN, {0: FAILS, 1: 9.0, 2: FAILS}).outcome is Outcome.BOTH_FAIL


losses = st.floats(0, 2)


@given(theirs=losses, ours=losses)
def test_agreement_on_the_side_does_not_depend_on_who_was_first(theirs, ours):
    there, back = agrees(run(best_loss=theirs), {0: ours}), agrees(run(best_loss=ours), {0: theirs})
    assert there.same_side == back.same_side


@given(loss=losses)
def test_a_run_agrees_with_itself(loss):
    assert agrees(run(best_loss=loss), {0: loss}).agrees


def test_a_pair_holds_the_published_run_and_the_losses_by_seed(made):
    (pair,) = pairs(asked(made, [0.19, 0.21, 0.5]), [RUN])
    assert (pair.suite, pair.variant, pair.at) == ("capacity", "linear", 60)
    assert pair.losses == {0: 0.19, 1: 0.21, 2: 0.5}
    assert pair.agreement.outcome is Outcome.BOTH_FAIL


@pytest.mark.parametrize(
    "other", [{"scale": "standard"}, {"protocol": "text"}, {"key_width": 16}, {"max_steps": 1500}, {"patience": 5}]
)
def test_a_row_of_another_protocol_is_no_measurement_of_the_published_run(made, other):
    (pair,) = pairs(asked(made, [FAILS], **other), [RUN])
    assert pair.agreement == Agreement(Outcome.NOT_MEASURED)


def test_another_batch_is_none_since_one_published_variant_has_its_own(made):
    (pair,) = pairs(asked(made, [FAILS]), [RUN])
    assert pair.losses == {0: FAILS}


def test_a_diverged_attempt_is_a_run_with_a_loss_that_is_nan(made):
    rows = asked(made, [0.18], status=Status.DIVERGED, reason="the loss was not finite at step 7")
    (pair,) = pairs(rows, [RUN])
    assert math.isnan(pair.losses[0])
    assert pair.agreement.difference is Difference.MEASURED_DIVERGED


def test_an_attempt_without_a_number_is_not_measured_and_says_how_it_ended(made):
    rows = asked(made, [FAILS], status=Status.TIMEOUT, reason="600 s")
    (pair,) = pairs(rows, [RUN])
    assert pair.losses == {}
    assert str(pair.agreement) == "not measured: seed 0 timeout: 600 s"


def test_of_several_attempts_of_one_seed_the_newest_with_a_number_counts(made):
    old = asked(made, [0.3])
    new = [replace(row, started_at=row.started_at + timedelta(1)) for row in asked(made, [0.4])]
    failed = [
        replace(row, started_at=row.started_at + timedelta(2)) for row in asked(made, [0.0], status=Status.TIMEOUT)
    ]
    (pair,) = pairs([*new, *failed, *old], [RUN])
    assert pair.losses == {0: 0.4}
    assert not pair.endings


def test_the_logs_pair_up_with_themselves(made):
    # 320 logs: 18 ended in NaN and one broke off, so 301 can be compared
    rows = []
    for log in logged_runs():
        loss = math.nan if log.hit_nan else log.best_loss
        rows += asked(
            made,
            [loss],
            log.variant,
            log.at,
            axis=log.axis,
            suite=log.suite,
            status=Status.DIVERGED if log.hit_nan else Status.OK,
        )
    said = [pair.agreement.outcome for pair in pairs(rows)]
    assert len(said) == 320
    assert said.count(Outcome.BOTH_DIVERGED) == 18
    assert said.count(Outcome.EXCLUDED) == 1
    assert said.count(Outcome.BOTH_RETRIEVE) + said.count(Outcome.BOTH_FAIL) == 301


def test_without_rows_the_excluded_logs_are_listed_with_their_reasons():
    excluded = [pair for pair in pairs([]) if pair.agreement.outcome is Outcome.EXCLUDED]
    broken = [(pair.variant, pair.at) for pair in excluded if not pair.published.is_complete]
    nan = {pair.variant: 0 for pair in excluded if pair.published.hit_nan}
    assert broken == [("dpfp-nu2+delta", 100)]
    assert set(nan) == {"performer-m64+delta", "performer-m128+delta"}
    assert len(excluded) == 19
