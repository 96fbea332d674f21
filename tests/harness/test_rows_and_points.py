"""Points, cases and attempts keep what they were given, whatever it is."""

import math
from dataclasses import fields, replace
from datetime import UTC, datetime
from itertools import count

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from attnbench.harness.metrics import METRICS
from attnbench.harness.rows import Artefact, Attempt, Identity, Measurement, Series, Status
from attnbench.harness.spec import Case, Point
from attnbench.harness.store import Run, Store

numbers = st.floats(allow_nan=False, allow_infinity=False)
whole = st.integers(-(2**62), 2**62)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
points = st.dictionaries(names, st.one_of(whole, numbers, names, st.booleans()), max_size=5).map(Point)
cases = st.builds(
    Case,
    suite=names,
    variant=names,
    form=names,
    point=points,
    seed=whole,
    scale=names,
    device=names,
    threads=st.integers(1, 64),
)


@given(points)
def test_a_point_comes_back_from_its_json(point):
    again = Point.from_json(point.json())
    assert again == point
    assert dict(again) == dict(point)
    assert [type(value) for value in again.values()] == [type(value) for value in point.values()]


@given(points, st.randoms())
def test_a_point_is_the_same_in_any_order(point, random):
    items = list(point.items())
    random.shuffle(items)
    shuffled = Point(dict(items))
    assert shuffled == point
    assert hash(shuffled) == hash(point)
    assert (shuffled.json(), str(shuffled)) == (point.json(), str(point))


@given(cases, cases, st.sampled_from([field.name for field in fields(Case)]))
def test_the_key_of_a_case_differs_when_any_field_differs(case, other, name):
    changed = replace(case, **{name: getattr(other, name)})
    assert (changed.key() == case.key()) == (changed == case)


def test_a_whole_number_and_a_float_and_a_truth_value_are_different_settings():
    assert len({Point(pairs=1), Point(pairs=1.0), Point(pairs=True), Point(pairs="1")}) == 4


measurements = st.lists(
    st.builds(
        Measurement, metric=st.sampled_from(sorted(METRICS)), value=numbers, samples=st.lists(numbers).map(tuple)
    ),
    unique_by=lambda measured: measured.metric,
    max_size=4,
).map(tuple)
curve_numbers = st.lists(st.floats(), max_size=6).map(tuple)
curves = st.lists(
    st.builds(Series, name=names, x_name=names, x=curve_numbers, y=curve_numbers),
    unique_by=lambda curve: curve.name,
    max_size=2,
).map(tuple)
texts = st.lists(
    st.builds(Artefact, name=names, media_type=st.just("text/plain"), text=names),
    unique_by=lambda item: item.name,
    max_size=2,
).map(tuple)
attempts = st.builds(
    Attempt,
    case=cases,
    identity=st.builds(Identity, code_hash=names, data_hash=names, testbed=names),
    status=st.sampled_from(Status),
    reason=names,
    seconds=st.floats(0, 1e6),
    started_at=st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    measurements=measurements,
    series=curves,
    artefacts=texts,
    facts=st.dictionaries(names, names, max_size=2),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with Store.open(tmp_path_factory.mktemp("rows") / "rows.db", writes=True) as opened:
        yield opened


run_numbers = count()


@hypothesis_settings(deadline=None, max_examples=60)
@given(attempts)
def test_an_attempt_comes_back_from_the_database_as_it_was(store, attempt):
    run_id = f"run-{next(run_numbers)}"
    store.begin_run(Run(run_id, "attnbench run", datetime.now(UTC)))
    assert store.append(run_id, attempt, owner="me")

    rows = store.rows(runs=[run_id])
    assert [row.metric for row in rows] == [measured.metric for measured in attempt.measurements] or [""]
    for row in rows:
        same = ("reason", "status", "seconds", "started_at")
        assert [getattr(row, name) for name in same] == [getattr(attempt, name) for name in same]
        case = Case(*(getattr(row, field.name) for field in fields(Case)))
        assert (case, case.key()) == (attempt.case, attempt.case.key())
        assert Identity(row.code_hash, row.data_hash, row.testbed) == attempt.identity
    for row, measured in zip(rows, attempt.measurements, strict=False):
        defined = METRICS[measured.metric]
        assert (row.unit, row.better) == (defined.unit, defined.better)
        assert (row.value, row.samples) == (measured.value, measured.samples)
    ids = {row.attempt_id for row in rows}
    stored = [curve for found in store.series(ids).values() for curve in found]
    assert [(curve.name, curve.x_name) for curve in stored] == [(curve.name, curve.x_name) for curve in attempt.series]
    for back, curve in zip(stored, attempt.series, strict=True):
        assert all(map(is_same, back.x + back.y, curve.x + curve.y))
    assert [item for found in store.artefacts(ids).values() for item in found] == list(attempt.artefacts)


def is_same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))
