"""Measured rows that come with attnbench, and how reading commands lay them under a database.

    with Store.open("attnbench.db", writes=False) as store:
        overlaid(store).rows()      # the database's rows, and the shipped ones where it has none of its own

Each `*.jsonl.xz` in this folder was written by `attnbench export` (`harness/rowfile.py`) and keeps run, machine and commit.

What the database measured itself stands: a shipped row is left out where the database has any row of the same suite,
variant, form, point, scale, device and testbed, whatever its seed or status. So no cell of a table, which goes over seeds,
pools what was measured here with what was measured elsewhere. Shipped attempts have numbers below zero, which no
database gives: `is_shipped`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from attnbench.harness.rows import Artefact, Row, Series, Status
from attnbench.harness.spec import Setting

if TYPE_CHECKING:
    from attnbench.harness.store import StoredAttempt, StoredRun, SuiteFacts

FOLDER = Path(__file__).parent
_NEVER = datetime.min.replace(tzinfo=UTC)


class Shipped(NamedTuple):
    """Rows, runs and suites as a database would give them."""

    rows: tuple[Row, ...]
    runs: "tuple[StoredRun, ...]"
    suites: "tuple[SuiteFacts, ...]"


class Readable(Protocol):
    """A store, as far as reading commands need one."""

    def rows(
        self,
        *,
        suites: Collection[str] | None = None,
        variants: Collection[str] | None = None,
        scales: Collection[str] | None = None,
        runs: Collection[str] | None = None,
        latest: bool = True,
    ) -> list[Row]:
        """The newest attempt of each case, flat; all attempts if not `latest`."""

    def series(self, attempt_ids: Iterable[int]) -> dict[int, list[Series]]:
        """The curves of these attempts."""

    def artefacts(self, attempt_ids: Iterable[int]) -> dict[int, list[Artefact]]:
        """The texts of these attempts."""

    def runs(self) -> "list[StoredRun]":
        """All runs, oldest first."""

    def suites(self) -> "list[SuiteFacts]":
        """What was asked, by suite name."""


def shipped() -> Shipped:
    """The rows that came with attnbench, the newest attempt of each case; read once a process. Empty where none came.

    Raises UserError for a file that is damaged or of a newer attnbench.
    """
    from attnbench.harness.store import rows_of

    read = _read(FOLDER)
    rows = tuple(row for number, tried in read.attempts.items() for row in rows_of(tried, number))
    return Shipped(rows, read.runs, read.suites)


def is_shipped(row: Row) -> bool:
    """Whether a row came with attnbench and is not the database's own."""
    return row.attempt_id < 0


def origins(rows: Iterable[Row], runs: Iterable["RunOrigin"]) -> tuple[str, ...]:
    """A sentence for each machine and commit that shipped rows among `rows` are from: how many attempts, and of what."""
    made = {run.id: _made(run) for run in runs}
    attempts = {row.attempt_id: row for row in rows}
    groups: dict[str, list[Row]] = {}
    for row in attempts.values():
        if is_shipped(row):
            groups.setdefault(made.get(row.run_id, "a machine that is not recorded"), []).append(row)
    return tuple(
        f"Shipped with attnbench, not measured for this database: {len(theirs)} of {len(attempts)} attempts "
        f"({', '.join(sorted({row.variant for row in theirs}))}), measured on {where}"
        for where, theirs in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    )


class RunOrigin(Protocol):
    """What a reader must know of where a number was measured."""

    @property
    def id(self) -> str:
        """Its name in the database."""

    @property
    def machine(self) -> Mapping[str, str | int]:
        """Processor, cores, memory, operating system."""

    @property
    def device(self) -> Mapping[str, str | int]:
        """GPUs; empty where there is none."""

    @property
    def commit(self) -> str:
        """The commit of the source; empty where there is none."""

    @property
    def is_dirty(self) -> bool:
        """Whether the source had changes that are in no commit."""


def _made(run: RunOrigin) -> str:
    cores = run.machine.get("usable_cores", run.machine.get("cores"))
    processor = str(run.machine.get("cpu", "a processor that is not recorded"))
    words = [f"{processor}, {cores} core{'' if cores == 1 else 's'}" if cores else processor]
    if "gpu" in run.device:
        words.append(str(run.device["gpu"]))
    changes = " with changes that are in no commit" if run.is_dirty else ""
    return f"{', '.join(words)}, at commit {run.commit[:12] or 'not recorded'}{changes}"


