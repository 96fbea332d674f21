"""The tables: what a run leaves behind, and who is running what now.

run --< attempt --< measurement, series, artefact        suite: what was asked        lease: who asks it now

A change here needs a migration in `harness/migrations/versions`; a test holds the two against each other.
"""

from datetime import UTC, datetime

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

METADATA = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


class UtcTime(TypeDecorator[datetime]):
    """A moment with its zone: stored as UTC, read back as UTC. SQLite itself would drop the zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """The moment in UTC. Raises ValueError for one without a zone."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a stored time needs a zone, got {value!r}; make it with datetime.now(UTC)")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """The moment in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


run = Table(
    "run",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("command", Text, nullable=False),
    Column("started_at", UtcTime, nullable=False),
    Column("ended_at", UtcTime),
    Column("state", Text, nullable=False),
    Column("machine", JSON, nullable=False),
    Column("device", JSON, nullable=False),
    Column("driver", Text, nullable=False),
    Column("versions", JSON, nullable=False),
    Column("commit", Text, nullable=False),
    Column("is_dirty", Boolean, nullable=False),
    Column("environment", JSON, nullable=False),
    Column("testbed", Text, nullable=False),
)

attempt = Table(
    "attempt",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("run_id", ForeignKey("run.id"), nullable=False, index=True),
    Column("owner", Text, nullable=False),
    Column("case_key", Text, nullable=False, index=True),
    Column("suite", Text, nullable=False, index=True),
    Column("variant", Text, nullable=False),
    Column("form", Text, nullable=False),
    Column("point", Text, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("scale", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("threads", Integer, nullable=False),
    Column("status", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("code_hash", Text, nullable=False),
    Column("data_hash", Text, nullable=False),
    Column("testbed", Text, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("started_at", UtcTime, nullable=False),
    Column("stored_at", UtcTime, nullable=False),
    Column("facts", JSON, nullable=False, server_default="{}"),
)

measurement = Table(
    "measurement",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("attempt_id", ForeignKey("attempt.id"), nullable=False),
    Column("metric", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("better", Text, nullable=False),
    Column("value", Float, nullable=False),
    Column("samples", JSON, nullable=False),
    UniqueConstraint("attempt_id", "metric"),
)

series = Table(
    "series",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("attempt_id", ForeignKey("attempt.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("x_name", Text, nullable=False),
    Column("x", JSON, nullable=False),
    Column("y", JSON, nullable=False),
    UniqueConstraint("attempt_id", "name"),
)

artefact = Table(
    "artefact",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("attempt_id", ForeignKey("attempt.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("text", Text, nullable=False),
    UniqueConstraint("attempt_id", "name"),
)

# its primary key is what keeps two processes from running one case at the same time
lease = Table(
    "lease",
    METADATA,
    Column("case_key", Text, primary_key=True),
    Column("run_id", ForeignKey("run.id"), nullable=False),
    Column("owner", Text, nullable=False),
    Column("claimed_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime, nullable=False),
)

suite = Table(
    "suite",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("title", Text, nullable=False),
    Column("question", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("axis", Text, nullable=False),
    Column("metrics", JSON, nullable=False),
)
