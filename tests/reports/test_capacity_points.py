"""Capacity points of made-up runs: where half of them retrieve, with an interval."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.harness.rows import Status
from attnbench.reports.capacity_points import capacity_point, points_of_lines

GRIDS = st.lists(st.integers(5, 1000), min_size=2, max_size=12, unique=True).map(sorted)
SEEDS = st.integers(1, 5)


@st.composite
def any_runs(draw):
    """Some runs at each number of pairs, in any order of success and failure."""
    count = draw(SEEDS)
    return {pairs: draw(st.lists(st.booleans(), min_size=1, max_size=count)) for pairs in draw(GRIDS)}


def up_to(last, grid=(20, 40, 60, 80), seeds=3):
    """Runs that all retrieve up to `last` and none beyond."""
    return {pairs: [pairs <= last] * seeds for pairs in grid}


def test_half_way_between_the_last_success_and_the_first_failure_is_a_geometric_mean():
    # all retrieve at 40 and none at 60: sqrt(40 * 60) = 48.99
    point = capacity_point(up_to(40))
    assert point.at == pytest.approx(math.sqrt(40 * 60), rel=0.01)
    assert (point.text, point.interval_text) == ("49", "40 – 60")


def test_a_point_lies_where_exactly_half_of_the_runs_retrieve():
    point = capacity_point({20: [True] * 4, 40: [True, True, False, False], 60: [False] * 4})
    assert point.at == pytest.approx(40)


@given(grid=GRIDS, seeds=st.integers(1, 20), place=st.integers(0, 10))
def test_monotone_runs_have_their_point_between_the_last_success_and_the_first_failure(grid, seeds, place):
    last = min(place, len(grid) - 2)
    point = capacity_point(up_to(grid[last], grid, seeds))
    assert grid[last] <= point.at <= grid[last + 1]


@given(runs=any_runs(), factor=st.integers(2, 50))
@settings(max_examples=40)
def test_as_many_times_more_pairs_everywhere_move_the_point_as_many_times_further(runs, factor):
    there, further = capacity_point(runs), capacity_point({factor * pairs: found for pairs, found in runs.items()})
    assert further.at == pytest.approx(factor * there.at)
    for end, other in ((there.low, further.low), (there.high, further.high)):
        assert other == (None if end is None else pytest.approx(factor * end))


@given(runs=any_runs(), random=st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_the_order_of_seeds_does_not_matter(runs, random):
    mixed = {pairs: random.sample(found, len(found)) for pairs, found in runs.items()}
    assert capacity_point(mixed) == capacity_point(runs)


@given(runs=any_runs(), data=st.data())
@settings(max_examples=40)
def test_one_more_failure_never_raises_the_point(runs, data):
    pairs = data.draw(st.sampled_from(sorted(runs)))
    before = capacity_point(runs).at
    assert capacity_point({**runs, pairs: [*runs[pairs], False]}).at <= before
    failing = {**runs, pairs: [False, *runs[pairs][1:]]}
    assert capacity_point(failing).at <= before


@given(runs=any_runs())
@settings(max_examples=30)
def test_the_same_runs_give_the_same_point_and_the_interval_holds_it(runs):
    point = capacity_point(runs)
    assert point == capacity_point(runs)
    if point.low is not None:
        assert point.low <= point.at <= point.high
        assert {point.low, point.high} <= {-math.inf, math.inf, *runs}


def test_one_early_failure_does_not_move_the_point_of_runs_that_retrieve_up_to_the_end():
    # a fit whose width is free puts this point far beyond 600
    runs = {pairs: [pairs <= 580] * 3 for pairs in range(20, 601, 20)}
    runs[20] = [True, True, False]
    assert 580 <= capacity_point(runs).at <= 600


def test_a_failure_between_successes_is_not_the_end():
    runs = up_to(100, range(20, 201, 20)) | {60: [False] * 3}
    assert 100 <= capacity_point(runs).at <= 120


@pytest.mark.parametrize(("last", "text"), [(0, "< 20"), (80, "> 80")])
def test_a_point_beyond_the_grid_is_censored_at_its_end(last, text):
    point = capacity_point(up_to(last))
    assert (point.text, point.interval_text) == (text, text)
    assert point.drawn_at in {20, 80}


def test_an_interval_that_reaches_beyond_the_grid_is_censored_on_that_side():
    point = capacity_point({20: [True, True, False], 40: [False] * 3, 60: [False] * 3})
    assert point.interval_text == "< 20 – 40"


def test_fewer_than_three_seeds_give_a_point_without_an_interval():
    point = capacity_point(up_to(40, seeds=2))
    assert (point.text, point.interval_text, point.runs) == ("49", "", 2)


def test_seeds_far_from_the_point_do_not_make_an_interval():
    assert capacity_point({20: [True] * 3, 40: [True], 60: [False], 80: [False] * 3}).low is None


def test_no_runs_have_no_point():
    with pytest.raises(ValueError, match="at least one run"):
        capacity_point({20: []})


def asked(made, variant, losses, **more):
    return [
        row
        for pairs, found in losses.items()
        for seed, loss in enumerate(found)
        for row in made.attempt("capacity", variant, made.pairs(pairs, **more), {"retrieval_loss": loss}, seed=seed)
    ]


def test_each_threshold_has_a_point_of_its_own(made):
    rows = asked(made, "linear", {20: [0.0009] * 3, 40: [0.005] * 3, 60: [0.2] * 3})
    _, (line,) = points_of_lines(rows, made.capacity)
    assert {threshold: point.interval_text for threshold, point in line.points.items()} == {
        0.001: "20 – 40",
        0.01: "40 – 60",
    }


def test_a_loss_at_the_threshold_retrieves(made):
    _, (line,) = points_of_lines(asked(made, "linear", {20: [0.001], 40: [0.0011]}), made.capacity)
    assert 20 < line.points[0.001].at < 40


def test_a_run_that_diverged_did_not_retrieve_and_others_without_a_number_are_named(made):
    rows = asked(made, "linear", {20: [0.0009], 40: [0.0009]})
    rows += made.attempt("capacity", "linear", made.pairs(60), status=Status.DIVERGED, reason="not finite")
    rows += made.attempt("capacity", "linear", made.pairs(80), status=Status.TIMEOUT, reason="300 s", seed=1)
    rows += made.attempt("capacity", "linear", made.pairs(80), status=Status.SKIPPED, reason="no gpu", seed=2)
    _, (line,) = points_of_lines(rows, made.capacity)
    assert 40 < line.points[0.001].at < 60
    assert line.left_out == ("timeout at pairs 80 (seed 1)", "skipped at pairs 80 (seed 2)")


def test_a_variant_without_any_run_has_no_line(made):
    rows = made.attempt("capacity", "linear", made.pairs(20), status=Status.ERROR, reason="x")
    assert points_of_lines(rows, made.capacity) == ((), ())


def test_settings_that_tell_lines_apart_do_so_here(made):
    rows = asked(made, "linear", {20: [0.0009], 40: [0.2]}, protocol="text")
    rows += asked(made, "linear", {20: [0.0009], 40: [0.0009]}, protocol="code")
    varying, lines = points_of_lines(rows, made.capacity)
    assert varying == ("protocol",)
    assert [(line.labels, line.points[0.001].text) for line in lines] == [
        (("linear", "code"), "> 40"),
        (("linear", "text"), "28"),
    ]


def test_the_width_and_rank_of_the_features_come_from_the_rows(made):
    rows = asked(made, "softmax", {20: [0.0009]})
    numbers = {"retrieval_loss": 0.0009, "feature_width": 128, "feature_rank": 126}
    rows += made.attempt("capacity", "dpfp-nu1", made.pairs(20), numbers)
    _, lines = points_of_lines(rows, made.capacity)
    assert [(line.variant, line.feature_width, line.feature_rank) for line in lines] == [
        ("dpfp-nu1", 128, 126),
        ("softmax", None, None),
    ]


def test_of_several_attempts_with_one_seed_the_newest_run_counts(made):
    rows = asked(made, "linear", {20: [0.2], 40: [0.2]}) + asked(made, "linear", {20: [0.0009], 40: [0.2]})
    # newer still, but no run
    rows += made.attempt("capacity", "linear", made.pairs(20), status=Status.TIMEOUT, reason="300 s")
    _, (line,) = points_of_lines(rows, made.capacity)
    assert (line.points[0.001].text, line.points[0.001].runs, line.left_out) == ("28", 1, ())
