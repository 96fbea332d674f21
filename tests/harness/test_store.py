"""The database: nothing is done twice, nothing is half stored, and what goes wrong is said in one message."""

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import event

from attnbench.harness.environment import lease_owner
from attnbench.harness.errors import BadDatabase, UnknownMetric
from attnbench.harness.rows import Artefact, Attempt, Identity, Measurement, Series, Status
from attnbench.harness.spec import Case, Grid, Point, Suite
from attnbench.harness.store import Claim, Run, RunState, Store, SuiteFacts, database

START = datetime(2026, 1, 1, tzinfo=UTC)
CASE = Case("capacity", "delta", "chunkwise", Point(pairs=20), seed=0, scale="quick")
IDENTITY = Identity(code_hash="code", data_hash="data")
# owners on machines that we cannot see, so that only the clock ends their leases
ME, OTHER = "here:1:1", "elsewhere:1:1"


class Clock:
    """A clock that only moves when told to."""

    def __init__(self):
        self.now = START

    def __call__(self):
        return self.now

    def pass_seconds(self, seconds):
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "bench.db"


@pytest.fixture(scope="module")
def new_database(tmp_path_factory):
    """A new database, made once: copying it is quicker than making it."""
    path = tmp_path_factory.mktemp("new") / "new.db"
    Store.open(path, writes=True).close()
    return path


@pytest.fixture
def store(path, clock, new_database):
    shutil.copy(new_database, path)
    with Store.open(path, writes=True, now=clock) as opened:
        for run_id in ("first", "second"):
            opened.begin_run(Run(run_id, "attnbench run", START))
        yield opened


def attempt(case=CASE, status=Status.OK, value=0.25, **more):
    measured = (Measurement("retrieval_loss", value, (value, value)), Measurement("training_steps", 100))
    return Attempt(case, IDENTITY, status, measurements=measured if status is Status.OK else (), **more)


def claim(store, case=CASE, identity=IDENTITY, *, run_id="first", owner=ME, lease_seconds=60.0, rerun="missing"):
    return store.claim(case, identity, run_id=run_id, owner=owner, lease_seconds=lease_seconds, rerun=rerun)


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


# What is done, and who is doing it.


def test_a_case_is_claimed_once_then_done(store):
    assert claim(store) is Claim.CLAIMED
    assert claim(store, owner=OTHER) is Claim.BUSY
    assert not store.is_done(CASE, IDENTITY)
    assert store.append("first", attempt(), owner=ME)
    assert claim(store, owner=OTHER) is Claim.DONE
    assert store.is_done(CASE, IDENTITY)


@pytest.mark.parametrize(
    ("case", "identity"),
    [
        (replace(CASE, seed=1), IDENTITY),
        (CASE, Identity("new code", "data")),
        (CASE, Identity("code", "new data")),
        (CASE, Identity("code", "data", "another machine")),
    ],
    ids=["seed", "code", "data", "testbed"],
)
def test_another_case_code_data_or_testbed_is_not_done(store, case, identity):
    store.append("first", attempt(), owner=ME)
    assert not store.is_done(case, identity)
    assert claim(store, case, identity) is Claim.CLAIMED


@pytest.mark.parametrize("status", list(Status))
def test_every_status_but_interrupted_makes_a_case_done(store, status):
    store.append("first", attempt(status=status), owner=ME)
    done = status is not Status.INTERRUPTED
    assert store.is_done(CASE, IDENTITY) is done
    assert claim(store) is (Claim.DONE if done else Claim.CLAIMED)


