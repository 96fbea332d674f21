"""The wheel, built and installed away from the repository, is complete."""

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ("variants", "harness", "suites", "reports", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the sources, so that building leaves nothing behind in them."""
    copy = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(copy / "dist"), str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return next((copy / "dist").glob("*.whl"))


@pytest.fixture(scope="module")
def command(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `attnbench` command of a virtual environment that has the wheel, and our dependencies from here."""
    home = tmp_path_factory.mktemp("installed") / "env"
    venv.create(home, with_pip=False)
    own = next(home.glob("lib/python*/site-packages"))
    python = home / "bin" / "python"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            str(wheel),
        ],
        check=True,
        capture_output=True,
    )
    # added after pip has looked for what is there; it comes after the environment's own packages when importing
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin" / "attnbench"


def attnbench(command: Path, folder: Path, *arguments: str) -> str:
    done = subprocess.run([command, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_wheel_claims_one_top_level_name(wheel: Path) -> None:
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"attnbench"}


def test_the_wheel_holds_every_file_of_the_four_folders(wheel: Path) -> None:
    packed = {name.removeprefix("attnbench/") for name in zipfile.ZipFile(wheel).namelist()}
    tracked = {
        path.relative_to(ROOT).as_posix()
        for folder in ("variants", "harness", "suites", "reports")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".md"
    }
    assert tracked - packed == set()


def test_the_installed_command_lists_checks_runs_and_reports(command: Path, tmp_path: Path) -> None:
    assert "performer-m64+scaled" in attnbench(command, tmp_path, "ls", "variants")
    checked = attnbench(command, tmp_path, "check", "linear")
    assert "linear/chunkwise equals_recurrent" in checked
    assert "failed" not in checked
    said = attnbench(command, tmp_path, "run", "capacity", "--scale", "smoke", "--variant", "linear", "-j", "1")
    assert "ended: 1 ok" in said
    assert "report: attnbench.html" in attnbench(command, tmp_path, "report")
    page = (tmp_path / "attnbench.html").read_text(encoding="utf-8")
    assert "How many pairs fit into a memory of fixed size?" in page
    assert "linear" in attnbench(command, tmp_path, "show", "capacity")


def test_a_variant_of_ones_own_is_checked_run_and_reported_from_a_scratch_folder(command: Path, tmp_path: Path) -> None:
    attnbench(command, tmp_path, "new", "variant", "fading")
    assert 30 <= len((tmp_path / "fading.py").read_text(encoding="utf-8").splitlines()) <= 40
    assert "failed" not in attnbench(command, tmp_path, "check", "fading.py:VARIANT")
    both = ("--variant", "fading.py:VARIANT", "--variant", "linear")
    said = attnbench(command, tmp_path, "run", "rewrite", "--scale", "smoke", *both, "-j", "1", "--report", "page.html")
    assert "ended: 2 ok" in said
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "--variant fading.py:VARIANT" in page


def test_the_installed_package_is_not_the_checkout(command: Path, tmp_path: Path) -> None:
    python = command.with_name("python")
    found = subprocess.run(
        [python, "-c", "import attnbench.variants.contract as c; print(c.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert str(command.parent.parent) in found
