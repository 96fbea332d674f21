"""Imports point one way: variants <- harness <- suites, and reports read only what needs no torch."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from attnbench.harness.rows import Attempt, Identity, Measurement, Status
from attnbench.harness.spec import Case, Point
from attnbench.harness.store import Run, Store
from attnbench.suites import capacity

ROOT = Path(__file__).parent.parent
# what only plans, stores or reads
TORCH_FREE = (
    "spec",
    "rows",
    "store",
    "metrics",
    "errors",
    "environment",
    "plan",
    "destination",
    "rowfile",
    "exchange",
    "bleu",
)


def files(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found, folder
    return found


def imports(path: Path) -> Iterator[str]:
    """Every name that a file imports, at its top, inside a function, or for the type checker only."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # a relative import would go unseen by the code hash
            assert not node.level, f"{path}: relative import"
            assert node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(path: Path) -> list[str]:
    return [name for name in imports(path) if name.split(".")[0] == "attnbench"]


def outside(folder: str, *allowed: str, but_for: tuple[str, ...] = ()) -> list[str]:
    """What the files of a folder import of this project beyond the allowed packages."""
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files(folder)
        if str(path.relative_to(ROOT)) not in but_for
        for name in ours(path)
        if not any(name == package or name.startswith(f"{package}.") for package in allowed)
    ]


def test_variants_import_nothing_of_this_project_but_variants() -> None:
    assert outside("variants", "attnbench.variants") == []


def test_harness_imports_variants_and_harness_but_for_the_command_line() -> None:
    allowed = ("attnbench.variants", "attnbench.harness")
    assert outside("harness", *allowed, but_for=("harness/__main__.py",)) == []


def test_suites_import_harness_and_variants() -> None:
    assert outside("suites", "attnbench.variants", "attnbench.harness", "attnbench.suites") == []


def test_reports_import_only_what_needs_no_torch() -> None:
    allowed = (f"attnbench.harness.{name}" for name in TORCH_FREE if name != "plan")
    assert outside("reports", "attnbench.reports", *allowed) == []


def test_nothing_imports_the_command_line() -> None:
    importers = [
        str(path.relative_to(ROOT))
        for folder in ("variants", "harness", "suites", "reports")
        for path in files(folder)
        if any("attnbench.harness.__main__" in name for name in ours(path))
    ]
    assert importers == []


def loaded(code: str, folder: Path) -> set[str]:
    """The modules that are loaded when a program of this code ends."""
    report = "import atexit, sys; atexit.register(lambda: print('\\n', *sys.modules))\n"
    done = subprocess.run(
        [sys.executable, "-c", report + code], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_what_plans_stores_and_reads_imports_no_torch(tmp_path: Path) -> None:
    code = "\n".join(f"import attnbench.harness.{name}" for name in TORCH_FREE)
    modules = loaded(code, tmp_path)
    assert {f"attnbench.harness.{name}" for name in TORCH_FREE} <= modules
    assert "torch" not in modules


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a database of one row."""
    with Store.open(tmp_path / "attnbench.db", writes=True) as store:
        store.begin_run(Run("run", "attnbench run", datetime.now(UTC)))
        store.record_suite(capacity.SUITE)
        case = Case("capacity", "delta", "readout", Point(pairs=20), 0, "quick")
        measured = (Measurement("retrieval_loss", 0.25),)
        store.append("run", Attempt(case, Identity("", ""), Status.OK, measurements=measured), owner="me")
        store.end_run("run", "finished")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        "run --help",
        "show",
        "show --measured",
        "verdicts",
        "verdicts --json",
        "compare variant=delta variant=delta",
        "--version",
        "report",
        "export",
        "export --format csv",
        "ls runs",
        "ls metrics",
        "db upgrade",
    ],
)
def test_help_and_commands_that_read_import_no_torch(folder: Path, arguments: str) -> None:
    code = (
        f"sys.argv = ['attnbench', *{arguments.split()!r}]\n"
        "from attnbench.harness.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit as ending:\n    assert not ending.code\n"
    )
    modules = loaded(code, folder)
    assert "attnbench.harness.__main__" in modules
    assert "torch" not in modules
    assert (folder / "attnbench.html").exists() == (arguments == "report")