@pytest.mark.parametrize(
    ("rerun", "status", "run_id", "outcome"),
    [
        ("failed", Status.ERROR, "first", Claim.CLAIMED),
        ("failed", Status.TIMEOUT, "first", Claim.CLAIMED),
        ("failed", Status.DIVERGED, "first", Claim.DONE),
        ("failed", Status.SKIPPED, "first", Claim.DONE),
        ("failed", Status.OK, "first", Claim.DONE),
        ("failed", Status.ERROR, "second", Claim.DONE),
        ("always", Status.OK, "first", Claim.CLAIMED),
        ("always", Status.OK, "second", Claim.DONE),
        ("always", Status.ERROR, "second", Claim.DONE),
        ("always", Status.INTERRUPTED, "second", Claim.CLAIMED),
    ],
)
def test_a_rerun_repeats_what_it_names_and_nothing_twice(store, rerun, status, run_id, outcome):
    store.append(run_id, attempt(status=status), owner=ME)
    assert store.is_done(CASE, IDENTITY, run_id="second", rerun=rerun) is (outcome is Claim.DONE)
    assert claim(store, run_id="second", rerun=rerun) is outcome


def test_a_rerun_of_failures_goes_by_the_newest_attempt(store, clock):
    store.append("first", attempt(), owner=ME)
    clock.pass_seconds(60)
    store.append("first", attempt(status=Status.ERROR, started_at=clock()), owner=ME)
    assert not store.is_done(CASE, IDENTITY, run_id="second", rerun="failed")
    clock.pass_seconds(60)
    store.append("first", attempt(started_at=clock()), owner=ME)
    assert store.is_done(CASE, IDENTITY, run_id="second", rerun="failed")


def test_an_unknown_rerun_is_refused(store):
    with pytest.raises(ValueError, match="rerun must be one of missing, failed, always, got 'all'"):
        claim(store, rerun="all")


def test_a_lease_ends_with_its_expiry_and_not_before(store, clock):
    claim(store, owner=OTHER, lease_seconds=60)
    clock.pass_seconds(59)
    assert claim(store) is Claim.BUSY
    clock.pass_seconds(1)
    assert claim(store) is Claim.CLAIMED
    assert claim(store, owner=OTHER) is Claim.BUSY


def test_a_renewed_lease_lasts_longer_and_only_its_owner_renews_it(store, clock):
    claim(store, lease_seconds=60)
    store.renew([CASE.key()], owner=OTHER, lease_seconds=600)
    store.renew([CASE.key(), "another"], owner=ME, lease_seconds=100)
    clock.pass_seconds(99)
    assert claim(store, owner=OTHER) is Claim.BUSY
    clock.pass_seconds(1)
    assert claim(store, owner=OTHER) is Claim.CLAIMED


def test_a_released_case_is_free_and_only_its_owner_releases_it(store):
    claim(store)
    store.release(CASE.key(), owner=OTHER)
    assert claim(store, owner=OTHER) is Claim.BUSY
    store.release(CASE.key(), owner=ME)
    assert claim(store, owner=OTHER) is Claim.CLAIMED


def test_a_lease_whose_process_is_gone_ends_at_once(store):
    node, pid, start = lease_owner().split(":", 2)
    claim(store, owner=f"{node}:{pid}:{start}")
    assert claim(store) is Claim.BUSY
    claim(store, replace(CASE, seed=1), owner=f"{node}:{pid}:{start}9")
    assert claim(store, replace(CASE, seed=1)) is Claim.CLAIMED


def test_who_lost_the_lease_does_not_store_a_second_attempt(store, clock):
    claim(store, lease_seconds=60)
    clock.pass_seconds(61)
    assert claim(store, run_id="second", owner=OTHER) is Claim.CLAIMED
    clock.pass_seconds(1)
    assert store.append("second", attempt(value=0.5), owner=OTHER)
    assert not store.append("first", attempt(value=0.25, started_at=START), owner=ME)
    assert {row.run_id for row in store.rows(latest=False)} == {"second"}


def test_who_lost_the_lease_but_is_first_to_finish_is_the_one_that_is_stored(store, clock):
    claim(store, lease_seconds=60)
    clock.pass_seconds(61)
    assert claim(store, run_id="second", owner=OTHER) is Claim.CLAIMED
    clock.pass_seconds(1)
    assert store.append("first", attempt(started_at=START), owner=ME)
    clock.pass_seconds(1)
    assert not store.append("second", attempt(), owner=OTHER)
    assert {row.run_id for row in store.rows(latest=False)} == {"first"}
    # and its lease is gone, though nothing was stored
    assert claim(store, run_id="second", owner="third:1:1", rerun="always") is Claim.CLAIMED


