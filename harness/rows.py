"""What one attempt left behind: status, measurements, series, artefacts; and the flat row that reports read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from attnbench.harness.spec import Case, Point


class Status(StrEnum):
    """How an attempt ended. A failure is a row with a reason, never a zero."""

    OK = "ok"
    SKIPPED = "skipped"
    WRONG = "wrong"
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"
    ERROR = "error"
    INTERRUPTED = "interrupted"

    @property
    def is_failure(self) -> bool:
        """Whether this ending makes `attnbench run` exit with 1."""
        return self in {Status.WRONG, Status.OUT_OF_MEMORY, Status.TIMEOUT, Status.ERROR}

    @property
    def is_final(self) -> bool:
        """Whether the case counts as done. An interrupted one does not."""
        return self is not Status.INTERRUPTED


@dataclass(frozen=True)
class Measurement:
    """One number, with the raw samples behind it where there were several."""

    metric: str
    value: float
    samples: tuple[float, ...] = ()


@dataclass(frozen=True)
class Series:
    """A curve: learning curves, perplexity by position."""

    name: str
    x_name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Artefact:
    """A text that belongs to the attempt: a sample, a note, a plot's source."""

    name: str
    media_type: str
    text: str


@dataclass(frozen=True)
class Identity:
    """What the numbers of a case hang on, beside the case itself: code, data, and the device they came from.

    `testbed` names the hardware that a timing depends on and is empty for cases that no clock decides.
    """

    code_hash: str
    data_hash: str
    testbed: str = ""


@dataclass(frozen=True)
class Attempt:
    """One case, tried once.

    `facts` say how to ask it again where the case alone does not: `address` of a variant's file, `settings` that were
    chosen by hand, the `door` (pytest) that it came in by.
    """

    case: Case
    identity: Identity
    status: Status
    reason: str = ""
    seconds: float = 0.0
    started_at: datetime | None = None
    measurements: tuple[Measurement, ...] = ()
    series: tuple[Series, ...] = ()
    artefacts: tuple[Artefact, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """The flat view: one metric of one attempt. An attempt without measurements gives one row whose metric is empty."""

    attempt_id: int
    run_id: str
    suite: str
    variant: str
    form: str
    point: Point
    seed: int
    scale: str
    device: str
    threads: int
    status: Status
    reason: str
    metric: str
    unit: str
    better: str
    value: float | None
    samples: tuple[float, ...]
    code_hash: str
    data_hash: str
    testbed: str
    seconds: float
    started_at: datetime
    facts: Mapping[str, str] = field(default_factory=dict, hash=False)
