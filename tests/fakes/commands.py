"""Commands that start in milliseconds: forks of one process that has imported all there is.

    with Commands() as commands:
        command = commands.start("run", "fake", "--db", "bench.db", folder=tmp_path)
        assert command.wait() == 0
        print(command.errors())

A command is what `attnbench` would be, `main()` with its arguments in a process and session of its own, only that it finds
the fake suites beside the real ones and that its workers are forked too. `program="pytest"` makes it a pytest instead.
"""

import contextlib
import io
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import IO, Any

FAKES = Path(__file__).parent
PATIENCE_SECONDS = 90.0


def until(condition: Any, seconds: float = PATIENCE_SECONDS) -> Any:
    """What `condition()` gives once it is true; fails the test if that takes too long."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < deadline, "this took too long"
        time.sleep(0.002)


def is_alive(pid: int) -> bool:
    """Whether a process runs: one that only waits to be buried does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@dataclass
class Command:
    """A command that was started: its process, and the files that it writes to."""

    commands: "Commands"
    pid: int
    out: Path
    err: Path

    def output(self) -> str:
        """What it wrote to standard output so far."""
        return self.out.read_text(encoding="utf-8")

    def errors(self) -> str:
        """What it wrote to standard error so far."""
        return self.err.read_text(encoding="utf-8")

    def wait(self) -> int:
        """Its exit code; negative for a signal."""
        (code,) = until(lambda: self.commands.ask(ended=self.pid))
        return code

    def send(self, number: int) -> None:
        """Send a signal to the command alone."""
        os.kill(self.pid, number)

    def press_control_c(self) -> None:
        """Send what a terminal sends: an interrupt to the whole process group."""
        os.killpg(self.pid, signal.SIGINT)


