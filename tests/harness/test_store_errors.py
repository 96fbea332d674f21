"""The database: what goes wrong is said in one message."""

import os
import resource
import shutil
import sqlite3
import tempfile
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event
from stored import CASE, ME, START, attempt

from attnbench.harness.errors import BadDatabase
from attnbench.harness.rows import Artefact
from attnbench.harness.store import Run, Store, database

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
