"""Rows go into a file and come back: all of them, once, byte for byte; and what is no such file is told."""

import contextlib
import json
import math
import random
import resource
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from exported import CASE, CONTENTS, FACTS, IDENTITY, RUN, START, attempt, refused, unpacked
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.harness.errors import BadDatabase
from attnbench.harness.rowfile import read_rows, write_rows
from attnbench.harness.rows import Artefact, Attempt, Identity, Measurement, Series, Status
from attnbench.harness.spec import Case, Grid, Point, Suite
from attnbench.harness.store import (
    Contents,
    Run,
    RunState,
    Store,
    StoredAttempt,
    StoredMeasurement,
)
from attnbench.harness.store.tables import METADATA

# What is exported comes back.


texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=8)
finite = st.floats(allow_nan=False, allow_infinity=False)
times = st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))
points = st.dictionaries(texts, st.integers(-5, 5) | finite | texts | st.booleans(), max_size=3).map(Point)
cases = st.builds(
    Case,
    suite=st.sampled_from(["capacity", "rewrite"]),
    variant=st.sampled_from(["delta", "dpfp-nu2+delta"]),
    form=texts,
    point=points,
    seed=st.integers(0, 2**63 - 1),
    scale=texts,
    device=texts,
    threads=st.integers(0, 8),
)
measurements = st.builds(
    StoredMeasurement,
    metric=texts,
    value=finite,
    samples=st.lists(finite, max_size=3).map(tuple),
    unit=texts,
    better=texts,
)
# a curve may hold what is not finite; NaN is not equal to itself, so it is written as text before it is compared
curves = st.lists(st.tuples(finite, st.floats()), max_size=4).map(
    lambda pairs: tuple(zip(*pairs, strict=True)) or ((), ())
)
series = st.builds(lambda name, xy: Series(name, "step", *xy), texts, curves)
artefacts = st.builds(Artefact, texts, texts, texts)
attempts = st.builds(
    StoredAttempt,
    case=cases,
    identity=st.builds(Identity, texts, texts, texts),
    status=st.sampled_from(list(Status)),
    reason=texts,
    seconds=finite,
    started_at=times,
    measurements=st.lists(measurements, max_size=2, unique_by=lambda one: one.metric).map(tuple),
    series=st.lists(series, max_size=2, unique_by=lambda one: one.name).map(tuple),
    artefacts=st.lists(artefacts, max_size=2, unique_by=lambda one: one.name).map(tuple),
    facts=st.dictionaries(texts, texts, max_size=2),
    run_id=st.sampled_from(["one", "two"]),
    stored_at=times,
)


def told_apart(tried):
    return tried.run_id, tried.case, tried.started_at, tried.stored_at


@given(brought=st.lists(attempts, max_size=4, unique_by=told_apart))
@settings(max_examples=20)
def test_what_is_imported_and_exported_again_is_the_same_file_and_twice_adds_nothing(
    tmp_path_factory, new_database, brought
):
    folder = tmp_path_factory.mktemp("trip")
    runs = tuple(replace(RUN, id=name) for name in ("one", "two") if any(tried.run_id == name for tried in brought))
    suites = tuple(replace(FACTS, name=name) for name in sorted({tried.case.suite for tried in brought}))
    write_rows(Contents(runs, suites, tuple(brought)), folder / "first.jsonl.xz")
    database = shutil.copy(new_database, folder / "bench.db")
    with Store.open(database, writes=True) as store:
        read = read_rows(folder / "first.jsonl.xz")
        added = store.add(read)
        assert (added.runs, added.attempts, added.known_attempts) == (len(runs), len(brought), 0)
        write_rows(store.contents(), folder / "second.jsonl.xz")
        assert (folder / "second.jsonl.xz").read_bytes() == (folder / "first.jsonl.xz").read_bytes()
        again = store.add(read)
        assert (again.runs, again.attempts, again.known_attempts) == (0, 0, len(brought))
        assert repr(store.contents().attempts) == repr(read.attempts)


def test_what_a_run_stored_is_the_same_row_in_another_database_with_its_machine_and_commit(tmp_path, new_database):
    here, there = (shutil.copy(new_database, tmp_path / name) for name in ("here.db", "there.db"))
    grid = Grid(variants=("delta",), points=(Point(pairs=20),))
    suite = Suite("capacity", "Capacity", "how many?", "paper", "suites.capacity", "pairs", ("retrieval_loss",), {"quick": grid}, ("chunkwise",))  # fmt: skip
    measured = (Measurement("retrieval_loss", 1 / 3, (0.1, 0.2)), Measurement("training_steps", 100))
    curve = Series("loss", "step", (1.0, 2.0, 3.0), (0.5, math.inf, -math.inf))
    with Store.open(here, writes=True, now=lambda: START + timedelta(seconds=7)) as store:
        store.begin_run(Run(**{name: getattr(RUN, name) for name in Run.__dataclass_fields__}))
        store.record_suite(suite)
        facts = {"settings": "pairs=20"}
        store.append(
            RUN.id, Attempt(CASE, IDENTITY, Status.OK, "", 4.0, None, measured, (curve,), (), facts), owner="me"
        )
        store.end_run(RUN.id, "finished")
        write_rows(store.contents(), tmp_path / "rows.jsonl.xz")
        with Store.open(there, writes=True) as other:
            other.add(read_rows(tmp_path / "rows.jsonl.xz"))
            assert other.rows() == store.rows()
            assert other.series([1]) == store.series([1]) == {1: [curve]}
            assert other.runs() == store.runs()
            assert other.suites() == store.suites()
    (run,) = store.runs()
    assert (run.machine, run.commit, run.is_dirty) == ({"cpu": "AMD EPYC", "cores": 2}, "0" * 40, True)


