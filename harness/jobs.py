"""What the runner hands to a worker, and what comes back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from attnbench.harness.rows import Artefact, Attempt, Identity, Measurement, Series, Status
from attnbench.harness.spec import Case

# glibc returns memory to the system after each large tensor unless told to keep it; read at process start only
ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    "THP_MEM_ALLOC_ENABLE": "1",
}
# threads that spin while they wait slow their neighbours; threads that sleep take longer to wake than a small operation
# lasts, so that where nothing else runs they would halve its speed
WAIT_POLICY = "OMP_WAIT_POLICY"
BESIDE_OTHERS, ALONE = "passive", "active"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Planned:
    """A case that is to be done, with all that its worker has to know.

    `address` finds the variant: its name, or the file it lies in; empty for a reference. `module` holds the suite; `axis` and
    `metrics` are what the suite is read by, the first metric first. `evaluation` is the suite's.
    """

    case: Case
    identity: Identity
    module: str
    address: str
    timeout_seconds: float
    expected_seconds: float
    axis: str = ""
    metrics: tuple[str, ...] = ()
    is_timing: bool = False
    isolates: bool = False
    facts: Mapping[str, str] = field(default_factory=dict, hash=False)
    evaluation: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """One piece of work for one worker: a case, or the cases of a point that are timed in interleaved rounds."""

    cases: tuple[Planned, ...]

    @property
    def is_timing(self) -> bool:
        """Whether nothing else may run beside it."""
        return self.cases[0].is_timing

    def timeout_seconds(self, index: int | None) -> float:
        """The time that case number `index` may take; None: all of them in turn."""
        return sum(one.timeout_seconds for one in self.cases) if index is None else self.cases[index].timeout_seconds


@dataclass(frozen=True)
class Outcome:
    """How one case of a job ended."""

    status: Status
    reason: str = ""
    seconds: float = 0.0
    measurements: tuple[Measurement, ...] = ()
    series: tuple[Series, ...] = ()
    artefacts: tuple[Artefact, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict, hash=False)


def attempt(planned: Planned, outcome: Outcome, started_at: datetime | None = None, **facts: str) -> Attempt:
    """What is stored of a case that ended; `facts` are added to those of the plan and of the outcome."""
    return Attempt(
        case=planned.case,
        identity=planned.identity,
        status=outcome.status,
        reason=outcome.reason,
        seconds=outcome.seconds,
        started_at=started_at,
        measurements=outcome.measurements,
        series=outcome.series,
        artefacts=outcome.artefacts,
        facts={**planned.facts, **outcome.facts, **facts},
    )


@dataclass(frozen=True)
class Settings:
    """What holds for every case of a run.

    `cache` and `checkpoints` are folders, None for the usual ones. A training that had ended before `trained_since`
    (seconds since 1970) is done again. `rank` and `port` are for the further processes of a case that several train.
    """

    cache: str | None = None
    checks: bool = True
    timing_rounds: int = 11
    environment: Mapping[str, str] = field(default_factory=dict)
    checkpoints: str | None = None
    trained_since: float = 0.0
    rank: int = 0
    port: int = 0


@dataclass(frozen=True)
class Began:
    """A worker's word that it is at case number `index` of its job now; None: at all of them in turn."""

    index: int | None


@dataclass(frozen=True)
class Progressed:
    """A worker's word on how far it is."""

    fraction: float
    note: str


@dataclass(frozen=True)
class Ended:
    """A worker's word that case number `index` of its job is over."""

    index: int
    outcome: Outcome
