"""The first tables: run, attempt, measurement, series, artefact, lease."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "run",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("command", sa.Text, nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("machine", sa.JSON, nullable=False),
        sa.Column("device", sa.JSON, nullable=False),
        sa.Column("driver", sa.Text, nullable=False),
        sa.Column("versions", sa.JSON, nullable=False),
        sa.Column("commit", sa.Text, nullable=False),
        sa.Column("is_dirty", sa.Boolean, nullable=False),
        sa.Column("environment", sa.JSON, nullable=False),
        sa.Column("testbed", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_run"),
    )
    op.create_table(
        "attempt",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("case_key", sa.Text, nullable=False),
        sa.Column("suite", sa.Text, nullable=False),
        sa.Column("variant", sa.Text, nullable=False),
        sa.Column("form", sa.Text, nullable=False),
        sa.Column("point", sa.Text, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("scale", sa.Text, nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("threads", sa.Integer, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("code_hash", sa.Text, nullable=False),
        sa.Column("data_hash", sa.Text, nullable=False),
        sa.Column("testbed", sa.Text, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("stored_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_attempt"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_attempt_run_id"),
    )
    for column in ("run_id", "case_key", "suite"):
        op.create_index(f"ix_attempt_{column}", "attempt", [column])
    op.create_table(
        "measurement",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("attempt_id", sa.Integer, nullable=False),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("unit", sa.Text, nullable=False),
        sa.Column("better", sa.Text, nullable=False),
        sa.Column("value", sa.Float, nullable=False),
        sa.Column("samples", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_measurement"),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name="fk_measurement_attempt_id"),
        sa.UniqueConstraint("attempt_id", "metric", name="uq_measurement_attempt_id_metric"),
    )
    op.create_table(
        "series",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("attempt_id", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("x_name", sa.Text, nullable=False),
        sa.Column("x", sa.JSON, nullable=False),
        sa.Column("y", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_series"),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name="fk_series_attempt_id"),
        sa.UniqueConstraint("attempt_id", "name", name="uq_series_attempt_id_name"),
    )
    op.create_table(
        "artefact",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("attempt_id", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("media_type", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_artefact"),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name="fk_artefact_attempt_id"),
        sa.UniqueConstraint("attempt_id", "name", name="uq_artefact_attempt_id_name"),
    )
    op.create_table(
        "lease",
        sa.Column("case_key", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("case_key", name="pk_lease"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_lease_run_id"),
    )
