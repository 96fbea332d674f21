"""Which revision a database has, and the way up. Revisions are the files in `harness/migrations/versions`."""

import re
from functools import cache
from importlib.resources import files
from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, Table, Text, inspect, select

from attnbench.harness.errors import BadDatabase
from attnbench.harness.store.database import Database

# a name of our own: another program in the same PostgreSQL database may have Alembic's usual one
REVISION_TABLE = "attnbench_revision"


@cache
def revisions() -> tuple[str, ...]:
    """The revisions that this code knows, oldest first: `v0001_tables.py` holds revision 0001."""
    names = (file.name for file in files("attnbench.harness.migrations.versions").iterdir())
    return tuple(sorted(found[1] for name in names if (found := re.fullmatch(r"v(\d{4})_\w+\.py", name))))


def upgrade(database: str | Path) -> tuple[str, str]:
    """Bring a database of ours to the newest revision; gives the revisions before and after. Raises BadDatabase."""
    reader = Database(database, writes=False)
    try:
        before = _known_revision(reader)
    finally:
        reader.close()
    if before is None:
        raise BadDatabase(f"{reader.name} is empty; `attnbench run` fills it.")
    writer = Database(database, writes=True)
    try:
        return before, _migrate(writer)
    finally:
        writer.close()


def open_current(database: str | Path, *, writes: bool) -> Database:
    """The database at the newest revision: made or brought there if it may be written. Raises BadDatabase."""
    opened = Database(database, writes=writes)
    try:
        # seen by a reader first: opening a file for writing changes it, and it may be another program's
        reader = Database(database, writes=False) if writes else opened
        revision = _known_revision(reader)
        reader.close()
        if not writes and revision is None:
            raise BadDatabase(f"{opened.name} is empty; `attnbench run` fills it.")
        if not writes and revision != revisions()[-1]:
            raise BadDatabase(
                f"{opened.name} was made by an older attnbench (revision {revision}; this one reads {revisions()[-1]}). "
                "Bring it up with `attnbench db upgrade`; its rows stay."
            )
        if writes:
            _migrate(opened)
    except BaseException:
        opened.close()
        raise
    return opened


def _known_revision(database: Database) -> str | None:
    """The revision of `database`, None if it has no tables yet. Raises BadDatabase if we did not make it."""
    revision = database.read(lambda connection: _revision(connection, database.name))
    if revision is not None and revision not in revisions():
        raise BadDatabase(
            f"{database.name} was made by a newer attnbench: revision {revision}, this one knows up to "
            f"{revisions()[-1]}. Update with: pip install --upgrade attnbench"
        )
    return revision


def _revision(connection: Connection, name: str, *, locks: bool = False) -> str | None:
    tables = inspect(connection).get_table_names()
    if not tables:
        return None
    if REVISION_TABLE not in tables:
        listed = ", ".join(tables[:5]) + (", ..." if len(tables) > 5 else "")
        raise BadDatabase(
            f"{name} is not a database of attnbench: another program made it (its tables: {listed}). "
            "Give another one with --db."
        )
    table = Table(REVISION_TABLE, MetaData(), Column("version_num", Text))
    chosen = select(table.c.version_num)
    return connection.execute(chosen.with_for_update() if locks else chosen).scalar_one()


def _migrate(database: Database) -> str:
    newest = revisions()[-1]
    with database.write() as connection:
        # the lock is also the proof, before the first case is run, that it can be written; SQLite gives it by itself
        if _revision(connection, database.name, locks=True) == newest:
            return newest
    with database.migrate() as connection:
        bring_to(connection, newest)
    return newest


def bring_to(connection: Connection, revision: str) -> None:
    """Run the migrations up to `revision`, in the transaction that `connection` is in."""
    # 0.2 seconds that only a new or an old database needs
    from alembic import command
    from alembic.config import Config

    # no ini file: an installed wheel has none
    config = Config()
    config.set_main_option("script_location", "attnbench.harness:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