def test_an_imported_case_is_done_only_where_code_data_and_testbed_match(database):
    with Store.open(database, writes=True) as store:
        store.add(CONTENTS)
        assert store.is_done(CASE, IDENTITY)
        for other in (
            Identity("new code", "data"),
            Identity("code", "new data"),
            Identity("code", "data", "elsewhere"),
        ):
            assert not store.is_done(CASE, other)
        assert not store.is_done(replace(CASE, device="cuda"), IDENTITY)
        assert not store.is_done(replace(CASE, threads=2), IDENTITY)
        # a failure counts as any other one does
        assert store.is_done(replace(CASE, seed=2), IDENTITY)
        assert not store.is_done(replace(CASE, seed=2), IDENTITY, run_id="mine", rerun="failed")


def test_files_that_overlap_are_put_together_and_the_end_of_a_run_is_learnt(database):
    begun = replace(RUN, state=RunState.RUNNING, ended_at=None)
    second = replace(RUN, id="second")
    with Store.open(database, writes=True) as store:
        store.add(Contents((begun,), (FACTS,), (attempt(0), attempt(1))))
        assert store.runs()[0].state is RunState.RUNNING
        later = Contents((RUN, second), (FACTS,), (attempt(1), attempt(2), attempt(0, run_id="second")))
        added = store.add(later)
        assert (added.runs, added.attempts, added.known_attempts) == (1, 2, 1)
        first, _ = store.runs()
        assert (first.state, first.ended_at) == (RunState.FINISHED, RUN.ended_at)
        assert [(tried.run_id, tried.case.seed) for tried in store.contents().attempts] == [
            (RUN.id, 0), (RUN.id, 1), (RUN.id, 2), ("second", 0),
        ]  # fmt: skip
        # an older file does not take the end away again
        store.add(Contents((begun,), (), ()))
        assert store.runs()[0].state is RunState.FINISHED


def test_what_the_database_knows_of_a_suite_stands(database):
    with Store.open(database, writes=True) as store:
        store.add(CONTENTS)
        store.add(replace(CONTENTS, suites=(replace(FACTS, question="how few?"),)))
        assert store.suites() == [FACTS]


def test_two_runs_of_one_name_are_refused_and_nothing_is_stored(database):
    with Store.open(database, writes=True) as store:
        store.add(CONTENTS)
        other = replace(RUN, commit="1" * 40, testbed="another")
        told = rf"run {RUN.id} is in the database already, with another commit and another testbed: .* --db\."
        with pytest.raises(BadDatabase, match=told):
            store.add(Contents((replace(RUN, id="new"), other), (), (attempt(5, run_id="new"),)))
        assert [run.id for run in store.runs()] == [RUN.id]
        assert len(store.contents().attempts) == 3


def test_the_newest_attempt_of_each_case_can_be_taken_alone_and_texts_left_behind(database):
    note = Artefact("sample", "text/plain", "eins zwei")
    old, new = attempt(0), replace(attempt(0, artefacts=(note,)), started_at=START + timedelta(days=1))
    with Store.open(database, writes=True) as store:
        store.add(Contents((RUN,), (FACTS,), (old, new)))
        assert store.contents().attempts == (old, new)
        assert store.contents(latest=True).attempts == (new,)
        assert store.contents(latest=True, artefacts=False).attempts == (replace(new, artefacts=()),)


def test_a_hundred_attempts_with_curves_of_a_hundred_points_take_less_than_100_kilobytes(tmp_path):
    draw = random.Random(0)
    # 10,000 random numbers of 17 digits: 16 digits of entropy are 6.6 bytes each, 66 kB, and nothing can do better
    brought = tuple(
        attempt(seed, series=(Series("loss", "step", tuple(map(float, range(100))), tuple(draw.random() for _ in range(100))),))
        for seed in range(100)
    )  # fmt: skip
    write_rows(Contents((RUN,), (FACTS,), brought), tmp_path / "rows.jsonl.xz")
    assert 66_000 < (tmp_path / "rows.jsonl.xz").stat().st_size < 100_000
    assert read_rows(tmp_path / "rows.jsonl.xz").attempts == brought


