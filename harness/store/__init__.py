"""The database: every attempt with its numbers and its provenance, and who is running what now. Needs no torch.

    with Store.open("attnbench.db", writes=True) as store:
        store.begin_run(run)
        if store.claim(case, identity, run_id=run.id, owner=owner, lease_seconds=600) is Claim.CLAIMED:
            store.append(run.id, attempt, owner=owner)
        store.end_run(run.id, "finished")
        store.rows(suites=["capacity"])

tables: what is kept.  database: where.  schema: which revision.  leases, writing, reading: what is done with it.
`contents` takes a part out whole, and `add` puts it into another database: `harness/rowfile.py` is the file between,
`nameless` what it says of whoever measured.
"""

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import Connection

from attnbench.harness.environment import Run
from attnbench.harness.rows import Artefact, Attempt, Identity, Row, Series
from attnbench.harness.spec import Case, Suite
from attnbench.harness.store import leases, reading, writing
from attnbench.harness.store.database import Database
from attnbench.harness.store.leases import RERUNS, Claim
from attnbench.harness.store.reading import (
    Contents,
    RunState,
    StoredAttempt,
    StoredMeasurement,
    StoredRun,
    SuiteFacts,
    rows_of,
)
from attnbench.harness.store.schema import open_current, upgrade
from attnbench.harness.store.writing import Added

__all__ = [
    "RERUNS",
    "Added",
    "Claim",
    "Contents",
    "Run",
    "RunState",
    "Store",
    "StoredAttempt",
    "StoredMeasurement",
    "StoredRun",
    "SuiteFacts",
    "rows_of",
    "upgrade",
]


def _now() -> datetime:
    return datetime.now(UTC)