def test_a_rerun_by_another_owner_is_stored_beside_the_older_attempt(store, clock):
    claim(store)
    store.append("first", attempt(value=0.25), owner=ME)
    clock.pass_seconds(60)
    assert claim(store, run_id="second", owner=OTHER, rerun="always") is Claim.CLAIMED
    assert store.append("second", attempt(value=0.5, started_at=START), owner=OTHER)
    assert len({row.attempt_id for row in store.rows(latest=False)}) == 2


# Many processes, and none that finishes.

WORKER = """
import random, sys
from datetime import UTC, datetime
from attnbench.harness.environment import Run, lease_owner
from attnbench.harness.rows import Attempt, Identity, Measurement, Status
from attnbench.harness.spec import Case, Point
from attnbench.harness.store import Claim, Store
import alembic.command

path, number = sys.argv[1], sys.argv[2]
cases = [Case("capacity", "delta", "chunkwise", Point(pairs=pairs), 0, "quick") for pairs in range(60)]
random.Random(number).shuffle(cases)
identity, owner = Identity("code", "data"), lease_owner()
print("ready", flush=True)
sys.stdin.readline()
with Store.open(path, writes=True) as store:
    store.begin_run(Run(number, "worker", datetime.now(UTC)))
    while cases:
        for case in list(cases):
            outcome = store.claim(case, identity, run_id=number, owner=owner, lease_seconds=600)
            if outcome is Claim.CLAIMED:
                print(case.point.integer("pairs"))
                measured = (Measurement("retrieval_loss", 0.5, (0.5,) * 50),)
                assert store.append(number, Attempt(case, identity, Status.OK, measurements=measured), owner=owner)
            if outcome is not Claim.BUSY:
                cases.remove(case)
    store.end_run(number, "finished")
"""


def test_four_processes_on_one_new_database_do_each_case_once(path):
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(path), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    # all at once, on a file that is not there yet
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    claimed = [int(line) for worker in workers for line in worker.communicate(timeout=120)[0].split()]
    assert [worker.returncode for worker in workers] == [0, 0, 0, 0]
    assert sorted(claimed) == list(range(60))
    with Store.open(path, writes=False) as store:
        assert sorted(row.point.integer("pairs") for row in store.rows(latest=False)) == list(range(60))
        assert [run.state for run in store.runs()] == [RunState.FINISHED] * 4


KILLED = """
import os, random, signal, sys, time
from dataclasses import replace
from datetime import UTC, datetime
from attnbench.harness.environment import Run
from attnbench.harness.rows import Artefact, Attempt, Identity, Measurement, Series, Status
from attnbench.harness.spec import Case, Point
from attnbench.harness.store import Store

path = sys.argv[1]
with Store.open(path, writes=True) as store:
    store.begin_run(Run("run", "killed", datetime.now(UTC)))
curve = tuple(float(step) for step in range(2000))
measured = tuple(Measurement(name, 0.5, curve[:50]) for name in ("retrieval_loss", "training_steps", "parameters"))
attempt = Attempt(
    Case("capacity", "delta", "chunkwise", Point(pairs=20), 0, "quick"), Identity("code", "data"), Status.OK,
    measurements=measured, series=(Series("loss", "step", curve, curve),), artefacts=(Artefact("log", "text/plain", "x" * 9000),),
)
moments = random.Random(0)
stored = 0
for kill in range(20):
    told, tells = os.pipe()
    child = os.fork()
    if not child:
        with Store.open(path, writes=True) as store:
            for seed in range(kill * 10**6, 10**9):
                store.append("run", replace(attempt, case=replace(attempt.case, seed=seed)), owner="me")
                os.write(tells, b"x")
    os.close(tells)
    stored += len(os.read(told, 1))
    time.sleep(moments.uniform(0, 0.02))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(told, 4096):
        stored += len(more)
    os.close(told)
print(stored)
"""


