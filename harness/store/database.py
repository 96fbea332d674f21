"""Where the tables are: an SQLite file or a PostgreSQL server. The only file that knows which of the two it is.

SQLite keeps a write-ahead log (WAL) beside the file while somebody writes: readers and a writer do not wait for each
other, writers queue (https://sqlite.org/wal.html). What goes wrong is told as BadDatabase.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, NullPool, QueuePool, Table, create_engine, event, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, OperationalError

from attnbench.harness.environment import without_password
from attnbench.harness.errors import BadDatabase

Answer = TypeVar("Answer")
BUSY_SECONDS = 60.0
_ANOTHER = "Give another one with --db."
_MIGRATION_LOCK = 0x61746E62


class Database:
    """Reads and writes in transactions. Not to be carried across a fork: open one in each process."""

    def __init__(self, database: str | Path, *, writes: bool) -> None:
        place = _place(database)
        self.writes = writes
        self.path = place if isinstance(place, Path) else None
        self.name = str(database) if isinstance(place, Path) else without_password(str(database))
        if isinstance(place, Path):
            _check_file(place, self.name, writes=writes)
            self._engine = _sqlite_engine(place, "mode=rw" if writes else "mode=ro", writes=writes)
        else:
            self._engine = _postgres_engine(place, writes=writes)

    def close(self) -> None:
        """Let go of the connections."""
        self._engine.dispose()

    def read(self, query: Callable[[Connection], Answer]) -> Answer:
        """What `query` gives, asked in one transaction that sees one state and changes nothing."""
        if self.path is None or self.writes:
            return self._ask(self._engine, query)
        # A plain reader of a WAL database makes files beside it, leaves them there, and fails in a read-only folder.
        # While nobody writes, immutable=1 does none of this; if somebody began to write meanwhile, ask again.
        before = _state_at_rest(self.path)
        if before is not None:
            try:
                answer = self._ask(_sqlite_engine(self.path, "immutable=1", writes=False), query)
            except BadDatabase:
                if _state_at_rest(self.path) == before:
                    raise
            else:
                if _state_at_rest(self.path) == before:
                    return answer
        return self._ask(self._engine, query)

    def _ask(self, engine: Engine, query: Callable[[Connection], Answer]) -> Answer:
        with self._explained(), engine.begin() as connection:
            return query(connection)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that may write: all of it is stored or nothing."""
        if not self.writes:
            raise ValueError(f"{self.name} was opened for reading; open it with writes=True")
        with self._explained(), self._engine.execution_options(is_writing=True).begin() as connection:
            yield connection

    @contextmanager
    def migrate(self) -> Iterator[Connection]:
        """A transaction that may change tables: one process at a time, the others wait."""
        if self.path is None:
            with self.write() as connection:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
                yield connection
            return
        # rebuilding a table drops it, which foreign keys would turn into deleting the rows that point to it
        engine = _sqlite_engine(self.path, "mode=rw", writes=True, foreign_keys=False)
        with self._explained(), engine.execution_options(is_writing=True).begin() as connection:
            yield connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise
        except DBAPIError as error:
            if self.path is None:
                told = _postgres_message(error)
            elif self.path.exists():
                told = _sqlite_message(error.orig, writes=self.writes)
            else:
                told = "is gone: somebody moved or removed it. Put it back, or run again to make a new one."
            if told is None:
                raise
            raise BadDatabase(f"{self.name} {told}") from error


