"""A database of every revision comes up with its rows; one that is not ours, or newer, is left as it is."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import JSON, Boolean, Column, DateTime, Float, Integer, MetaData, insert

from attnbench.harness.errors import BadDatabase
from attnbench.harness.store import Store, schema, upgrade
from attnbench.harness.store.database import Database
from attnbench.harness.store.tables import METADATA

REVISIONS = schema.revisions()
OLDER = REVISIONS[:-1]


def database_at(path, revision):
    """A database as the attnbench of `revision` made it, with two rows in every table it had."""
    database = Database(path, writes=True)
    with database.migrate() as connection:
        schema.bring_to(connection, revision)
        tables = reflected(connection)
        for table in tables:
            connection.execute(insert(table), [row_of(table, number) for number in (1, 2)])
    database.close()
    return {table.name: rows_in(path, table.name) for table in tables}


def reflected(connection):
    found = MetaData()
    found.reflect(connection)
    return [table for table in found.sorted_tables if table.name != schema.REVISION_TABLE]


def row_of(table, number):
    return {column.name: cell_of(table.name, column, number) for column in table.columns}


def cell_of(table: str, column: Column, number: int) -> object:
    if column.foreign_keys:
        (key,) = column.foreign_keys
        return cell_of(key.column.table.name, key.column, number)
    for kind, value in (
        (JSON, {"number": number}),
        (Boolean, number == 1),
        (DateTime, datetime(2026, 1, number, 12, 30, 15, 250_000, tzinfo=UTC)),
        (Float, number / 8),
        (Integer, number),
    ):
        if isinstance(column.type, kind):
            return value
    return f"{table} {column.name} {number}"


def rows_in(path, table):
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f'SELECT * FROM "{table}" ORDER BY 1')]


def test_the_revisions_are_one_chain_and_numbered_in_order():
    config = Config()
    config.set_main_option("script_location", "attnbench.harness:migrations")
    chain = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert tuple(reversed(chain)) == REVISIONS
    assert len(OLDER) >= 1


def test_the_migrations_make_the_tables_that_the_code_uses(tmp_path):
    Store.open(tmp_path / "new.db", writes=True).close()
    with_tables = Database(tmp_path / "new.db", writes=False)

    def difference(connection):
        options = {"target_metadata": METADATA, "version_table": schema.REVISION_TABLE, "compare_server_default": True}
        return compare_metadata(MigrationContext.configure(connection, opts=options), METADATA)

    assert with_tables.read(difference) == []
    with_tables.close()


@pytest.mark.parametrize("revision", OLDER)
def test_a_database_of_every_older_revision_comes_up_with_its_rows_intact(tmp_path, revision):
    before = database_at(tmp_path / "old.db", revision)
    assert all(len(rows) == 2 for rows in before.values())
    assert {"run", "attempt", "measurement", "series", "artefact", "lease"} <= set(before)

    assert upgrade(tmp_path / "old.db") == (revision, REVISIONS[-1])

    for table, rows in before.items():
        after = rows_in(tmp_path / "old.db", table)
        assert [{name: row[name] for name in rows[0]} for row in after] == rows
    with closing(sqlite3.connect(tmp_path / "old.db")) as connection:
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_attempts_from_before_facts_have_none(tmp_path):
    database_at(tmp_path / "old.db", "0001")
    upgrade(tmp_path / "old.db")
    assert [json.loads(row["facts"]) for row in rows_in(tmp_path / "old.db", "attempt")] == [{}, {}]


def test_opening_for_writing_brings_an_older_database_up(tmp_path):
    database_at(tmp_path / "old.db", OLDER[0])
    with Store.open(tmp_path / "old.db", writes=True) as store:
        assert store.suites() == []
    assert upgrade(tmp_path / "old.db") == (REVISIONS[-1], REVISIONS[-1])


def test_opening_for_reading_leaves_an_older_database_alone_and_names_the_command(tmp_path):
    database_at(tmp_path / "old.db", OLDER[0])
    before = (tmp_path / "old.db").read_bytes()
    with pytest.raises(BadDatabase, match=r"old\.db was made by an older attnbench \(revision 0001; .*`attnbench db upgrade`; its rows stay"):  # fmt: skip
        Store.open(tmp_path / "old.db", writes=False)
    assert (tmp_path / "old.db").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["old.db"]


def test_a_migration_that_fails_leaves_the_database_as_it_was(tmp_path, monkeypatch):
    before = database_at(tmp_path / "old.db", "0001")

    def fails(*_args, **_options):
        raise RuntimeError("no power")

    # what 0002 does after it has made a table
    monkeypatch.setattr("alembic.op.add_column", fails)
    with pytest.raises(RuntimeError, match="no power"):
        upgrade(tmp_path / "old.db")
    database = Database(tmp_path / "old.db", writes=False)
    assert {table.name for table in database.read(reflected)} == set(before)
    database.close()
    monkeypatch.undo()
    assert upgrade(tmp_path / "old.db") == ("0001", REVISIONS[-1])


@pytest.mark.parametrize("writes", [True, False])
def test_a_database_of_a_newer_attnbench_is_refused_and_left_alone(tmp_path, writes):
    Store.open(tmp_path / "new.db", writes=True).close()
    with closing(sqlite3.connect(tmp_path / "new.db")) as connection:
        connection.execute(f"UPDATE {schema.REVISION_TABLE} SET version_num = '9999'")
        connection.commit()
    before = (tmp_path / "new.db").read_bytes()
    with pytest.raises(BadDatabase, match=rf"made by a newer attnbench: revision 9999, this one knows up to {REVISIONS[-1]}\. Update with: pip"):  # fmt: skip
        Store.open(tmp_path / "new.db", writes=writes)
    with pytest.raises(BadDatabase, match="made by a newer attnbench"):
        upgrade(tmp_path / "new.db")
    assert (tmp_path / "new.db").read_bytes() == before


@pytest.mark.parametrize("writes", [True, False])
def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path, writes):
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as connection:
        connection.execute("CREATE TABLE bookmarks (url)")
        connection.execute("CREATE TABLE alembic_version (version_num)")
    before = (tmp_path / "theirs.db").read_bytes()
    with pytest.raises(BadDatabase, match=r"theirs\.db is not a database of attnbench: another program made it \(its tables: alembic_version, bookmarks\)\. Give another one with --db"):  # fmt: skip
        Store.open(tmp_path / "theirs.db", writes=writes)
    with pytest.raises(BadDatabase, match="another program made it"):
        upgrade(tmp_path / "theirs.db")
    assert (tmp_path / "theirs.db").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["theirs.db"]


def test_there_is_nothing_to_upgrade_where_no_database_is(tmp_path):
    with pytest.raises(BadDatabase, match=r"no database at .*none\.db; `attnbench run` makes one"):
        upgrade(tmp_path / "none.db")
    (tmp_path / "empty.db").touch()
    with pytest.raises(BadDatabase, match=r"empty\.db is empty; `attnbench run` fills it"):
        upgrade(tmp_path / "empty.db")
    assert [path.name for path in tmp_path.iterdir()] == ["empty.db"]