class Commands:
    """The process whose forks are commands."""

    def __enter__(self) -> "Commands":
        self._number = count()
        self._server = subprocess.Popen(
            [sys.executable, str(FAKES / "commands.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**_environment(), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # the end of its input is the end of it; what it forked and a test forgot goes with it
        self._server.communicate(timeout=PATIENCE_SECONDS)

    def start(
        self,
        *arguments: str,
        folder: Path,
        program: str = "attnbench",
        environment: Mapping[str, str] | None = None,
        file_bytes: int | None = None,
        out: Path | None = None,
        err: Path | None = None,
    ) -> Command:
        """Start a command in `folder`, writing to files there. No file that it writes can grow beyond `file_bytes`."""
        number = next(self._number)
        out, err = out or folder / f"out{number}", err or folder / f"err{number}"
        for path in (out, err):
            path.touch()
        pid = self.ask(
            program=program,
            arguments=arguments,
            folder=str(folder),
            out=str(out),
            err=str(err),
            environment=dict(environment or {}),
            file_bytes=file_bytes,
        )
        return Command(self, pid, out, err)

    def run(self, *arguments: str, folder: Path, **more: Any) -> tuple[int, str]:
        """Exit code and standard error of a command that is waited for."""
        command = self.start(*arguments, folder=folder, **more)
        return command.wait(), command.errors()

    def ask(self, **request: Any) -> Any:
        """The server's answer."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        ready, _, _ = select.select([self._server.stdout], [], [], PATIENCE_SECONDS)
        assert ready, "the process that forks commands does not answer"
        return json.loads(self._server.stdout.readline())


def _environment() -> dict[str, str]:
    """The environment without what a pytest tells its own workers, which another pytest would take for itself."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "ATTNBENCH_"))}


def serve(requests: IO[str], answers: IO[str]) -> None:
    """Fork a command for each request that wants one; say how a command ended to one that asks."""
    alive: set[int] = set()
    for line in requests:
        request = json.loads(line)
        if "ended" in request:
            pid, status = os.waitpid(request["ended"], os.WNOHANG)
            alive.discard(pid)
            answer: Any = [os.waitstatus_to_exitcode(status)] if pid else []
        else:
            answer = os.fork()
            if not answer:
                _become(request)
            alive.add(answer)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _become(request: dict[str, Any]) -> None:
    """Be the command, and end."""
    code: object = 1
    try:
        os.setsid()
        for number, path, mode in (
            (0, os.devnull, os.O_RDONLY),
            (1, request["out"], os.O_WRONLY),
            (2, request["err"], os.O_WRONLY),
        ):
            opened = os.open(path, mode)
            os.dup2(opened, number)
            os.close(opened)
        os.chdir(request["folder"])
        os.environ.update(request["environment"])
        if request["file_bytes"] is not None:
            import resource

            resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_bytes"], resource.RLIM_INFINITY))
        # whoever started us may have been deaf to them, as what `nohup` starts is
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        sys.argv = [request["program"], *request["arguments"]]
        code = 0
        if request["program"] == "pytest":
            import pytest

            # plugins that were imported before pytest began cannot be rewritten, and need not be
            quiet = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
            # it takes two seconds to say nothing
            quick = ("-p", "no:hypothesispytest")
            code = int(pytest.main([*quiet, *quick, *request["arguments"]]))
        else:
            from attnbench.harness.__main__ import main

            main()
    except SystemExit as ending:
        code = ending.code
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


class Forked:
    """A forked worker, with as much of `subprocess.Popen` as the runner uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code once it has ended."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code."""
        return until(lambda: None if self.poll() is None else [self.returncode])[0]

    def kill(self) -> None:
        """End it."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _fork_workers() -> None:
    """Let the runner fork its workers: `harness.worker.main` in a process that need not import anything any more."""
    from multiprocessing import Pipe

    from attnbench.harness import runner, worker
    from attnbench.harness.jobs import Settings

    def spawn(threads: int, settings: Settings) -> runner.Worker:
        ours, theirs = Pipe()
        parent = os.getpid()
        pid = os.fork()
        if not pid:
            os.setpgid(0, 0)
            kept = theirs.fileno()
            os.closerange(3, kept)
            os.closerange(kept + 1, 1024)
            sys.argv = ["worker", str(kept), str(parent)]
            try:
                worker.main()
            except SystemExit as ending:
                os._exit(1 if isinstance(ending.code, str) else int(ending.code or 0))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        theirs.close()
        ours.send(settings)
        return runner.Worker(Forked(pid), ours, threads)  # type: ignore[arg-type]

    runner._spawn = spawn


def _import_all() -> None:
    """Import what commands and workers need, the fake suites among it."""
    import importlib

    for name in (
        "alembic.command",
        "pytest_benchmark.plugin",
        "attnbench.harness.__main__",
        "attnbench.harness.measuring",
        "attnbench.harness.running",
    ):
        importlib.import_module(name)
    import fake_suites
    import fake_training
    import torch

    from attnbench import suites
    from attnbench.variants.registry import everything

    real = suites.find_suites()
    fakes = {**fake_suites.SUITES, fake_training.FAKE_TRAINING.name: fake_training.FAKE_TRAINING}
    suites.find_suites = lambda: {**fakes, **real}
    everything()
    # the first optimiser of a process imports torch's compiler
    torch.optim.Adam([torch.zeros(1)])


def _warm_up() -> None:
    """Run one command to the end, so that what is made once in a process is there."""
    from attnbench.harness.__main__ import main

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        sys.argv = ["attnbench", "run", "fake", "--scale", "smoke", "--db", f"{folder}/bench.db"]
        with contextlib.suppress(SystemExit):
            main()


@contextlib.contextmanager
def _apart() -> Iterator[IO[str]]:
    """The real standard output for answers; what anything prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with answers:
        yield answers


if __name__ == "__main__":
    with _apart() as to_the_test:
        _import_all()
        _fork_workers()
        _warm_up()
        serve(sys.stdin, to_the_test)
