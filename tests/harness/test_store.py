"""The database: what is stored comes back, and reading changes nothing."""

import sys
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import event
from stored import CASE, ME, OTHER, START, attempt, claim

from attnbench.harness.errors import BadDatabase, UnknownMetric
from attnbench.harness.rows import Artefact, Identity, Measurement, Series, Status
from attnbench.harness.spec import Grid, Point, Suite
from attnbench.harness.store import Claim, Run, RunState, Store, SuiteFacts

# What is stored comes back.


def test_a_run_is_stored_with_all_that_is_known_of_it(path):
    run = Run(
        id="20260101-000000-abc123",
        command="attnbench run",
        started_at=START,
        machine={"cpu": "AMD EPYC", "cores": 2},
        device={"gpu": "NVIDIA H200"},
        driver="570.86.15",
        versions={"torch": "2.13.0"},
        commit="0" * 40,
        is_dirty=True,
        environment={"OMP_NUM_THREADS": "1"},
        testbed="AMD EPYC, 2 cores",
    )
    with Store.open(path, writes=True) as store:
        store.begin_run(run)
        (stored,) = store.runs()
        assert (stored.state, stored.ended_at, stored.attempts) == (RunState.RUNNING, None, {})
        assert {name: getattr(stored, name) for name in vars(run)} == vars(run)


def test_a_run_ends_with_its_state_time_and_counts_and_gives_its_leases_back(store, clock):
    claim(store)
    store.append("first", attempt(), owner=ME)
    for seed in (1, 2):
        store.append("first", attempt(replace(CASE, seed=seed), Status.TIMEOUT), owner=ME)
    claim(store, replace(CASE, seed=3))
    clock.pass_seconds(5)
    store.end_run("first", "interrupted")
    first, second = store.runs()
    assert (first.state, first.ended_at) == (RunState.INTERRUPTED, START + timedelta(seconds=5))
    assert first.attempts == {Status.OK: 1, Status.TIMEOUT: 2}
    assert (second.state, second.attempts) == (RunState.RUNNING, {})
    assert claim(store, replace(CASE, seed=3), owner=OTHER) is Claim.CLAIMED


def test_a_run_cannot_end_in_an_unknown_state(store):
    with pytest.raises(ValueError, match="'done' is not a valid RunState"):
        store.end_run("first", "done")


def test_a_suite_is_stored_once_and_as_it_was_asked_last(store):
    grid = Grid(variants=("delta",), points=(Point(pairs=20),))
    suite = Suite("capacity", "Capacity", "how many?", "paper", "suites.capacity", "pairs", ("retrieval_loss",), {"quick": grid}, ("chunkwise",))  # fmt: skip
    store.record_suite(suite)
    store.record_suite(replace(suite, question="how many pairs?", metrics=("retrieval_loss", "training_steps")))
    assert store.suites() == [
        SuiteFacts("capacity", "Capacity", "how many pairs?", "paper", "pairs", ("retrieval_loss", "training_steps"))
    ]


def test_a_row_carries_case_number_unit_status_and_provenance(store, clock):
    clock.pass_seconds(10)
    store.append("first", attempt(seconds=4.0, reason="stopped early"), owner=ME)
    loss, steps = store.rows()
    assert (loss.run_id, loss.suite, loss.variant, loss.form, loss.point) == (
        "first", "capacity", "delta", "chunkwise", Point(pairs=20),
    )  # fmt: skip
    assert (loss.metric, loss.unit, loss.better, loss.value, loss.samples) == (
        "retrieval_loss", "1", "lower", 0.25, (0.25, 0.25),
    )  # fmt: skip
    assert (loss.status, loss.reason, loss.code_hash, loss.data_hash) == (Status.OK, "stopped early", "code", "data")
    assert (steps.metric, steps.unit, steps.better, steps.value) == ("training_steps", "steps", "neither", 100.0)
    # an attempt that does not say when it began began its seconds ago
    assert (loss.seconds, loss.started_at) == (4.0, START + timedelta(seconds=6))


def test_an_attempt_without_numbers_is_a_row_with_its_status_and_reason(store):
    store.append("first", attempt(status=Status.SKIPPED, reason="needs cuda; this device is cpu"), owner=ME)
    (row,) = store.rows()
    assert (row.metric, row.value, row.samples) == ("", None, ())
    assert (row.status, row.reason) == (Status.SKIPPED, "needs cuda; this device is cpu")


