"""What these tests share: databases, the command, and runs of the fake suites."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench import Bench
from commands import Commands
from stored import START, Clock

from attnbench.harness.__main__ import main
from attnbench.harness.store import Run, Store


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


@pytest.fixture
def database(tmp_path: Path, new_database: Path) -> Path:
    return Path(shutil.copy(new_database, tmp_path / "attnbench.db"))


@pytest.fixture
def attnbench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """`attnbench ARGUMENTS` in the test's folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNBENCH_DB", raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["attnbench", *map(str, arguments)])
        with pytest.raises(SystemExit) as ending:
            main()
        said = capsys.readouterr()
        assert ending.value.code is None or isinstance(ending.value.code, int)
        return ending.value.code or 0, said.out, said.err

    return run


@pytest.fixture
def bench(commands: Commands, tmp_path: Path) -> Bench:
    return Bench(commands, tmp_path)