def test_the_file_is_one_json_text_a_line_and_says_first_what_it_is(tmp_path):
    write_rows(CONTENTS, tmp_path / "rows.jsonl.xz")
    first, *lines = map(json.loads, unpacked(tmp_path / "rows.jsonl.xz"))
    assert first == {"format": "attnbench rows", "version": 1}
    assert [next(iter(line)) for line in lines] == ["run", "suite", "attempt", "attempt", "attempt"]
    assert lines[0]["run"]["commit"] == "0" * 40
    assert lines[2]["attempt"]["measurements"] == [
        {"metric": "retrieval_loss", "value": 0.25, "samples": [0.25, 0.5], "unit": "1", "better": "lower"}
    ]


def test_the_file_has_every_column_of_a_database_but_its_own_numbers_and_who_held_the_lease(tmp_path):
    full = attempt(series=(Series("loss", "step", (), ()),), artefacts=(Artefact("sample", "text/plain", ""),))
    write_rows(Contents((RUN,), (FACTS,), (full,)), tmp_path / "rows.jsonl.xz")
    _, run, suite, tried = map(json.loads, unpacked(tmp_path / "rows.jsonl.xz"))
    flat = tried["attempt"]
    parts = {
        name: flat.pop(f"{name}s" if name != "series" else name)[0] for name in ("measurement", "series", "artefact")
    }
    for name, written in {"run": run["run"], "suite": suite["suite"], "attempt": flat, **parts}.items():
        own = {"id", "attempt_id", "owner", "case_key"} - {"id" if name == "run" else ""}
        assert written.keys() == set(METADATA.tables[name].columns.keys()) - own, name


def test_the_file_does_not_hang_on_the_order_in_which_a_database_numbers(tmp_path):
    write_rows(CONTENTS, tmp_path / "one.jsonl.xz")
    write_rows(replace(CONTENTS, attempts=CONTENTS.attempts[::-1]), tmp_path / "two.jsonl.xz")
    assert (tmp_path / "one.jsonl.xz").read_bytes() == (tmp_path / "two.jsonl.xz").read_bytes()


# Disks and databases that do not take them.


@contextlib.contextmanager
def room_for(most_bytes):
    """The system refuses to write a file beyond so many bytes. Only inside: pytest writes to files of its own, too."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_disk_without_room_keeps_the_older_export_and_nothing_half(attnbench, database, tmp_path):
    with Store.open(database, writes=True) as store:
        store.add(CONTENTS)
    (tmp_path / "rows.jsonl.xz").write_bytes(b"older")
    names = {path.name for path in tmp_path.iterdir()}
    with room_for(100):
        answer = attnbench("export", "-o", "rows.jsonl.xz")
    refused(
        answer, r"UserError: rows\.jsonl\.xz cannot be written: File too large\. Choose another place with --output\."
    )
    assert (tmp_path / "rows.jsonl.xz").read_bytes() == b"older"
    assert {path.name for path in tmp_path.iterdir()} == names


def test_a_disk_without_room_keeps_the_database_as_it_was(database):
    big = attempt(5, artefacts=(Artefact("log", "text/plain", "x" * 10**7),))
    with Store.open(database, writes=True) as store:
        store.add(CONTENTS)
        with room_for(5 * 10**6), pytest.raises(BadDatabase, match="the disk reports an error"):
            store.add(replace(CONTENTS, attempts=(attempt(4), big)))
        assert [tried.case.seed for tried in store.contents().attempts] == [0, 1, 2]


def test_a_database_that_is_older_is_brought_up_by_an_import_and_told_by_an_export(attnbench, tmp_path):
    from attnbench.harness.store import schema
    from attnbench.harness.store.database import Database

    older = Database(tmp_path / "attnbench.db", writes=True)
    with older.migrate() as connection:
        schema.bring_to(connection, schema.revisions()[0])
    older.close()
    refused(
        attnbench("export"), r"BadDatabase: attnbench\.db was made by an older attnbench .* `attnbench db upgrade`.*"
    )
    write_rows(CONTENTS, tmp_path / "rows.jsonl.xz")
    assert attnbench("import", "rows.jsonl.xz")[0] == 0
    with Store.open(tmp_path / "attnbench.db", writes=False) as store:
        assert store.contents() == replace(CONTENTS, runs=store.contents().runs)


def test_the_database_of_another_program_is_told_and_left_alone(attnbench, tmp_path):
    with closing(sqlite3.connect(tmp_path / "photos.db")) as other, other:
        other.execute("CREATE TABLE photo (name TEXT)")
    before = (tmp_path / "photos.db").read_bytes()
    write_rows(CONTENTS, tmp_path / "rows.jsonl.xz")
    told = r"BadDatabase: photos\.db is not a database of attnbench: another program made it \(its tables: photo\)\..*"
    refused(attnbench("import", "rows.jsonl.xz", "--db", "photos.db"), told)
    assert (tmp_path / "photos.db").read_bytes() == before