def test_curves_keep_what_is_not_finite_and_texts_keep_their_type(store):
    curve = Series("loss", "step", (1.0, 2.0, 3.0), (0.5, float("inf"), float("-inf")))
    note = Artefact("sample", "text/plain", "eins zwei")
    store.append("first", attempt(series=(curve,), artefacts=(note,)), owner=ME)
    attempt_id = store.rows()[0].attempt_id
    assert store.series([attempt_id]) == {attempt_id: [curve]}
    assert store.artefacts([attempt_id]) == {attempt_id: [note]}
    assert store.series([attempt_id + 1]) == {}


def test_a_text_that_no_database_takes_is_stored_readably(store):
    note = Artefact("sample", "text/plain", "\ud800")
    store.append("first", attempt(status=Status.ERROR, reason="bad\0byte", artefacts=(note,)), owner=ME)
    (row,) = store.rows()
    assert row.reason == r"bad\0byte"
    assert store.artefacts([row.attempt_id])[row.attempt_id][0].text == r"\ud800"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_measurement_that_is_not_finite_is_refused_and_nothing_is_stored(store, value):
    claim(store)
    with pytest.raises(
        ValueError, match=r"must be finite, got retrieval_loss = (nan|inf) .* store the attempt as diverged"
    ):
        store.append("first", attempt(value=value), owner=ME)
    assert store.rows() == []
    assert claim(store, owner=OTHER) is Claim.BUSY


def test_a_metric_that_is_not_defined_is_refused(store):
    with pytest.raises(UnknownMetric, match=r"no metric 'retrieval_los'\. .*Did you mean 'retrieval_loss'\?"):
        store.append("first", replace(attempt(), measurements=(Measurement("retrieval_los", 1.0),)), owner=ME)
    assert store.rows() == []


def test_a_time_without_a_zone_is_refused(store):
    with pytest.raises(Exception, match="a stored time needs a zone"):
        store.append("first", attempt(started_at=datetime(2026, 1, 1)), owner=ME)


def test_rows_are_chosen_by_suite_variant_scale_and_run(store):
    others = [
        replace(CASE, suite="rewrite"),
        replace(CASE, variant="softmax"),
        replace(CASE, scale="smoke"),
    ]
    for case in (CASE, *others):
        store.append("first", attempt(case), owner=ME)
    store.append("second", attempt(replace(CASE, seed=1)), owner=ME)

    def chosen(**filters):
        return len(store.rows(**filters)) // 2

    assert chosen() == 5
    assert chosen(suites=["rewrite"]) == 1
    assert chosen(suites=["rewrite", "capacity"]) == 5
    assert chosen(variants=["softmax"]) == 1
    assert chosen(scales=["smoke"]) == 1
    assert chosen(runs=["second"]) == 1
    assert chosen(suites=["capacity"], variants=["delta"], scales=["quick"], runs=["first"]) == 1
    assert chosen(suites=[]) == 0


def test_the_latest_rows_are_those_of_the_newest_attempt_whatever_its_code_was(store, clock):
    store.append("first", attempt(value=0.25), owner=ME)
    clock.pass_seconds(60)
    store.append("second", replace(attempt(value=0.5), identity=Identity("new code", "data")), owner=ME)
    assert [row.value for row in store.rows() if row.metric == "retrieval_loss"] == [0.5]
    assert [row.value for row in store.rows(latest=False) if row.metric == "retrieval_loss"] == [0.25, 0.5]
    assert [row.value for row in store.rows(runs=["first"]) if row.metric == "retrieval_loss"] == [0.25]


def test_the_same_case_on_another_machine_or_on_other_data_is_another_row(store, clock):
    store.append("first", attempt(value=0.25), owner=ME)
    for seconds, other in ((60, Identity("code", "data", "another processor")), (120, Identity("code", "other data"))):
        clock.pass_seconds(seconds)
        store.append("second", replace(attempt(value=0.5), identity=other), owner=ME)
    assert len({row.attempt_id for row in store.rows()}) == 3


def test_a_row_says_how_its_case_is_asked_again(store):
    facts = {"address": "mine.py:VARIANT", "settings": "pairs=11", "door": "pytest"}
    store.append("first", attempt(facts=facts), owner=ME)
    assert store.rows()[0].facts == facts


