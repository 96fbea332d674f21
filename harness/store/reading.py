"""What comes out of the tables: flat rows, curves, texts, runs, suites, or all of it."""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, Table, case, func, select

from attnbench.harness.environment import Run
from attnbench.harness.rows import Artefact, Attempt, Identity, Measurement, Row, Series, Status
from attnbench.harness.spec import Case, Point
from attnbench.harness.store.tables import artefact, attempt, measurement, run, series, suite

Part = TypeVar("Part")
# what one statement may carry is limited: 32766 values in SQLite, 65535 in PostgreSQL
_IDS_AT_ONCE = 10_000


class RunState(StrEnum):
    """How far a run came. One that was killed stays `running`."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class StoredRun(Run):
    """A run as the database has it: `attempts` counts them by status."""

    state: RunState = RunState.RUNNING
    ended_at: datetime | None = None
    attempts: Mapping[Status, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SuiteFacts:
    """What a suite asks, as it was when it last ran."""

    name: str
    title: str
    question: str
    source: str
    axis: str
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class StoredMeasurement(Measurement):
    """A number as the database has it: with the unit and the better direction that it was stored with."""

    unit: str = ""
    better: str = ""


@dataclass(frozen=True)
class StoredAttempt(Attempt):
    """An attempt as the database has it, with the run that it belongs to."""

    measurements: tuple[StoredMeasurement, ...] = ()
    run_id: str = ""
    stored_at: datetime | None = None


@dataclass(frozen=True)
class Contents:
    """A part of a database that stands alone: some attempts, their runs, and what is known of their suites."""

    runs: tuple[StoredRun, ...]
    suites: tuple[SuiteFacts, ...]
    attempts: tuple[StoredAttempt, ...]


def rows(
    connection: Connection,
    *,
    suites: Collection[str] | None,
    variants: Collection[str] | None,
    scales: Collection[str] | None,
    runs: Collection[str] | None,
    latest: bool,
) -> list[Row]:
    """The flat rows of the chosen attempts, in the order in which they were stored: see `Store.rows`."""
    wanted = _wanted(suites, variants, scales, runs)
    chosen = _chosen(wanted, latest).subquery()
    measured = defaultdict(list)
    statement = select(
        measurement.c.attempt_id,
        measurement.c.metric,
        measurement.c.unit,
        measurement.c.better,
        measurement.c.value,
        measurement.c.samples,
    )
    if wanted or latest:
        statement = statement.join(chosen, chosen.c.id == measurement.c.attempt_id)
    attempts = connection.execute(select(chosen).order_by(chosen.c.id)).all()
    for attempt_id, *numbers in connection.execute(statement.order_by(measurement.c.id)):
        measured[attempt_id].append(numbers)
    return [row for tried in attempts for row in _flat(tried, measured.get(tried.id, _NOTHING_MEASURED))]


_NOTHING_MEASURED: list[list[Any]] = [["", "", "", None, ()]]


def _wanted(
    suites: Collection[str] | None,
    variants: Collection[str] | None,
    scales: Collection[str] | None,
    runs: Collection[str] | None,
) -> list[ColumnElement[bool]]:
    return [
        column.in_(list(names))
        for column, names in (
            (attempt.c.suite, suites),
            (attempt.c.variant, variants),
            (attempt.c.scale, scales),
            (attempt.c.run_id, runs),
        )
        if names is not None
    ]


def _chosen(wanted: Sequence[ColumnElement[bool]], latest: bool) -> Select[Any]:
    """The attempts that were asked for, or the newest of each case among them."""
    return _latest(wanted) if latest else select(attempt).where(*wanted)


def _latest(wanted: Sequence[ColumnElement[bool]]) -> Select[Any]:
    """The newest attempt of each case; one that was interrupted only where there is no other."""
    rank = func.row_number().over(
        # the same case on another machine, or on other data, is another number
        partition_by=(attempt.c.case_key, attempt.c.testbed, attempt.c.data_hash),
        order_by=(
            case((attempt.c.status == Status.INTERRUPTED.value, 1), else_=0),
            attempt.c.started_at.desc(),
            attempt.c.id.desc(),
        ),
    )
    ranked = select(attempt, rank.label("rank")).where(*wanted).subquery()
    return select(ranked).where(ranked.c.rank == 1)


def _flat(tried: Any, measured: list[list[Any]]) -> Iterator[Row]:
    case_and_end = {name: getattr(tried, name) for name in _SHARED}
    case_and_end |= {
        "attempt_id": tried.id,
        "point": Point.from_json(tried.point),
        "status": Status(tried.status),
    }
    for metric, unit, better, value, samples in measured:
        yield Row(**case_and_end, metric=metric, unit=unit, better=better, value=value, samples=tuple(samples))


# the fields that a row takes from its attempt as they are
_SHARED = tuple({field.name for field in fields(Row)} & set(attempt.c.keys()))


def attempts(
    connection: Connection,
    *,
    suites: Collection[str] | None,
    variants: Collection[str] | None,
    scales: Collection[str] | None,
    runs: Collection[str] | None,
    latest: bool,
    artefacts: bool,
) -> tuple[StoredAttempt, ...]:
    """The chosen attempts with all that belongs to them, in the order in which they were stored."""
    chosen = _chosen(_wanted(suites, variants, scales, runs), latest).subquery()
    stored = connection.execute(select(chosen).order_by(chosen.c.id)).all()
    ids = [tried.id for tried in stored]
    measured = _parts(connection, measurement, ids, _measured)
    curves = _parts(connection, series, ids, _curve)
    texts = artefacts_of(connection, ids) if artefacts else {}
    return tuple(
        StoredAttempt(
            case=Case(**{name: getattr(one, name) for name in _CASE}, point=Point.from_json(one.point)),
            identity=Identity(one.code_hash, one.data_hash, one.testbed),
            status=Status(one.status),
            reason=one.reason,
            seconds=one.seconds,
            started_at=one.started_at,
            measurements=tuple(measured.get(one.id, ())),
            series=tuple(curves.get(one.id, ())),
            artefacts=tuple(texts.get(one.id, ())),
            facts=one.facts,
            run_id=one.run_id,
            stored_at=one.stored_at,
        )
        for one in stored
    )


# the fields that a case takes from its attempt as they are
_CASE = tuple(field.name for field in fields(Case) if field.name != "point")


def _measured(stored: Any) -> StoredMeasurement:
    return StoredMeasurement(stored.metric, stored.value, tuple(stored.samples), stored.unit, stored.better)


def rows_of(tried: StoredAttempt, attempt_id: int) -> list[Row]:
    """The flat rows of an attempt that stands in no table, under a number of the caller's."""
    if tried.started_at is None:
        raise ValueError(f"an attempt as it was stored says when it began, got {tried.case}")
    none = StoredMeasurement("", math.nan)
    return [
        Row(
            attempt_id=attempt_id,
            run_id=tried.run_id,
            **vars(tried.case),
            **vars(tried.identity),
            status=tried.status,
            reason=tried.reason,
            metric=one.metric,
            unit=one.unit,
            better=one.better,
            value=None if one is none else one.value,
            samples=one.samples,
            seconds=tried.seconds,
            started_at=tried.started_at,
            facts=tried.facts,
        )
        for one in tried.measurements or (none,)
    ]


