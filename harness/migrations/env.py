"""What Alembic runs: the revisions, on the connection and in the transaction that `harness/store/schema.py` hands over."""

from alembic import context

from attnbench.harness.store.schema import REVISION_TABLE
from attnbench.harness.store.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=REVISION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
