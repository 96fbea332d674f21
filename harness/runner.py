"""Runs a plan: worker processes, leases, timeouts, and one stored attempt for whatever happens to a case.

The runner is the only writer of its run. A case is claimed before it starts and its lease renewed while it runs, so
several runs can share one database. Timing cases wait until every other worker has left and then run alone. Ctrl-C is
looked at between two steps, never in the middle of one, so that what has ended is stored whole.
"""

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from types import FrameType

from attnbench.harness.jobs import (
    ALLOCATOR,
    ALONE,
    BESIDE_OTHERS,
    THREADS,
    WAIT_POLICY,
    Began,
    Ended,
    Job,
    Outcome,
    Planned,
    Progressed,
    Settings,
    attempt,
)
from attnbench.harness.progress import Display
from attnbench.harness.rows import Status
from attnbench.harness.store import Claim, Store

POLL_SECONDS = 0.5
# more than the pipe to a worker holds
MESSAGES_AT_ONCE = 1000
# the import of torch on a slow disk, while other workers import it too
START_SECONDS = 180.0


def worker_environment(threads: int) -> dict[str, str]:
    """The environment variables that a worker gets beyond its parent's: part of a run's provenance."""
    return {**ALLOCATOR, WAIT_POLICY: BESIDE_OTHERS, **dict.fromkeys(THREADS, str(threads))}


