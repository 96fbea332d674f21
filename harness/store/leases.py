"""Who is running a case now, so that two runs on one database do not do it twice.

A lease is a row whose key is the case: the database lets one process have it. It ends with the attempt that is stored,
with its expiry, or with its owner where we can see that the process is gone.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import ColumnElement, Connection, and_, delete, select, update

from attnbench.harness.environment import is_alive
from attnbench.harness.rows import Identity, Status
from attnbench.harness.spec import Case
from attnbench.harness.store.database import upsert
from attnbench.harness.store.tables import attempt, lease

RERUNS = ("missing", "failed", "always")
FINAL = [status.value for status in Status if status.is_final]
_FAILURES = [status.value for status in Status if status.is_failure]


class Claim(StrEnum):
    """What came of asking for a case: it is ours, it was done before, or somebody else is at it."""

    CLAIMED = "claimed"
    DONE = "done"
    BUSY = "busy"


def is_done(connection: Connection, case: Case, identity: Identity, *, run_id: str, rerun: str) -> bool:
    """Whether an attempt makes another one needless: see `Store.claim`."""
    if rerun not in RERUNS:
        raise ValueError(f"rerun must be one of {', '.join(RERUNS)}, got {rerun!r}")
    final = same_case(case, identity) & attempt.c.status.in_(FINAL)
    newest = select(attempt.c.status, attempt.c.run_id).where(final)
    newest = newest.order_by(attempt.c.started_at.desc(), attempt.c.id.desc()).limit(1)
    if rerun == "always":
        newest = newest.where(attempt.c.run_id == run_id)
    found = connection.execute(newest).first()
    if found is None:
        return False
    return rerun != "failed" or found.status not in _FAILURES or found.run_id == run_id


def same_case(case: Case, identity: Identity) -> ColumnElement[bool]:
    """The attempts whose numbers hang on the same things."""
    return and_(
        attempt.c.case_key == case.key(),
        attempt.c.code_hash == identity.code_hash,
        attempt.c.data_hash == identity.data_hash,
        attempt.c.testbed == identity.testbed,
    )


def take(
    connection: Connection, case_key: str, *, run_id: str, owner: str, now: datetime, lease_seconds: float
) -> bool:
    """Whether the lease on the case is now `owner`'s."""
    ours = {
        "run_id": run_id,
        "owner": owner,
        "claimed_at": now,
        "expires_at": now + timedelta(seconds=lease_seconds),
    }
    connection.execute(upsert(connection, lease).values(case_key=case_key, **ours).on_conflict_do_nothing())
    held = connection.execute(select(lease).where(lease.c.case_key == case_key).with_for_update()).one_or_none()
    # none is there if its owner released it between the two statements, which PostgreSQL allows: ask again later
    if held is None or (held.owner != owner and held.expires_at > now and is_alive(held.owner)):
        return False
    connection.execute(update(lease).where(lease.c.case_key == case_key).values(**ours))
    return True


def renew(connection: Connection, case_keys: Iterable[str], *, owner: str, now: datetime, lease_seconds: float) -> None:
    """Put off the expiry of those leases that are still `owner`'s."""
    theirs = and_(lease.c.case_key.in_(list(case_keys)), lease.c.owner == owner)
    connection.execute(update(lease).where(theirs).values(expires_at=now + timedelta(seconds=lease_seconds)))


def release(connection: Connection, case_key: str, *, owner: str) -> None:
    """Give the lease back, if it is still `owner`'s."""
    connection.execute(delete(lease).where(lease.c.case_key == case_key, lease.c.owner == owner))