@dataclass(frozen=True)
class Overlaid:
    """A store that answers as if the shipped rows were in it, but for those that its own rows take the place of."""

    store: Readable

    def rows(
        self,
        *,
        suites: Collection[str] | None = None,
        variants: Collection[str] | None = None,
        scales: Collection[str] | None = None,
        runs: Collection[str] | None = None,
        latest: bool = True,
    ) -> list[Row]:
        """The store's rows, then the shipped ones: see `Store.rows`."""
        own = self.store.rows(suites=suites, variants=variants, scales=scales, latest=latest)
        taken = {_cell(row) for row in own}
        return [row for row in own if runs is None or row.run_id in runs] + [
            row
            for row in shipped().rows
            if _cell(row) not in taken
            and (suites is None or row.suite in suites)
            and (variants is None or row.variant in variants)
            and (scales is None or row.scale in scales)
            and (runs is None or row.run_id in runs)
        ]

    def series(self, attempt_ids: Iterable[int]) -> dict[int, list[Series]]:
        """The curves of these attempts, by attempt; no entry for one without."""
        own, theirs = _apart(attempt_ids)
        found = {number: list(tried.series) for number, tried in theirs.items() if tried.series}
        return self.store.series(own) | found

    def artefacts(self, attempt_ids: Iterable[int]) -> dict[int, list[Artefact]]:
        """The texts of these attempts, by attempt; no entry for one without."""
        own, theirs = _apart(attempt_ids)
        found = {number: list(tried.artefacts) for number, tried in theirs.items() if tried.artefacts}
        return self.store.artefacts(own) | found

    def runs(self) -> "list[StoredRun]":
        """The runs of both, oldest first."""
        own = self.store.runs()
        known = {run.id for run in own}
        theirs = [run for run in shipped().runs if run.id not in known]
        return sorted([*own, *theirs], key=lambda run: (run.started_at, run.id))

    def suites(self) -> "list[SuiteFacts]":
        """The suites of both, by name; the store's own facts where it has some."""
        facts = {suite.name: suite for suite in (*shipped().suites, *self.store.suites())}
        return [facts[name] for name in sorted(facts)]


def overlaid(store: Readable) -> Overlaid:
    """`store` with the shipped rows laid under it, as this module's docstring says."""
    return Overlaid(store)


@contextmanager
def reading(database: str | Path | None, *, measured: bool) -> Iterator[Readable]:
    """What `database` holds, with the shipped rows laid under it if `measured`; those alone without a database.

    Raises BadDatabase where one is named that cannot be read.
    """
    from attnbench.harness.store import Store

    if database is None:
        yield overlaid(_Nothing())
        return
    with Store.open(database, writes=False) as store:
        yield overlaid(store) if measured else store


class _Nothing:
    """A store without a row."""

    def rows(self, **_chosen: Collection[str] | bool | None) -> list[Row]:
        return []

    def series(self, attempt_ids: Iterable[int]) -> dict[int, list[Series]]:
        return {}

    def artefacts(self, attempt_ids: Iterable[int]) -> dict[int, list[Artefact]]:
        return {}

    def runs(self) -> "list[StoredRun]":
        return []

    def suites(self) -> "list[SuiteFacts]":
        return []


def _cell(row: Row) -> tuple[Setting, ...]:
    """What the rows of one cell share, so that no cell has rows of both kinds."""
    return (row.suite, row.variant, row.form, row.point.json(), row.scale, row.device, row.testbed)


def _apart(attempt_ids: Iterable[int]) -> "tuple[list[int], dict[int, StoredAttempt]]":
    """The numbers that are the store's, and the shipped attempts of the others."""
    ids = list(attempt_ids)
    theirs = _read(FOLDER).attempts
    return [number for number in ids if number >= 0], {number: theirs[number] for number in ids if number in theirs}


class _Read(NamedTuple):
    attempts: "Mapping[int, StoredAttempt]"
    runs: "tuple[StoredRun, ...]"
    suites: "tuple[SuiteFacts, ...]"


@cache
def _read(folder: Path) -> _Read:
    """The files of `folder`, by name; the newest attempt of each case, numbered from -1 down."""
    from attnbench.harness.rowfile import SUFFIX, read_rows

    files = [read_rows(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]
    newest = _newest([tried for file in files for tried in file.attempts])
    used = {tried.run_id for tried in newest}
    runs = {run.id: run for file in files for run in file.runs if run.id in used}
    suites = {suite.name: suite for file in files for suite in file.suites}
    return _Read(
        {-number: tried for number, tried in enumerate(newest, start=1)},
        tuple(sorted(runs.values(), key=lambda run: (run.started_at, run.id))),
        tuple(suites[name] for name in sorted(suites)),
    )


def _newest(attempts: "Sequence[StoredAttempt]") -> "list[StoredAttempt]":
    """One attempt a case, as `Store.rows` chooses it: one that was interrupted only where there is no other."""

    def case(tried: "StoredAttempt") -> tuple[str, str, str]:
        return tried.case.key(), tried.identity.testbed, tried.identity.data_hash

    oldest_first = sorted(
        attempts, key=lambda tried: (tried.status is not Status.INTERRUPTED, tried.started_at or _NEVER)
    )
    newest = {case(tried): tried for tried in oldest_first}
    return [tried for tried in attempts if newest[case(tried)] is tried]
