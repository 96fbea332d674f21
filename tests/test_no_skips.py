import os
import shutil
import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest

def test_that_needs_a_database():
    pytest.skip("no database here")

@pytest.mark.skipif(True, reason="no browser here")
def test_that_needs_a_browser():
    pass

@pytest.mark.gpu
def test_that_needs_a_gpu():
    pytest.skip("no GPU here")

@pytest.mark.xfail(reason="known")
def test_that_is_known_to_fail():
    raise AssertionError

def test_that_passes():
    pass
"""


def run(folder: Path, *options: str) -> str:
    shutil.copy(Path(__file__).with_name("conftest.py"), folder)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = gpu\n")
    (folder / "test_here.py").write_text(TESTS)
    (folder / "test_module.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    command = [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    wide = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(
        [*command, *options], cwd=folder, env=wide, capture_output=True, text=True, check=False
    ).stdout


def test_skips_are_accepted_by_default(tmp_path):
    assert "1 passed, 4 skipped, 1 xfailed" in run(tmp_path)


def test_without_skips_what_is_missing_fails_with_its_reason_unless_it_is_a_gpu(tmp_path):
    said = run(tmp_path, "--no-skips")
    assert "FAILED test_here.py::test_that_needs_a_database - --no-skips: Skipped: no database here" in said
    assert "ERROR test_here.py::test_that_needs_a_browser - --no-skips: Skipped: no browser here" in said
    assert "ERROR test_module.py - --no-skips: Skipped: could not import 'no_such_module'" in said
    assert "1 failed, 1 passed, 1 skipped, 1 xfailed, 2 errors" in said
