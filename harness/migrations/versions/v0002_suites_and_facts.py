"""The table `suite`, so that a report says what was asked without importing the suites; and an attempt's facts."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "suite",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("question", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("axis", sa.Text, nullable=False),
        sa.Column("metrics", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_suite"),
    )
    op.add_column("attempt", sa.Column("facts", sa.JSON, nullable=False, server_default="{}"))
