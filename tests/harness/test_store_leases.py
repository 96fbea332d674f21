"""The database: nothing is done twice, and nothing is half stored."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import pytest
from stored import CASE, IDENTITY, ME, OTHER, START, attempt, claim

from attnbench.harness.environment import lease_owner
from attnbench.harness.rows import Identity, Series, Status
from attnbench.harness.store import Claim, RunState, Store

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