def test_a_process_killed_at_any_moment_leaves_whole_attempts_and_loses_none(path):
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True, text=True, check=True)
    with Store.open(path, writes=False) as store:
        rows = store.rows(latest=False)
        ids = {row.attempt_id for row in rows}
        assert len(rows) == 3 * len(ids)
        assert set(store.series(ids)) == set(store.artefacts(ids)) == ids
        # the last one may have been stored and not yet told
        assert int(killed.stdout) <= len(ids) <= int(killed.stdout) + 20
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        for table in ("measurement", "series", "artefact"):
            orphans = f"SELECT count(*) FROM {table} WHERE attempt_id NOT IN (SELECT id FROM attempt)"
            assert connection.execute(orphans).fetchone() == (0,)


def test_an_attempt_of_which_one_part_cannot_be_stored_leaves_nothing(store):
    claim(store)
    twice = (Series("loss", "step", (), ()), Series("loss", "step", (), ()))
    with pytest.raises(Exception, match="UNIQUE constraint failed"):
        store.append("first", attempt(series=twice), owner=ME)
    assert store.rows() == []
    assert claim(store, owner=OTHER) is Claim.BUSY


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


# What goes wrong is said.


@pytest.mark.parametrize("writes", [True, False])
def test_a_folder_is_no_database(tmp_path, writes):
    with pytest.raises(BadDatabase, match=r"is a folder; a database is a file, for example .*attnbench\.db"):
        Store.open(tmp_path, writes=writes)


def test_a_missing_database_is_not_made_by_reading(path):
    with pytest.raises(BadDatabase, match=r"no database at .*bench\.db; `attnbench run` makes one"):
        Store.open(path, writes=False)
    assert not path.exists()


def test_a_missing_folder_is_not_made(tmp_path):
    with pytest.raises(BadDatabase, match=r"no folder .*results for the database .*Make it first: mkdir -p .*results"):
        Store.open(tmp_path / "results" / "bench.db", writes=True)
    assert not (tmp_path / "results").exists()


def test_an_empty_file_is_filled_by_writing_and_refused_by_reading(path):
    path.touch()
    with pytest.raises(BadDatabase, match=r"bench\.db is empty; `attnbench run` fills it"):
        Store.open(path, writes=False)
    assert path.stat().st_size == 0
    Store.open(path, writes=True).close()
    assert path.stat().st_size > 0


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("text", ["x", "seed,loss\n" * 500])
def test_a_file_that_is_not_sqlite_is_refused_and_left_alone(path, text, writes):
    path.write_text(text)
    with pytest.raises(BadDatabase, match=r"bench\.db is not a database of attnbench: it is not an SQLite file\. Give another"):  # fmt: skip
        Store.open(path, writes=writes)
    assert path.read_text() == text


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="needs /dev/null")
def test_a_device_is_no_database():
    with pytest.raises(BadDatabase, match="/dev/null is not a database of attnbench"):
        Store.open("/dev/null", writes=True)


def test_a_damaged_database_is_told(store, path):
    for seed in range(20):
        store.append("first", attempt(replace(CASE, seed=seed)), owner=ME)
    store.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with (
        pytest.raises(BadDatabase, match=r"bench\.db is damaged\. Restore a copy"),
        Store.open(path, writes=False) as reader,
    ):
        reader.rows()


def test_a_full_disk_stores_nothing_of_the_attempt_and_keeps_the_others(store, path):
    def fill(connection, _record):
        connection.execute("PRAGMA max_page_count=1")

    store.append("first", attempt(), owner=ME)
    big = attempt(replace(CASE, seed=1), artefacts=(Artefact("log", "text/plain", "x" * 10**6),))
    # SQLite refuses to grow the file then, with the error that a full disk gives
    event.listen(store._database._engine, "connect", fill)
    store._database._engine.dispose()
    with pytest.raises(BadDatabase, match=r"bench\.db cannot grow: the disk is full\. What was stored is safe; free some space"):  # fmt: skip
        store.append("first", big, owner=ME)
    assert [row.seed for row in store.rows()] == [0, 0]
    event.remove(store._database._engine, "connect", fill)
    store._database._engine.dispose()
    assert store.append("first", big, owner=ME)