def test_an_interrupted_attempt_shows_only_where_there_is_no_other(store, clock):
    store.append("first", attempt(status=Status.INTERRUPTED), owner=ME)
    assert [row.status for row in store.rows()] == [Status.INTERRUPTED]
    store.append("first", attempt(), owner=ME)
    clock.pass_seconds(60)
    store.append("second", attempt(status=Status.INTERRUPTED), owner=ME)
    assert {row.status for row in store.rows()} == {Status.OK}
    assert [row.status for row in store.rows(latest=False)].count(Status.INTERRUPTED) == 2


def test_rows_take_the_same_number_of_queries_however_many_there_are(store):
    asked = []
    event.listen(store._database._engine, "before_cursor_execute", lambda *seen: asked.append(seen[2]))
    for seed in range(30):
        store.append("first", attempt(replace(CASE, seed=seed)), owner=ME)
    asked.clear()
    assert len(store.rows()) == 60
    assert sum(statement.startswith("SELECT") for statement in asked) == 2


# Reading changes nothing.


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_reading_makes_no_file_and_changes_none(store, path):
    store.append("first", attempt(), owner=ME)
    store.close()
    before = files(path.parent)
    assert list(before) == ["bench.db"]
    with Store.open(path, writes=False) as reader:
        assert len(reader.rows()) == 2
        assert files(path.parent) == before
    assert files(path.parent) == before


def test_a_reader_sees_what_a_writer_stores_meanwhile(store, path):
    with Store.open(path, writes=False) as reader:
        assert reader.rows() == []
        store.append("first", attempt(), owner=ME)
        assert len(reader.rows()) == 2
        store.close()
        assert len(reader.rows()) == 2


def test_a_reader_asks_again_if_a_writer_came_while_it_read(store, path):
    store.close()
    answers = []

    def query(connection):
        answers.append(connection.exec_driver_sql("SELECT count(*) FROM attempt").scalar_one())
        if len(answers) == 1:
            with Store.open(path, writes=True) as writer:
                writer.append("first", attempt(), owner=ME)
        return answers[-1]

    with Store.open(path, writes=False) as reader:
        assert reader._database.read(query) == 1
    assert answers == [0, 1]


def test_a_store_opened_for_reading_refuses_to_write(store, path):
    with (
        Store.open(path, writes=False) as reader,
        pytest.raises(ValueError, match=r"bench\.db was opened for reading; open it with writes=True"),
    ):
        reader.end_run("first", "finished")


# Where it is.


def test_a_database_can_be_named_by_an_sqlite_url(path):
    with Store.open(f"sqlite:///{path}", writes=True) as store:
        assert store.rows() == []
    assert path.exists()


def test_a_path_may_hold_any_sign(tmp_path):
    path = tmp_path / "50% of ?#& a+b é.db"
    with Store.open(path, writes=True) as store:
        store.begin_run(Run("first", "attnbench run", START))
    with Store.open(str(path), writes=False) as store:
        assert len(store.runs()) == 1
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_relative_path_stays_the_same_file_when_the_folder_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Store.open("bench.db", writes=True) as store:
        monkeypatch.chdir("/")
        store._database._engine.dispose()
        store.begin_run(Run("first", "attnbench run", START))
    with Store.open(tmp_path / "bench.db", writes=False) as store:
        assert len(store.runs()) == 1


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///bench.db?mode=memory"])
def test_a_database_in_memory_is_refused(url):
    with pytest.raises(BadDatabase, match="does not name a plain file, which other processes could open"):
        Store.open(url, writes=True)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mysql://me:s3cret@host/name", r"mysql://me:\*\*\*@host/name is neither SQLite nor PostgreSQL with psycopg"),
        ("postgresql+asyncpg://me:s3cret@host/name", "neither SQLite nor PostgreSQL with psycopg"),
        ("postgresql://me:s3cret@host:port/name", r"postgresql://me:\*\*\*@host:port/name is not a database URL"),
    ],
)
def test_another_url_is_refused_without_showing_its_password(url, told):
    with pytest.raises(BadDatabase, match=told) as refusal:
        Store.open(url, writes=True)
    assert "s3cret" not in str(refusal.value)
    assert "postgresql://USER:PASSWORD@HOST/NAME" in str(refusal.value)


def test_without_psycopg_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(BadDatabase, match=r"PostgreSQL needs psycopg, .*pip install 'attnbench\[postgres\]'"):
        Store.open("postgresql://me@host/name", writes=True)
