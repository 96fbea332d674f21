"""The further processes of a case that several train: the worker that has the case starts them as workers of its own.

They run the same `measure(lab)` with another rank, and only the first process's records count. Rank 0 listens to all of
them, so that one that is lost ends the case whatever the others wait for. They end when rank 0 does.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from attnbench.harness.jobs import Ended, Job, Outcome, Planned, Settings
from attnbench.harness.processes import ALONE, LEFT, PeerLost, Processes
from attnbench.harness.rows import Status
from attnbench.harness.spec import processes_of

LOOPBACK = "127.0.0.1"
# the import of torch on a slow disk, many times at once
START_SECONDS = 180.0
# what the first process has to end by itself once another one has: all of them meet most errors together
GRACE_SECONDS = 5.0
# one process may evaluate for hours while the others wait; who is lost is noticed by other means
PATIENCE = timedelta(days=365)


@contextlib.contextmanager
def joined(planned: Planned, settings: Settings, abandon: Callable[[Outcome], None]) -> Iterator[Processes]:
    """The processes that train the model of a case, as this one sees them; the first starts the others and ends them.

    Raises PeerLost with what became of a process that was lost. Where the first process waits for it in vain, `abandon` is
    called with that from another thread.
    """
    count = planned.case.processes
    if count == 1:
        yield ALONE
    elif settings.rank:
        store = TCPStore(LOOPBACK, settings.port, count, is_master=False)
        with _group(Processes(settings.rank, count), planned.case.device, store) as processes:
            yield processes
    else:
        store = TCPStore(LOOPBACK, 0, count, is_master=True, wait_for_workers=False)
        with (
            _Peers(planned, replace(settings, checks=False, port=store.port), abandon),
            _group(Processes(0, count), planned.case.device, store) as processes,
        ):
            yield processes


@contextlib.contextmanager
def _group(processes: Processes, device: str, store: TCPStore) -> Iterator[Processes]:
    """The processes while torch has them connected: tensors on a GPU by nccl, all others by gloo."""
    # gloo would look up the name of this machine, which need not have an address
    names = {name for _, name in socket.if_nameindex()}
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if "lo" in names else "lo0")
    on_gpus = processes_of(device)[0] == "cuda"
    if on_gpus:
        torch.cuda.set_device(processes.rank)
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpus else "gloo",
            store=store,
            rank=processes.rank,
            world_size=processes.count,
            timeout=PATIENCE,
        )
    except RuntimeError as problem:
        raise PeerLost(f"{LEFT} ({problem})") from problem
    try:
        yield processes
    finally:
        dist.destroy_process_group()


class _Peers:
    """All processes of a case but the first, from their start to their end, and an ear for each."""

    def __init__(self, planned: Planned, settings: Settings, abandon: Callable[[Outcome], None]) -> None:
        self.planned, self.settings, self.abandon = planned, settings, abandon
        self.processes: list[subprocess.Popen[bytes]] = []
        self.connections: list[Connection] = []
        self.started = time.monotonic()
        self.lost: Outcome | None = None
        self.is_lost, self.is_over = threading.Event(), threading.Event()
        self.listener = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> None:
        try:
            for rank in range(1, self.planned.case.processes):
                self._start(rank)
            for at, connection in enumerate(self.connections):
                self._wait_for(at, connection)
        except BaseException:
            self._stop()
            raise
        self.listener.start()

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        # a connection ends a little earlier than the process that had it
        if isinstance(problem, PeerLost):
            self.is_lost.wait(GRACE_SECONDS)
        self.is_over.set()
        self._stop()
        if isinstance(problem, PeerLost) and self.lost is not None:
            raise PeerLost(self.lost.reason, self.lost.status) from problem

    def _start(self, rank: int) -> None:
        ours, theirs = Pipe()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "attnbench.harness.worker", str(theirs.fileno()), str(os.getpid())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self.processes.append(process)
        self.connections.append(ours)
        # one that is gone already is heard of by its silence
        with contextlib.suppress(OSError):
            ours.send(replace(self.settings, rank=rank))
            ours.send(Job((self.planned,)))

    def _wait_for(self, at: int, connection: Connection) -> None:
        """Wait until a process is at the case. Raises PeerLost."""
        try:
            if connection.poll(max(0.0, self.started + START_SECONDS - time.monotonic())):
                connection.recv()
                return
        except (EOFError, OSError):
            raise PeerLost(self._death(at).reason) from None
        raise PeerLost(f"{self._name(at)} took longer than {START_SECONDS:g} s to start")

    def _listen(self) -> None:
        """Hear how each process ends; where that is not well, the first has a little time to end by itself."""
        at = {connection: number for number, connection in enumerate(self.connections)}
        while at and not self.is_over.is_set():
            for connection in wait(list(at), timeout=0.5):
                assert isinstance(connection, Connection)
                try:
                    message = connection.recv()
                except (EOFError, OSError):
                    self._note(self._death(at.pop(connection)))
                    continue
                if isinstance(message, Ended):
                    outcome = message.outcome
                    name = self._name(at.pop(connection))
                    if outcome.status is not Status.OK and not outcome.reason.startswith(LEFT):
                        self._note(Outcome(outcome.status, f"{name}: {outcome.reason}"))

    def _note(self, lost: Outcome) -> None:
        if self.lost is not None or self.is_over.is_set():
            return
        self.lost = lost
        self.is_lost.set()
        if not self.is_over.wait(GRACE_SECONDS):
            self.abandon(replace(lost, seconds=time.monotonic() - self.started))

    def _stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        if self.listener.is_alive():
            self.listener.join()
        for connection in self.connections:
            connection.close()

    def _name(self, at: int) -> str:
        return f"process {at + 2} of {self.planned.case.processes}"

    def _death(self, at: int) -> Outcome:
        """What became of a process that says nothing any more, from its exit status."""
        try:
            code = self.processes[at].wait(timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return Outcome(Status.ERROR, f"{self._name(at)} closed its connection")
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return Outcome(Status.ERROR, f"{self._name(at)} {how}")
