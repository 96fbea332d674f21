"""What these tests share: commands that start at once, and databases."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Commands
from stored import START, Clock

from attnbench.harness.store import Run, Store


@pytest.fixture(scope="session")
def commands() -> Iterator[Commands]:
    """The process whose forks are commands."""
    with Commands() as running:
        yield running


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bench.db"


@pytest.fixture(scope="session")
def new_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new database, made once: copying it is quicker than making it."""
    path = tmp_path_factory.mktemp("new") / "new.db"
    Store.open(path, writes=True).close()
    return path


@pytest.fixture
def store(path: Path, clock: Clock, new_database: Path) -> Iterator[Store]:
    shutil.copy(new_database, path)
    with Store.open(path, writes=True, now=clock) as opened:
        for run_id in ("first", "second"):
            opened.begin_run(Run(run_id, "attnbench run", START))
        yield opened