def series_of(connection: Connection, attempt_ids: Iterable[int]) -> dict[int, list[Series]]:
    """The curves of these attempts, by attempt; no entry for one without."""
    return _parts(connection, series, attempt_ids, _curve)


def _curve(stored: Any) -> Series:
    return Series(stored.name, stored.x_name, _floats(stored.x), _floats(stored.y))


def _floats(stored: list[float | str | None]) -> tuple[float, ...]:
    return tuple(math.nan if value is None else float(value) for value in stored)


def artefacts_of(connection: Connection, attempt_ids: Iterable[int]) -> dict[int, list[Artefact]]:
    """The texts of these attempts, by attempt; no entry for one without."""
    return _parts(
        connection, artefact, attempt_ids, lambda stored: Artefact(stored.name, stored.media_type, stored.text)
    )


def _parts(
    connection: Connection, table: Table, attempt_ids: Iterable[int], made: Callable[[Any], Part]
) -> dict[int, list[Part]]:
    found = defaultdict(list)
    ids = list(attempt_ids)
    for start in range(0, len(ids), _IDS_AT_ONCE):
        wanted = table.c.attempt_id.in_(ids[start : start + _IDS_AT_ONCE])
        for stored in connection.execute(select(table).where(wanted).order_by(table.c.id)):
            found[stored.attempt_id].append(made(stored))
    return dict(found)


def runs(connection: Connection) -> list[StoredRun]:
    """All runs, oldest first."""
    counts: dict[str, dict[Status, int]] = defaultdict(dict)
    grouped = select(attempt.c.run_id, attempt.c.status, func.count()).group_by(attempt.c.run_id, attempt.c.status)
    for run_id, status, count in connection.execute(grouped):
        counts[run_id][Status(status)] = count
    stored = connection.execute(select(run).order_by(run.c.started_at, run.c.id)).mappings()
    return [
        StoredRun(**{**values, "state": RunState(values["state"])}, attempts=counts.get(values["id"], {}))
        for values in stored
    ]


def suites(connection: Connection) -> list[SuiteFacts]:
    """All suites that ever ran here, by name."""
    stored = connection.execute(select(suite).order_by(suite.c.name)).mappings()
    return [SuiteFacts(**{**values, "metrics": tuple(values["metrics"])}) for values in stored]


def contents(connection: Connection, tried: Sequence[StoredAttempt]) -> Contents:
    """These attempts with their runs and suites."""
    run_ids = {one.run_id for one in tried}
    asked = {one.case.suite for one in tried}
    return Contents(
        tuple(one for one in runs(connection) if one.id in run_ids),
        tuple(one for one in suites(connection) if one.name in asked),
        tuple(tried),
    )
