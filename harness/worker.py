"""A worker process: takes jobs from its runner over a pipe, one at a time, and tells how they end.

Started as `python -m attnbench.harness.worker FILE_DESCRIPTOR RUNNER`, where RUNNER is the process that it works for: the
runner, or for the further processes of a case that several train, the worker that has the case. It leaves signals to the
runner, and ends when the process that it works for does.
"""

import importlib
import os
import signal
import sys
import threading
import time
from functools import partial
from multiprocessing.connection import Connection

from attnbench.harness.jobs import Began, Ended, Job, Outcome, Progressed, Settings


def serve(connection: Connection, settings: Settings) -> None:
    """Do jobs until the runner hangs up."""
    from attnbench.harness.measuring import measure, measure_times

    speaking = threading.Lock()

    def send(message: Began | Progressed | Ended) -> None:
        with speaking:
            connection.send(message)

    def begin(index: int | None) -> None:
        send(Began(index))

    def report(fraction: float, note: str) -> None:
        send(Progressed(fraction, note))

    def abandon(index: int, outcome: Outcome) -> None:
        """Say how a case ended that does not come back, and leave: whoever waits in torch cannot be called off."""
        send(Ended(index, outcome))
        os._exit(1)

    while True:
        job: Job = connection.recv()
        suite = importlib.import_module(job.cases[0].module)
        if job.is_timing:
            for index, outcome in enumerate(measure_times(job.cases, suite, settings, begin, report)):
                send(Ended(index, outcome))
            continue
        for index, planned in enumerate(job.cases):
            begin(index)
            send(Ended(index, measure(planned, suite, settings, report, partial(abandon, index))))


def _end_with(runner: int) -> None:
    """Leave as soon as the runner is gone: a killed runner cannot say so."""
    while os.getppid() == runner:
        time.sleep(0.5)
    os._exit(1)


def main() -> None:
    """The process: settings first, then jobs."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
    connection = Connection(int(sys.argv[1]))
    try:
        serve(connection, connection.recv())
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


if __name__ == "__main__":
    main()