def upsert(connection: Connection, table: Table) -> "postgresql.Insert | sqlite.Insert":
    """An insert that takes on_conflict_do_nothing and on_conflict_do_update, which both dialects spell alike."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def _place(database: str | Path) -> Path | URL:
    if isinstance(database, Path) or "://" not in database:
        return Path(database).absolute()
    try:
        url = make_url(database)
    except (ArgumentError, ValueError):
        raise BadDatabase(f"{without_password(database)} is not a database URL. {_URLS}") from None
    if url.drivername == "sqlite":
        if not url.database or url.database == ":memory:" or url.query:
            raise BadDatabase(f"{database} does not name a plain file, which other processes could open. {_URLS}")
        return Path(url.database).absolute()
    if url.drivername not in {"postgresql", "postgres", "postgresql+psycopg"}:
        raise BadDatabase(f"{without_password(database)} is neither SQLite nor PostgreSQL with psycopg. {_URLS}")
    return url.set(drivername="postgresql+psycopg")


_URLS = "Use a path, sqlite:///PATH (four slashes for an absolute one) or postgresql://USER:PASSWORD@HOST/NAME."


def _check_file(path: Path, name: str, *, writes: bool) -> None:
    """Refuse what SQLite would take for an empty database, or make silently. Makes the file if it may be written."""
    try:
        if path.is_dir():
            raise BadDatabase(f"{name} is a folder; a database is a file, for example {Path(name) / 'attnbench.db'}.")
        if writes and not path.parent.is_dir():
            raise BadDatabase(f"no folder {path.parent} for the database {name}. Make it first: mkdir -p {path.parent}")
        if not writes and not path.exists():
            raise BadDatabase(f"no database at {name}; `attnbench run` makes one.")
        if writes:
            path.open("ab").close()
        with path.open("rb") as file:
            start = file.read(16) if path.is_file() else b"not a file"
    except OSError as error:
        what = "written" if writes else "read"
        raise BadDatabase(f"{name} cannot be {what}: {error.strerror or error}. {_ANOTHER}") from error
    if start and start != b"SQLite format 3\0":
        raise BadDatabase(f"{name} is not a database of attnbench: it is not an SQLite file. {_ANOTHER}")


def _state_at_rest(path: Path) -> tuple[int, ...] | None:
    """What changes when the file does; None while its newest rows may lie beside it, because somebody writes."""
    try:
        for suffix in ("-wal", "-journal"):
            beside = path.with_name(path.name + suffix)
            if beside.exists() and beside.stat().st_size:
                return None
        state = path.stat()
    except FileNotFoundError:
        # gone between the question and the look: somebody is at work
        return None
    return state.st_ino, state.st_size, state.st_mtime_ns


def _sqlite_engine(path: Path, mode: str, *, writes: bool, foreign_keys: bool = True) -> Engine:
    uri = f"file:{quote(str(path))}?{mode}"

    def connect() -> sqlite3.Connection:
        # isolation_level=None: transactions begin where we say, below, not where Python's module guesses
        return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)

    def prepare(connection: sqlite3.Connection, _record: Any) -> None:
        connection.execute(f"PRAGMA foreign_keys={int(foreign_keys)}")
        if writes:
            _keep_wal(connection)
            # With WAL a killed process loses nothing. A power cut may lose the last transactions, but damages nothing;
            # a case is cheaper to run again than every commit is to wait for the disk.
            connection.execute("PRAGMA synchronous=NORMAL")
        else:
            connection.execute("PRAGMA query_only=1")

    def begin(connection: Connection) -> None:
        # a transaction that reads first and writes later could fail when another wrote between; IMMEDIATE waits instead
        is_writing = connection.get_execution_options().get("is_writing")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing else "BEGIN")

    pool = QueuePool if writes and foreign_keys else NullPool
    engine = create_engine("sqlite://", creator=connect, poolclass=pool)
    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", begin)
    return engine


def _keep_wal(connection: sqlite3.Connection) -> None:
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            # the busy timeout does not hold for this statement; several processes may open a new file at once
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _sqlite_message(error: BaseException | None, *, writes: bool) -> str | None:
    if not isinstance(error, sqlite3.Error):
        return None
    # the low byte is the error, the others its detail
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if not writes and code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}:
        # a file that is there fails a reader only where its log needs an index, which is made beside it
        return (
            "has newer rows in its -wal file, and its folder is read-only. Copy both to a folder of yours; read there."
        )
    told = {
        sqlite3.SQLITE_NOTADB: f"is not a database of attnbench: it is not an SQLite file. {_ANOTHER}",
        sqlite3.SQLITE_CORRUPT: f"is damaged. Restore a copy of it. {_ANOTHER}",
        sqlite3.SQLITE_READONLY: f"cannot be written: the file or its folder is read-only. {_ANOTHER}",
        sqlite3.SQLITE_CANTOPEN: f"cannot be opened: its folder is read-only or gone. {_ANOTHER}",
        sqlite3.SQLITE_PERM: f"cannot be opened: permission denied. {_ANOTHER}",
        sqlite3.SQLITE_FULL: "cannot grow: the disk is full. What was stored is safe; free some space and run again.",
        sqlite3.SQLITE_IOERR: "cannot be read or written: the disk reports an error. What was stored before is kept.",
        sqlite3.SQLITE_BUSY: f"is locked: another program held it for {BUSY_SECONDS:.0f} seconds. End it and run again.",
    }.get(code)
    return None if told is None else f"{told} (SQLite: {error})"


def _postgres_engine(url: URL, *, writes: bool) -> Engine:
    try:
        # pool_pre_ping: a server that was restarted since the last case costs a new connection, not the run
        engine = create_engine(url, pool_pre_ping=True)
    except ImportError as error:
        raise BadDatabase(
            f"PostgreSQL needs psycopg, which cannot be imported ({error}). Install the extra `postgres`: "
            "pip install 'attnbench[postgres]'"
        ) from error
    return engine if writes else engine.execution_options(postgresql_readonly=True)


def _postgres_message(error: DBAPIError) -> str | None:
    state = getattr(error.orig, "sqlstate", None) or ""
    said = without_password(" ".join(str(error.orig).split()))
    if state.startswith("53"):
        return f"has no room left. What was stored is safe; free some space and run again. (PostgreSQL: {said})"
    if state in {"25006", "42501"}:
        return f"cannot be written: its server or this user is read-only. {_ANOTHER} (PostgreSQL: {said})"
    return f"cannot be used: {said}" if isinstance(error, OperationalError) else None
