"""What goes into the tables: runs, suites, attempts with all that belongs to them; one by one, or from elsewhere."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from attnbench.harness.environment import Run
from attnbench.harness.errors import BadDatabase
from attnbench.harness.metrics import metric
from attnbench.harness.rows import Attempt, Measurement
from attnbench.harness.spec import Suite
from attnbench.harness.store import leases
from attnbench.harness.store.database import upsert
from attnbench.harness.store.nameless import nameless_run
from attnbench.harness.store.reading import Contents, RunState, StoredRun, SuiteFacts
from attnbench.harness.store.tables import artefact, attempt, lease, measurement, run, series, suite


def begin_run(connection: Connection, begun: Run, *, state: str) -> None:
    """Store what is known when a run starts."""
    connection.execute(insert(run).values(**_run_values(begun), state=state))


def _run_values(begun: Run) -> dict[str, Any]:
    values = {field.name: getattr(begun, field.name) for field in fields(Run)}
    values["command"] = _text(begun.command)
    for name in ("machine", "device", "versions", "environment"):
        values[name] = _texts(values[name])
    return values


def end_run(connection: Connection, run_id: str, *, state: str, now: datetime) -> None:
    """Store how a run ended, and drop the leases it still has."""
    connection.execute(update(run).where(run.c.id == run_id).values(state=state, ended_at=now))
    connection.execute(delete(lease).where(lease.c.run_id == run_id))


def record_suite(connection: Connection, asked: Suite) -> None:
    """Store what a suite asks, in place of what it asked before."""
    facts = {
        "title": asked.title,
        "question": asked.question,
        "source": asked.source,
        "axis": asked.axis,
        "metrics": list(asked.metrics),
    }
    statement = upsert(connection, suite).values(name=asked.name, **facts)
    connection.execute(statement.on_conflict_do_update(index_elements=[suite.c.name], set_=facts))


def append(connection: Connection, run_id: str, tried: Attempt, *, owner: str, now: datetime) -> bool:
    """Store an attempt and end its lease; False, and nothing stored, if another owner finished the case meanwhile."""
    case_key = tried.case.key()
    started_at = tried.started_at or now - timedelta(seconds=tried.seconds)
    # whoever has it: two owners who finish one case at once then do so one after the other, on PostgreSQL too
    held = connection.execute(select(lease).where(lease.c.case_key == case_key).with_for_update()).one_or_none()
    since = held.claimed_at if held is not None and held.owner == owner else started_at
    leases.release(connection, case_key, owner=owner)
    finished_meanwhile = select(attempt.c.id).where(
        leases.same_case(tried.case, tried.identity),
        attempt.c.status.in_(leases.FINAL),
        attempt.c.owner != owner,
        attempt.c.stored_at > since,
    )
    if connection.execute(finished_meanwhile.limit(1)).first() is not None:
        return False
    measured = [_measured(measured) for measured in tried.measurements]
    _keep(connection, run_id, tried, measured, owner=owner, started_at=started_at, stored_at=now)
    return True


def _keep(
    connection: Connection,
    run_id: str,
    tried: Attempt,
    measured: Sequence[Mapping[str, Any]],
    *,
    owner: str,
    started_at: datetime | None,
    stored_at: datetime | None,
) -> None:
    """Put an attempt and all that belongs to it into the tables."""
    case, identity = tried.case, tried.identity
    values = {
        "run_id": run_id,
        "owner": owner,
        "case_key": case.key(),
        **vars(case),
        "point": case.point.json(),
        **vars(identity),
        "status": tried.status.value,
        "reason": _text(tried.reason),
        "seconds": tried.seconds,
        "started_at": started_at,
        "stored_at": stored_at,
        "facts": _texts(tried.facts),
    }
    (attempt_id,) = connection.execute(insert(attempt).values(**values)).inserted_primary_key or (None,)
    for table, parts in (
        (measurement, measured),
        (series, [{**vars(curve), "x": numbers(curve.x), "y": numbers(curve.y)} for curve in tried.series]),
        (artefact, [{**vars(item), "text": _text(item.text)} for item in tried.artefacts]),
    ):
        if parts:
            connection.execute(insert(table), [{**part, "attempt_id": attempt_id} for part in parts])


@dataclass(frozen=True)
class Added:
    """What came of adding contents: how many runs and attempts are new, and how many attempts were there before."""

    runs: int
    attempts: int
    known_attempts: int


def add(connection: Connection, contents: Contents) -> Added:
    """Store what is not there yet: see `Store.add`."""
    new_runs = sum(_add_run(connection, brought) for brought in contents.runs)
    for asked in contents.suites:
        _add_suite(connection, asked)
    known = _known_attempts(connection, (brought.id for brought in contents.runs))
    new_attempts = 0
    for tried in contents.attempts:
        key = (tried.run_id, tried.case.key(), tried.started_at, tried.stored_at)
        if key in known:
            continue
        known.add(key)
        new_attempts += 1
        measured = [{**vars(one), "samples": list(one.samples)} for one in tried.measurements]
        # no process here owns it: nobody's lease hangs on it
        _keep(
            connection,
            tried.run_id,
            tried,
            measured,
            owner="",
            started_at=tried.started_at,
            stored_at=tried.stored_at,
        )
    return Added(new_runs, new_attempts, len(contents.attempts) - new_attempts)


def _add_run(connection: Connection, brought: StoredRun) -> bool:
    """Whether the run is new. One that is there and had not ended then, ends as this one says."""
    values = _run_values(brought)
    ending = {"state": brought.state.value, "ended_at": brought.ended_at}
    added = connection.execute(upsert(connection, run).values(**values, **ending).on_conflict_do_nothing())
    # the lock keeps two programs that add the same attempts from doing so side by side, on PostgreSQL too
    stored = connection.execute(select(run).where(run.c.id == brought.id).with_for_update()).mappings().one()
    # a file names nobody, so what it leaves out is no difference
    here, there = (nameless_run(Run(**{name: of[name] for name in values})) for of in (stored, values))
    differing = [name for name in values if getattr(here, name) != getattr(there, name)]
    if differing:
        raise BadDatabase(
            f"run {brought.id} is in the database already, with another {' and another '.join(differing)}: "
            "two runs of one name cannot stand side by side. Give another database with --db."
        )
    if stored["state"] == RunState.RUNNING.value and brought.ended_at is not None:
        connection.execute(update(run).where(run.c.id == brought.id).values(**ending))
    return added.rowcount > 0


def _add_suite(connection: Connection, asked: SuiteFacts) -> None:
    """Store what a suite asks, unless the database knows the suite."""
    values = {**vars(asked), "metrics": list(asked.metrics)}
    connection.execute(upsert(connection, suite).values(**values).on_conflict_do_nothing())


def _known_attempts(connection: Connection, run_ids: Iterable[str]) -> set[tuple[Any, ...]]:
    """What tells the attempts of these runs apart: run, case, and when it was begun and stored."""
    key = select(attempt.c.run_id, attempt.c.case_key, attempt.c.started_at, attempt.c.stored_at)
    return {tuple(found) for run_id in run_ids for found in connection.execute(key.where(attempt.c.run_id == run_id))}


def _measured(measured: Measurement) -> dict[str, Any]:
    defined = metric(measured.metric)
    samples = [float(sample) for sample in measured.samples]
    if not all(map(math.isfinite, (measured.value, *samples))):
        raise ValueError(
            f"a measurement must be finite, got {measured.metric} = {measured.value} (samples {samples[:5]}); "
            "store the attempt as diverged or error, with a reason"
        )
    return {
        "metric": defined.name,
        "unit": defined.unit,
        "better": defined.better,
        "value": float(measured.value),
        "samples": samples,
    }


def numbers(values: Sequence[float]) -> list[float | str | None]:
    """Numbers as JSON, which has no NaN and no infinity: null and a text."""
    finite = [float(value) for value in values]
    return [value if math.isfinite(value) else None if math.isnan(value) else str(value) for value in finite]


def _text(text: str) -> str:
    """`text` as every database takes it: no NUL, which PostgreSQL refuses, and no half of a surrogate pair."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")


def _texts(facts: Mapping[str, str | int]) -> dict[str, str | int]:
    return {name: _text(value) if isinstance(value, str) else value for name, value in facts.items()}