def test_an_error_of_the_disk_is_told_and_what_was_stored_is_kept(store, path):
    store.append("first", attempt(), owner=ME)
    big = attempt(replace(CASE, seed=1), artefacts=(Artefact("log", "text/plain", "x" * 10**7),))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # the system then refuses to write beyond the limit
    resource.setrlimit(resource.RLIMIT_FSIZE, (5 * 10**6, hard))
    try:
        with pytest.raises(BadDatabase, match=r"bench\.db cannot be read or written: the disk reports an error"):
            store.append("first", big, owner=ME)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [row.seed for row in store.rows()] == [0, 0]


def test_a_database_that_another_program_holds_is_told(store, path, monkeypatch):
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.02)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(BadDatabase, match=r"bench\.db is locked: another program held it for 0 seconds"):
            Store.open(path, writes=True)
        # readers do not wait for writers
        with Store.open(path, writes=False) as reader:
            assert reader.rows() == []


@pytest.mark.parametrize("writes", [True, False])
def test_a_database_that_was_removed_meanwhile_is_told_and_not_made_anew(store, path, writes):
    store.close()
    with Store.open(path, writes=writes) as opened:
        opened._database._engine.dispose()
        path.unlink()
        with pytest.raises(BadDatabase, match=r"bench\.db is gone: somebody moved or removed it"):
            opened.rows()
    assert not path.exists()


@pytest.fixture
def public_path():
    """A database in a folder that every user may reach, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    with Store.open(folder / "bench.db", writes=True) as opened:
        opened.begin_run(Run("first", "attnbench run", START))
        opened.append("first", attempt(), owner=ME)
    yield folder / "bench.db"
    folder.chmod(0o755)
    shutil.rmtree(folder)


@contextmanager
def as_ordinary_user():
    """Root may write everywhere, so root becomes nobody for a while."""
    if os.geteuid() != 0:
        yield
        return
    try:
        os.seteuid(65534)
    except OSError as error:
        pytest.skip(f"root cannot become another user here: {error}")
    try:
        yield
    finally:
        os.seteuid(0)


def refused(path, *, writes):
    try:
        with as_ordinary_user():
            Store.open(path, writes=writes).close()
    except BadDatabase as error:
        return str(error)
    return "not refused"


def test_a_read_only_file_is_not_written(public_path):
    public_path.chmod(0o444)
    assert refused(public_path, writes=True) == f"{public_path} cannot be written: Permission denied. Give another one with --db."  # fmt: skip


def test_a_database_in_a_read_only_folder_is_not_written(public_path):
    public_path.chmod(0o666)
    public_path.parent.chmod(0o555)
    told = refused(public_path, writes=True)
    assert told.startswith(f"{public_path} cannot be written: the file or its folder is read-only. Give another one")


def test_no_database_is_made_in_a_read_only_folder(public_path):
    public_path.parent.chmod(0o555)
    new = public_path.with_name("new.db")
    assert refused(new, writes=True) == f"{new} cannot be written: Permission denied. Give another one with --db."
    assert not new.exists()


def test_a_file_that_may_not_be_read_is_told(public_path):
    public_path.chmod(0o000)
    assert refused(public_path, writes=False) == f"{public_path} cannot be read: Permission denied. Give another one with --db."  # fmt: skip


def test_a_read_only_file_in_a_read_only_folder_can_be_read(public_path):
    public_path.chmod(0o444)
    public_path.parent.chmod(0o555)
    with as_ordinary_user(), Store.open(public_path, writes=False) as reader:
        rows = reader.rows()
    assert len(rows) == 2


def test_newer_rows_beside_a_read_only_file_are_not_passed_over(public_path):
    with Store.open(public_path, writes=True) as writer:
        writer.append("first", attempt(replace(CASE, seed=1)), owner=ME)
        # as a killed run leaves it
        log = public_path.with_name("bench.db-wal").read_bytes()
    public_path.with_name("bench.db-wal").write_bytes(log)
    public_path.parent.chmod(0o555)
    told = refused(public_path, writes=False)
    assert told.startswith(f"{public_path} has newer rows in its -wal file, and its folder is read-only. Copy both to")


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
