"""A run of the fake suites as a test sees it: a folder, a database, the command, and the workers that were at it."""

from pathlib import Path

import fake_suites
from commands import Command, Commands
from rich.console import Console

from attnbench.harness.errors import BadDatabase
from attnbench.harness.jobs import Planned
from attnbench.harness.plan import Request, plan
from attnbench.harness.rows import Row, Status
from attnbench.harness.running import Options, planned_cases
from attnbench.harness.store import RunState, Store

DATABASE = "bench.db"


class Bench:
    """A folder with a database, the commands that use it, and the workers that were at it."""

    def __init__(self, commands: Commands, folder: Path) -> None:
        self.commands, self.folder = commands, folder
        self.database = folder / DATABASE
        self.workers = folder / "workers"
        self.workers.mkdir()
        self.gate = folder / "gate"
        self.environment = {
            fake_suites.WORKERS: str(self.workers),
            fake_suites.GATE: str(self.gate),
            fake_suites.DATABASE: str(self.database),
        }

    def start(self, *arguments: str, deeds: str = "", scale: str = "smoke", **more: object) -> Command:
        """Start a run of a fake suite."""
        chosen = ("--set", f"does={deeds}") if deeds else ()
        return self.commands.start(
            "run",
            *arguments,
            *chosen,
            *("--scale", scale, "--db", DATABASE),
            folder=self.folder,
            environment=self.environment,
            **more,  # type: ignore[arg-type]
        )

    def run(self, *arguments: str, deeds: str = "", scale: str = "smoke", **more: object) -> tuple[int, str]:
        """Exit code and what was said, of a run of a fake suite."""
        command = self.start(*arguments, deeds=deeds, scale=scale, **more)
        return command.wait(), command.errors()

    def rows(self, *, latest: bool = True) -> list[Row]:
        """The rows that are stored."""
        with Store.open(self.database, writes=False) as store:
            return store.rows(latest=latest)

    def is_made(self) -> bool:
        """Whether a run has made the database and its tables."""
        try:
            Store.open(self.database, writes=False).close()
        except BadDatabase:
            return False
        return True

    def attempts(self) -> list[Row]:
        """One row of each attempt, in the order in which they were stored; none while there is no database."""
        if not self.is_made():
            return []
        return list({row.attempt_id: row for row in self.rows(latest=False)}.values())

    def endings(self) -> dict[str, tuple[Status, str]]:
        """What a case did, or what it is called -> how it ended and why."""
        return {str(row.point.get("does", row.variant)): (row.status, row.reason) for row in self.attempts()}

    def states(self) -> list[RunState]:
        """How the runs ended, oldest first."""
        with Store.open(self.database, writes=False) as store:
            return [run.state for run in store.runs()]

    def pids(self) -> list[int]:
        """The processes that worked here."""
        return [int(path.name) for path in self.workers.iterdir()]


def planned(deeds: tuple[str, ...], *, scale: str = "smoke") -> list[Planned]:
    """The cases that `attnbench run fake --set does=...` plans."""
    request = Request(suites=("fake",), scale=scale, settings={"does": deeds})

    def find(name: str) -> None:
        raise AssertionError

    asked = plan(fake_suites.SUITES, request, find)  # type: ignore[arg-type]
    return planned_cases(asked, Options(DATABASE), Console(quiet=True))