class Store:
    """One open database. Each method that writes is one transaction: all of it is stored, or nothing.

    Methods raise BadDatabase when the disk is full, the file is read-only, another program holds it too long, ...
    Open it in the process that uses it: it is not to be carried across a fork.
    """

    def __init__(self, database: Database, now: Callable[[], datetime] = _now) -> None:
        self._database = database
        self._now = now

    @classmethod
    def open(cls, database: str | Path, *, writes: bool, now: Callable[[], datetime] = _now) -> "Store":
        """The store in the file, or behind the URL, `database`.

        With `writes` it is made if it is missing, and brought up if an older attnbench made it; without, nothing is
        made or changed, and a read-only file will do. Raises BadDatabase. `now` is the clock that leases go by.
        """
        return cls(open_current(database, writes=writes), now)

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin_run(self, run: Run) -> None:
        """Store what is known of a run when it starts; its state is `running` until `end_run`."""
        with self._database.write() as connection:
            writing.begin_run(connection, run, state=RunState.RUNNING.value)

    def end_run(self, run_id: str, state: str) -> None:
        """Store how a run ended (finished, failed, interrupted) and drop the leases that it still has."""
        with self._database.write() as connection:
            writing.end_run(connection, run_id, state=RunState(state).value, now=self._now())

    def record_suite(self, suite: Suite) -> None:
        """Store what a suite asks, so that reports need not import it."""
        with self._database.write() as connection:
            writing.record_suite(connection, suite)

    def claim(
        self,
        case: Case,
        identity: Identity,
        *,
        run_id: str,
        owner: str,
        lease_seconds: float,
        rerun: str = "missing",
    ) -> Claim:
        """CLAIMED if `owner` is to run the case now, and nobody else will for `lease_seconds`.

        DONE if an attempt with a final status has the same case, code, data and testbed. For rerun="failed" a failure
        counts only if this run stored it, for rerun="always" so does any attempt. BUSY if another owner's lease is on
        it that has not expired and whose process, as far as we can see, lives.
        """
        with self._database.write() as connection:
            if leases.is_done(connection, case, identity, run_id=run_id, rerun=rerun):
                return Claim.DONE
            if not leases.take(
                connection, case.key(), run_id=run_id, owner=owner, now=self._now(), lease_seconds=lease_seconds
            ):
                return Claim.BUSY
            # PostgreSQL lets another writer finish the case between the two; SQLite does not
            if leases.is_done(connection, case, identity, run_id=run_id, rerun=rerun):
                leases.release(connection, case.key(), owner=owner)
                return Claim.DONE
            return Claim.CLAIMED

    def is_done(self, case: Case, identity: Identity, *, run_id: str = "", rerun: str = "missing") -> bool:
        """Whether `claim` would answer DONE. Writes nothing."""
        return self._database.read(
            lambda connection: leases.is_done(connection, case, identity, run_id=run_id, rerun=rerun)
        )

    def renew(self, case_keys: Iterable[str], *, owner: str, lease_seconds: float) -> None:
        """Put off the expiry of those leases that are still `owner`'s."""
        with self._database.write() as connection:
            leases.renew(connection, case_keys, owner=owner, now=self._now(), lease_seconds=lease_seconds)

    def release(self, case_key: str, *, owner: str) -> None:
        """Give a lease back without an attempt, if it is still `owner`'s."""
        with self._database.write() as connection:
            leases.release(connection, case_key, owner=owner)

    def append(self, run_id: str, attempt: Attempt, *, owner: str) -> bool:
        """Store an attempt with all that belongs to it, and end its lease, in one transaction.

        False, and nothing is stored, if the lease was lost and another owner finished the case meanwhile. Raises
        UnknownMetric, and ValueError for a measurement that is not finite.
        """
        with self._database.write() as connection:
            return writing.append(connection, run_id, attempt, owner=owner, now=self._now())

    def rows(
        self,
        *,
        suites: Collection[str] | None = None,
        variants: Collection[str] | None = None,
        scales: Collection[str] | None = None,
        runs: Collection[str] | None = None,
        latest: bool = True,
    ) -> list[Row]:
        """The flat rows, one a metric, of the attempts with these suites, variants, scales and runs (None: all).

        With `latest` only the newest attempt of each case, whatever its code was; an interrupted one only where there
        is no other. Without, all attempts.
        """
        return self._database.read(
            lambda connection: reading.rows(
                connection, suites=suites, variants=variants, scales=scales, runs=runs, latest=latest
            )
        )

    def series(self, attempt_ids: Iterable[int]) -> dict[int, list[Series]]:
        """The curves of these attempts, by attempt; no entry for one without."""
        ids = tuple(attempt_ids)
        return self._database.read(lambda connection: reading.series_of(connection, ids))

    def artefacts(self, attempt_ids: Iterable[int]) -> dict[int, list[Artefact]]:
        """The texts of these attempts, by attempt; no entry for one without."""
        ids = tuple(attempt_ids)
        return self._database.read(lambda connection: reading.artefacts_of(connection, ids))

    def contents(
        self,
        *,
        suites: Collection[str] | None = None,
        variants: Collection[str] | None = None,
        scales: Collection[str] | None = None,
        runs: Collection[str] | None = None,
        latest: bool = False,
        artefacts: bool = True,
    ) -> Contents:
        """The attempts with these suites, variants, scales and runs (None: all), whole, with their runs and suites.

        `latest` is as in `rows`. Without `artefacts` their texts stay behind.
        """

        def whole(connection: Connection) -> Contents:
            tried = reading.attempts(
                connection,
                suites=suites,
                variants=variants,
                scales=scales,
                runs=runs,
                latest=latest,
                artefacts=artefacts,
            )
            return reading.contents(connection, tried)

        return self._database.read(whole)

    def add(self, contents: Contents) -> Added:
        """Store what another database gave and this one has not, in one transaction; what is there stays as it is.

        An attempt is the same if run, case, and the times at which it began and was stored are. A run that had not
        ended takes its end from `contents`. Raises BadDatabase if a run of the same name is another one here.
        """
        with self._database.write() as connection:
            return writing.add(connection, contents)

    def runs(self) -> list[StoredRun]:
        """All runs, oldest first, with the number of their attempts by status."""
        return self._database.read(reading.runs)

    def suites(self) -> list[SuiteFacts]:
        """What was asked here, by suite name."""
        return self._database.read(reading.suites)
