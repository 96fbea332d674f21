"""Suites whose cases do what a test needs: end well, fail in every way there is, hang, die. They need no torch to import.

fake          measure(lab) does what the point setting `does` says
fake_clock    prepare(lab) does what the case's name says: the cases of a point are timed together
"""

import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from attnbench.harness.errors import Diverged, Unsupported
from attnbench.harness.spec import Grid, Point, Suite

if TYPE_CHECKING:
    from attnbench.harness.clock import Timed
    from attnbench.harness.lab import Lab

# where a worker leaves a file with its number, so that a test can see who worked and whether they are gone
WORKERS = "FAKE_WORKERS"
# a file that holds up the case `waits` while it is there
GATE = "FAKE_GATE"
# the database in which `outlives` looks at its own lease
DATABASE = "FAKE_DATABASE"


def _points(*deeds: str, count: int = 1) -> tuple[Point, ...]:
    return tuple(Point(does=deed, number=number) for deed in deeds for number in range(1, count + 1))


FAKE = Suite(
    name="fake",
    title="Fake",
    question="What does the runner do when this happens?",
    source="none",
    module="fake_suites",
    axis="number",
    metrics=("retrieval_loss",),
    scales={
        "smoke": Grid(
            variants=(),
            points=_points("ends well", "loses its loss", "records nan", "raises"),
            timeout_seconds=30,
            seconds_per_case=0.01,
        ),
        "quick": Grid(variants=(), points=_points("ends well", count=300), timeout_seconds=30, seconds_per_case=0.01),
    },
    forms=("none",),
    references=("nobody",),
)
FAKE_CLOCK = Suite(
    name="fake_clock",
    title="Fake clock",
    question="What happens to a point when one of its cases does this?",
    source="none",
    module="fake_suites",
    axis="number",
    metrics=("decode_tokens_per_second",),
    scales={"smoke": Grid(variants=(), points=(Point(number=1),), timeout_seconds=30, seconds_per_case=0.01)},
    forms=("none",),
    references=("steady", "hangs", "dies", "brisk", "fails"),
    is_timing=True,
)
SUITES = {suite.name: suite for suite in (FAKE, FAKE_CLOCK)}


def measure(lab: "Lab") -> None:
    """Do what the point says."""
    _sign()
    DEEDS[lab.case.point.text("does")](lab)


def prepare(lab: "Lab") -> "Timed":
    """Something to time, unless the name of the case says otherwise."""
    from attnbench.harness.clock import Timed

    _sign()
    if folder := os.environ.get(WORKERS):
        others = {path.name for path in Path(folder).iterdir()} - {str(os.getpid())}
        assert not any(Path("/proc", pid).exists() for pid in others), "other workers are here"
    name = lab.case.variant
    if name == "hangs":
        _spins(lab)
    if name == "dies":
        _is_killed(lab)

    def call() -> None:
        if name == "fails":
            raise ValueError("the call fails")

    return Timed(call, lambda samples: lab.record("decode_tokens_per_second", 1.0, tuple(samples)))


def _sign() -> None:
    if folder := os.environ.get(WORKERS):
        (Path(folder) / str(os.getpid())).touch()


def _ends_well(lab: "Lab") -> None:
    lab.record("retrieval_loss", lab.case.point.integer("number") / 1024)


def _loses_its_loss(lab: "Lab") -> None:
    raise Diverged(3, 0.5)


def _records_nan(lab: "Lab") -> None:
    lab.record("training_steps", 7)
    lab.record("retrieval_loss", math.nan)


def _lacks_a_device(lab: "Lab") -> None:
    raise Unsupported("fake/none needs cuda; this device is cpu.")


def _raises(lab: "Lab") -> None:
    raise ValueError("the fake is broken\nand says so at length")


def _raises_in_torch(lab: "Lab") -> None:
    import torch

    torch.einsum("b h v d", torch.zeros(1))


def _lacks_memory(lab: "Lab") -> None:
    raise MemoryError


def _lacks_memory_in_torch(lab: "Lab") -> None:
    import torch

    # a thousand terabytes
    torch.empty(1 << 50)


def _talks_about_memory(lab: "Lab") -> None:
    raise ValueError("this text is not out of memory")


def _records_twice(lab: "Lab") -> None:
    lab.record("retrieval_loss", 0.5)
    lab.record("retrieval_loss", 0.25)


def _spins(lab: "Lab") -> None:
    while True:
        pass


def _spins_and_talks(lab: "Lab") -> None:
    while True:
        lab.report(0.5, "still here")


def _starts_a_child_and_spins(lab: "Lab") -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (Path(os.environ[WORKERS]) / str(child.pid)).touch()
    _spins(lab)


def _leaves(lab: "Lab") -> None:
    os._exit(3)


def _exits(lab: "Lab") -> None:
    sys.exit("that was it")


def _is_killed(lab: "Lab") -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _waits(lab: "Lab") -> None:
    gate = Path(os.environ[GATE])
    gate.with_name("waiting").touch()
    deadline = time.monotonic() + 60
    while gate.exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    _ends_well(lab)


def _outlives_its_lease(lab: "Lab") -> None:
    """Ends well once its lease has been put off three times."""
    seen: set[str] = set()
    deadline = time.monotonic() + 30
    with closing(sqlite3.connect(f"file:{os.environ[DATABASE]}?mode=ro", uri=True)) as database:
        while len(seen) < 4 and time.monotonic() < deadline:
            query = "SELECT expires_at FROM lease WHERE case_key = ?"
            seen |= {expiry for (expiry,) in database.execute(query, [lab.case.key()])}
    assert len(seen) == 4
    _ends_well(lab)


DEEDS: dict[str, Callable[["Lab"], None]] = {
    "ends well": _ends_well,
    "loses its loss": _loses_its_loss,
    "records nan": _records_nan,
    "records twice": _records_twice,
    "lacks a device": _lacks_a_device,
    "raises": _raises,
    "raises in torch": _raises_in_torch,
    "lacks memory": _lacks_memory,
    "lacks memory in torch": _lacks_memory_in_torch,
    "talks about memory": _talks_about_memory,
    "spins": _spins,
    "spins and talks": _spins_and_talks,
    "starts a child and spins": _starts_a_child_and_spins,
    "leaves": _leaves,
    "exits": _exits,
    "is killed": _is_killed,
    "waits": _waits,
    "outlives its lease": _outlives_its_lease,
}