@dataclass
class Worker:
    """A process, the pipe to it, and what it is doing: its job, and the case of it that it is `at` (None: at all)."""

    process: subprocess.Popen[bytes]
    connection: Connection
    threads: int
    job: Job | None = None
    at: int | None = None
    ended: set[int] = field(default_factory=set)
    started: float = 0.0
    began: datetime | None = None
    deadline: float = math.inf
    limit: str = ""

    def stop(self) -> None:
        """End the process at once, with those it started, and wait for it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self.connection.close()


@dataclass(frozen=True)
class Terms:
    """How a run treats the database: who it is, how long its leases hold, what it does again."""

    run_id: str
    owner: str
    lease_seconds: float = 60.0
    rerun: str = "missing"


class Runner:
    """Does the cases of a plan with `workers` processes and stores each as it ends."""

    def __init__(self, store: Store, terms: Terms, settings: Settings, workers: int, display: Display) -> None:
        self.store, self.terms, self.settings, self.display = store, terms, settings, display
        self.count = workers
        self.workers: list[Worker] = []
        self.todo: deque[Job] = deque()
        self.leased: list[Job] = []
        self.ask_again = self.renewed = time.monotonic()
        self.endings: Counter[Status] = Counter()

    def run(self, plan: Sequence[Planned]) -> Counter[Status]:
        """How many cases ended how. Raises KeyboardInterrupt after storing what was interrupted."""
        with _stop_signals() as stop:
            try:
                self._work((Job((planned,)) for planned in plan if not planned.is_timing), self.count, stop)
                self._let_all_go()
                self._work(_timing_jobs(plan), 1, stop)
            except KeyboardInterrupt:
                self._interrupt()
                raise
            finally:
                self._let_all_go()
        return self.endings

    def _work(self, jobs: Iterable[Job], room: int, stop: Connection) -> None:
        """Do the jobs, `room` at a time, until none is left, here or with another run that holds a lease on it."""
        self.todo.extend(jobs)
        while self.todo or self.leased or self._busy():
            if stop.poll():
                raise KeyboardInterrupt
            if self.leased and time.monotonic() >= self.ask_again:
                self.ask_again = time.monotonic() + POLL_SECONDS
                self.todo.extend(self.leased)
                self.leased.clear()
            while self.todo and len(self._busy()) < room:
                self._take(self.todo.popleft())
            if self.leased and not self._busy():
                self.display.waiting(sum(len(job.cases) for job in self.leased))
            if self.leased or self._busy():
                self._listen(stop)
            self._renew()

    def _take(self, job: Job) -> None:
        """Start those cases of a job that are to be done here; keep those that another run is at for later."""
        mine, others = [], []
        for planned in job.cases:
            claim = self.store.claim(
                planned.case,
                planned.identity,
                run_id=self.terms.run_id,
                owner=self.terms.owner,
                lease_seconds=self.terms.lease_seconds,
                rerun=self.terms.rerun,
            )
            if claim is Claim.CLAIMED:
                mine.append(planned)
            elif claim is Claim.BUSY:
                others.append(planned)
            else:
                self.display.already_done(planned)
        if others:
            self.leased.append(Job(tuple(others)))
        if mine:
            self._start(Job(tuple(mine)))

    def _busy(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.job is not None]

    def _start(self, job: Job) -> None:
        """Hand a job to an idle worker with its number of threads, or to a new one."""
        threads = job.cases[0].case.threads
        for worker in list(self.workers):
            if worker.job is None and worker.process.poll() is not None:
                self._let_go(worker)
        idle = [worker for worker in self.workers if worker.job is None]
        fitting = [worker for worker in idle if worker.threads == threads]
        if fitting and not job.cases[0].isolates:
            worker = fitting[0]
        else:
            if len(self.workers) >= self.count and idle:
                self._let_go(idle[0])
            alone = {WAIT_POLICY: ALONE} if job.is_timing else {}
            settings = replace(self.settings, environment={**self.settings.environment, **alone})
            worker = _spawn(threads, settings)
            self.workers.append(worker)
        worker.job, worker.at, worker.ended = job, 0, set()
        worker.started, worker.began = time.monotonic(), datetime.now(UTC)
        worker.deadline, worker.limit = worker.started + START_SECONDS, f"{START_SECONDS:g} s to start"
        # a worker that is gone is heard of by its silence
        with contextlib.suppress(OSError):
            worker.connection.send(job)
        self.display.doing(worker.process.pid, job.cases[0], 0.0, "starting")

    def _listen(self, stop: Connection) -> None:
        """Take what the workers say, end what took too long, and store what ended."""
        busy = self._busy()
        nearest = min((worker.deadline for worker in busy), default=math.inf) - time.monotonic()
        wait([stop, *(worker.connection for worker in busy)], timeout=max(0.0, min(POLL_SECONDS, nearest)))
        for worker in busy:
            # all that is there: the last word of a worker may lie behind others when its time is up
            for _ in range(MESSAGES_AT_ONCE):
                if worker.job is None or not worker.connection.poll():
                    break
                try:
                    message = worker.connection.recv()
                except (EOFError, OSError):
                    self._gave_up(worker, *_death(worker))
                else:
                    self._heard(worker, worker.job, message)
            if worker.job is not None and time.monotonic() >= worker.deadline:
                self._gave_up(worker, Status.TIMEOUT, f"took longer than {worker.limit}")

    def _heard(self, worker: Worker, job: Job, message: Began | Progressed | Ended) -> None:
        if isinstance(message, Began):
            worker.at = message.index
            seconds = job.timeout_seconds(message.index)
            worker.deadline, worker.limit = time.monotonic() + seconds, f"{seconds:g} s"
        elif isinstance(message, Progressed):
            self.display.doing(worker.process.pid, job.cases[worker.at or 0], message.fraction, message.note)
        else:
            worker.ended.add(message.index)
            self._store(worker, job.cases[message.index], message.outcome)
            if len(worker.ended) == len(job.cases):
                self._idle(worker)
                if job.cases[0].isolates or _is_spent(job, message.outcome.status):
                    self._let_go(worker)

    def _gave_up(self, worker: Worker, status: Status, reason: str) -> None:
        """End a worker that will not end its case any more, and store that; its other cases are for the next worker."""
        assert worker.job is not None
        open_cases = [(at, planned) for at, planned in enumerate(worker.job.cases) if at not in worker.ended]
        blamed = [planned for at, planned in open_cases if worker.at in (at, None)]
        others = tuple(planned for at, planned in open_cases if worker.at not in (at, None))
        if others:
            self.todo.appendleft(Job(others))
        self._end(worker, blamed, Outcome(status, reason, time.monotonic() - worker.started))

    def _interrupt(self) -> None:
        """Store what is in flight as interrupted."""
        for worker in self._busy():
            assert worker.job is not None
            open_cases = [planned for at, planned in enumerate(worker.job.cases) if at not in worker.ended]
            seconds = time.monotonic() - worker.started
            self._end(worker, open_cases, Outcome(Status.INTERRUPTED, "stopped by the user", seconds))

    def _end(self, worker: Worker, cases: Sequence[Planned], outcome: Outcome) -> None:
        self._idle(worker)
        self._let_go(worker)
        for planned in cases:
            self._store(worker, planned, outcome)

    def _idle(self, worker: Worker) -> None:
        worker.job = None
        self.display.idle(worker.process.pid)

    def _let_go(self, worker: Worker) -> None:
        worker.stop()
        self.workers.remove(worker)

    def _let_all_go(self) -> None:
        for worker in list(self.workers):
            self._let_go(worker)

    def _store(self, worker: Worker, planned: Planned, outcome: Outcome) -> None:
        if self.store.append(self.terms.run_id, attempt(planned, outcome, worker.began), owner=self.terms.owner):
            self.endings[outcome.status] += 1
            self.display.over(planned, outcome)
        else:
            self.display.already_done(planned)

    def _renew(self) -> None:
        if time.monotonic() - self.renewed < self.terms.lease_seconds / 3:
            return
        self.renewed = time.monotonic()
        keys = [planned.case.key() for worker in self._busy() if worker.job for planned in worker.job.cases]
        self.store.renew(keys, owner=self.terms.owner, lease_seconds=self.terms.lease_seconds)


def _is_spent(job: Job, status: Status) -> bool:
    """Whether a worker is not to be trusted after this ending: its memory is in pieces, or its GPU refuses all calls."""
    return status is Status.OUT_OF_MEMORY or (status is Status.ERROR and job.cases[0].case.device != "cpu")


def _timing_jobs(plan: Sequence[Planned]) -> Iterator[Job]:
    """The timing cases, those of one suite, point and seed together."""
    timing = [planned for planned in plan if planned.is_timing]

    def together(planned: Planned) -> tuple[str, str, int]:
        return planned.case.suite, planned.case.point.json(), planned.case.seed

    for _, group in groupby(sorted(timing, key=together), key=together):
        yield Job(tuple(group))


def _spawn(threads: int, settings: Settings) -> Worker:
    """A new worker process with `threads` threads, in a process group of its own: Ctrl-C is for the runner."""
    ours, theirs = Pipe()
    environment: Mapping[str, str] = {**os.environ, **worker_environment(threads), **settings.environment}
    # -P: a file in the working folder must not pass for a module of the same name
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "attnbench.harness.worker", str(theirs.fileno()), str(os.getpid())],
        pass_fds=[theirs.fileno()],
        env=environment,
        stdin=subprocess.DEVNULL,
        process_group=0,
    )
    theirs.close()
    with contextlib.suppress(OSError):
        ours.send(settings)
    return Worker(process, ours, threads)


def _death(worker: Worker) -> tuple[Status, str]:
    """Why a worker is gone, from its exit status."""
    try:
        code = worker.process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        return Status.ERROR, "the worker closed its connection"
    if code == -signal.SIGKILL and _kernel_killed(worker.process.pid):
        return Status.OUT_OF_MEMORY, "the kernel killed the worker because memory ran out"
    if code < 0:
        return Status.ERROR, f"the worker was killed by {signal.Signals(-code).name}"
    return Status.ERROR, f"the worker ended with exit code {code}"


def _kernel_killed(pid: int) -> bool:
    """Whether the kernel's out-of-memory killer names this process in its log, as far as it can be read."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        log = subprocess.run(["dmesg"], capture_output=True, text=True, timeout=5, check=False).stdout
        return f"Killed process {pid} " in log
    return False


@contextlib.contextmanager
def _stop_signals() -> Iterator[Connection]:
    """A connection that can be read once Ctrl-C, SIGTERM or a hang-up came. A second one raises KeyboardInterrupt at once.

    Where this is not the main thread, signals are left to whoever has them.
    """
    asked, ask = Pipe(duplex=False)

    def stop(number: int, frame: FrameType | None) -> None:
        if asked.poll():
            raise KeyboardInterrupt
        ask.send_bytes(b"stop")

    before = {}
    try:
        with contextlib.suppress(ValueError):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                # whoever started us may have asked for deafness, as nohup does
                if signal.getsignal(number) is not signal.SIG_IGN:
                    before[number] = signal.signal(number, stop)
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        asked.close()
        ask.close()
