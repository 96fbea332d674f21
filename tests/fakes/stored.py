"""What the tests of the database store: one case, attempts at it, claims of it, and a clock that only moves when told to."""

from datetime import UTC, datetime, timedelta

from attnbench.harness.rows import Attempt, Identity, Measurement, Status
from attnbench.harness.spec import Case, Point

START = datetime(2026, 1, 1, tzinfo=UTC)
CASE = Case("capacity", "delta", "chunkwise", Point(pairs=20), seed=0, scale="quick")
IDENTITY = Identity(code_hash="code", data_hash="data")
# owners on machines that we cannot see, so that only the clock ends their leases
ME, OTHER = "here:1:1", "elsewhere:1:1"


class Clock:
    """A clock that only moves when told to."""

    def __init__(self):
        self.now = START

    def __call__(self):
        return self.now

    def pass_seconds(self, seconds):
        self.now += timedelta(seconds=seconds)


def attempt(case=CASE, status=Status.OK, value=0.25, **more):
    measured = (Measurement("retrieval_loss", value, (value, value)), Measurement("training_steps", 100))
    return Attempt(case, IDENTITY, status, measurements=measured if status is Status.OK else (), **more)


def claim(store, case=CASE, identity=IDENTITY, *, run_id="first", owner=ME, lease_seconds=60.0, rerun="missing"):
    return store.claim(case, identity, run_id=run_id, owner=owner, lease_seconds=lease_seconds, rerun=rerun)
