"""What the tests of export and import store: a run with three attempts, and what a command says."""

import lzma
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from attnbench.harness.rows import Identity, Status
from attnbench.harness.spec import Case, Point
from attnbench.harness.store import (
    Contents,
    RunState,
    StoredAttempt,
    StoredMeasurement,
    StoredRun,
    SuiteFacts,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
CASE = Case("capacity", "delta", "chunkwise", Point(pairs=20), seed=0, scale="quick")
IDENTITY = Identity("code", "data")
RUN = StoredRun(
    id="20260101-000000-abc123",
    command="attnbench run capacity",
    started_at=START,
    machine={"cpu": "AMD EPYC", "cores": 2},
    versions={"torch": "2.13.0"},
    commit="0" * 40,
    is_dirty=True,
    environment={"OMP_NUM_THREADS": "1"},
    testbed="AMD EPYC, 2 cores",
    state=RunState.FINISHED,
    ended_at=START + timedelta(hours=1),
)
FACTS = SuiteFacts("capacity", "Capacity", "how many?", "paper", "pairs", ("retrieval_loss",))


def attempt(seed=0, *, run_id=RUN.id, status=Status.OK, stored_after=60, loss=0.25, **more):
    measured = (StoredMeasurement("retrieval_loss", loss, (loss, 2 * loss), "1", "lower"),)
    return StoredAttempt(
        replace(CASE, seed=seed),
        IDENTITY,
        status,
        seconds=1.5,
        started_at=START,
        measurements=measured if status is Status.OK else (),
        run_id=run_id,
        stored_at=START + timedelta(seconds=stored_after + seed),
        **more,
    )


CONTENTS = Contents((RUN,), (FACTS,), (attempt(0), attempt(1), attempt(2, status=Status.ERROR, reason="it broke")))


def refused(answer, message):
    code, out, err = answer
    assert (code, out) == (2, ""), err
    assert re.fullmatch(rf"attnbench: {message}\n", err), err


def xz(path, *lines):
    """A file of these lines, as `attnbench export` would pack them."""
    path.write_bytes(lzma.compress("".join(f"{line}\n" for line in lines).encode()))
    return path


def unpacked(path):
    return lzma.decompress(path.read_bytes()).decode().splitlines()
