"""Where numbers come from: facts are there, passwords are not, and a process is told from a later one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from attnbench.harness import environment
from attnbench.harness.environment import (
    command_line,
    graphics,
    hardware,
    is_alive,
    lease_owner,
    settings,
    source_state,
    this_run,
    without_password,
)

NEEDS_GIT = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("postgresql://me:s3cret@host/name", "postgresql://me:***@host/name"),
        ("postgresql+psycopg://me:s3/c@ret@host:5432/name", "postgresql+psycopg://me:***@host:5432/name"),
        ("postgresql://host/name?user=me&password=s3cret&sslmode=off", "postgresql://host/name?user=me&password=***&sslmode=off"),
        ("postgresql://me@host/name", "postgresql://me@host/name"),
        ("sqlite:////folder/attn@bench:1.db", "sqlite:////folder/attn@bench:1.db"),
        ("attnbench.db", "attnbench.db"),
    ],
)  # fmt: skip
def test_a_password_in_a_database_url_is_not_shown(typed, shown):
    assert without_password(typed) == shown
    assert without_password(f"--db={typed} --seed 1") == f"--db={shown} --seed 1"


def test_the_command_is_kept_as_typed_without_the_folder_of_the_program_and_without_the_password():
    typed = ["/opt/venv/bin/attnbench", "run", "--db", "postgresql://me:s3cret@host/name", "--variant", "my file.py:VARIANT"]  # fmt: skip
    assert command_line(typed) == "attnbench run --db postgresql://me:***@host/name --variant 'my file.py:VARIANT'"


def test_a_run_knows_its_machine_versions_and_start():
    run = this_run(["attnbench", "run"], worker_environment={"OMP_NUM_THREADS": "1"})
    assert run.id.startswith(f"{run.started_at:%Y%m%d-%H%M%S}-")
    assert run.started_at.tzinfo is not None
    assert run.machine["cores"] >= run.machine["usable_cores"] >= 1
    assert run.machine["memory_bytes"] > 2**20
    assert run.machine["cpu"]
    assert {"python", "attnbench", "torch", "numpy", "platform"} <= set(run.versions)
    assert run.environment["OMP_NUM_THREADS"] == "1"
    assert run.testbed == hardware("cpu")
    json.dumps([run.machine, run.device, run.versions, run.environment])


def test_two_runs_of_one_second_have_different_names():
    assert this_run(["attnbench"]).id != this_run(["attnbench"]).id


def test_the_settings_kept_are_those_that_change_numbers_and_no_secrets():
    variables = {
        "OMP_NUM_THREADS": "2",
        "MALLOC_ARENA_MAX": "1",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "LD_PRELOAD": "libjemalloc.so",
        "ATTNBENCH_DB": "postgresql://me:s3cret@host/name",
        "HOME": "/root",
    }
    assert set(settings(variables)) == {"OMP_NUM_THREADS", "MALLOC_ARENA_MAX", "PYTORCH_CUDA_ALLOC_CONF", "LD_PRELOAD"}


@pytest.mark.parametrize(
    ("cpuinfo", "model"),
    [
        ("processor\t: 0\nmodel\t\t: 49\nmodel name\t: AMD EPYC 7B12\ncpu MHz\t\t: 2249.998\n", "AMD EPYC 7B12"),
        ("processor\t: 0\nBogoMIPS\t: 108.00\nCPU part\t: 0xd08\n\nModel\t\t: Raspberry Pi 4 Model B\n", "Raspberry Pi 4 Model B"),
        ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 2300.000000MHz\n", "POWER9, altivec supported"),
        ("processor\t: 0\nBogoMIPS\t: 50.00\n", ""),
    ],
)  # fmt: skip
def test_the_processor_is_named_without_its_momentary_clock(cpuinfo, model):
    assert environment._cpu_model_in(cpuinfo) == model


@pytest.fixture
def no_gpu_seen_yet():
    environment._nvidia_smi.cache_clear()
    yield
    environment._nvidia_smi.cache_clear()


def nvidia_smi(folder: Path, lines: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}\nEND\n")
    program.chmod(0o755)


@pytest.mark.usefixtures("no_gpu_seen_yet")
def test_gpu_memory_and_driver_come_from_nvidia_smi(tmp_path, monkeypatch):
    nvidia_smi(tmp_path, "NVIDIA H200, 143771, 570.86.15\nNVIDIA H200, 143771, 570.86.15")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert graphics() == {
        "gpu": "NVIDIA H200",
        "gpus": 2,
        "gpu_memory_bytes": 143771 * 2**20,
        "driver": "570.86.15",
    }
    assert hardware("cuda") == hardware("cuda:1") == "NVIDIA H200"
    run = this_run(["attnbench"], device="cuda")
    assert (run.driver, run.testbed) == ("570.86.15", "NVIDIA H200")


def test_the_clock_is_the_median_of_the_cores_or_that_of_the_gpu_or_nothing(tmp_path, monkeypatch):
    cpuinfo = "cpu MHz\t\t: 2600.5\nmodel name : x\ncpu MHz\t\t: 3400.0\ncpu MHz\t\t: 2700.0\n"
    monkeypatch.setattr(Path, "read_text", lambda self, **how: cpuinfo)
    assert environment.clock_mhz("cpu") == 2700
    cpuinfo = "processor : 0\n"
    assert environment.clock_mhz("cpu") is None
    nvidia_smi(tmp_path, "1980\n210")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert environment.clock_mhz("cuda:0") == 1980
    nvidia_smi(tmp_path, "[N/A]")
    assert environment.clock_mhz("cuda") is None


def test_where_nobody_tells_the_clock_there_is_none(monkeypatch):
    def missing(self, **how):
        raise OSError("no such file")

    monkeypatch.setattr(Path, "read_text", missing)
    monkeypatch.setenv("PATH", "")
    assert environment.clock_mhz("cpu") is None
    assert environment.clock_mhz("cuda") is None


@pytest.mark.usefixtures("no_gpu_seen_yet")
def test_where_gpus_differ_torch_says_which_one_it_is(tmp_path, monkeypatch):
    nvidia_smi(tmp_path, "NVIDIA A100, 40960, 570.1\nNVIDIA H200, 143771, 570.1")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    cuda = SimpleNamespace(
        is_available=lambda: True, get_device_name=lambda index: ["NVIDIA H200", "NVIDIA A100"][index]
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda="13.0")))
    assert hardware("cuda:0") == "NVIDIA H200"
    assert graphics()["cuda"] == "13.0"


@pytest.mark.usefixtures("no_gpu_seen_yet")
def test_without_a_gpu_there_are_no_gpu_facts(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "torch", None)
    assert graphics() == {}
    assert hardware("cuda") == "unknown GPU"


def test_the_hardware_of_a_processor_is_its_name_and_its_cores():
    cores = environment.usable_cores()
    assert hardware("cpu") == f"{environment.cpu_model()}, {cores} core{'s' if cores > 1 else ''}"
    assert hardware("mps") == f"{hardware('cpu')}, mps"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    root = tmp_path / "checkout"
    (root / "variants").mkdir(parents=True)
    (root / "variants" / "delta.py").write_text("one = 1\n")
    for command in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false", "commit", "-q", "-m", "first"],
    ):
        subprocess.run(["git", "-C", str(root), *command], check=True, capture_output=True)
    return root


@NEEDS_GIT
def test_a_checkout_has_a_commit_and_is_clean(checkout):
    commit, is_dirty = source_state(checkout)
    assert len(commit) == 40
    assert not is_dirty


@NEEDS_GIT
@pytest.mark.parametrize("file", ["variants/delta.py", "variants/mine.py"])
def test_a_changed_or_a_new_source_file_makes_it_dirty(checkout, file):
    (checkout / file).write_text("two = 2\n")
    assert source_state(checkout)[1]


@NEEDS_GIT
def test_a_database_beside_the_sources_does_not_make_it_dirty(checkout):
    (checkout / "attnbench.db").write_text("rows")
    assert not source_state(checkout)[1]


@NEEDS_GIT
def test_without_git_the_commit_is_empty(checkout, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert source_state(checkout) == ("", False)


@NEEDS_GIT
def test_an_installed_copy_inside_somebody_elses_checkout_has_no_commit(checkout):
    installed = checkout / "venv" / "site-packages" / "attnbench"
    installed.mkdir(parents=True)
    assert source_state(installed) == ("", False)


def test_this_process_is_alive():
    assert is_alive(lease_owner())


def test_a_process_that_ended_is_not_alive():
    code = "from attnbench.harness.environment import lease_owner; print(lease_owner())"
    owner = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert owner.startswith(lease_owner().partition(":")[0])
    assert not is_alive(owner)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_process_that_was_killed_and_not_yet_waited_for_is_not_alive():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    start = environment._process_start(child.pid)
    owner = f"{lease_owner().partition(':')[0]}:{child.pid}:{start}"
    assert is_alive(owner)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(owner)
    child.communicate()


def test_a_later_process_with_the_same_number_is_another_one():
    node, pid, start = lease_owner().split(":", 2)
    assert not is_alive(f"{node}:{pid}:{start}0")


@pytest.mark.parametrize("owner", ["elsewhere:1:2", "somebody", ""])
def test_a_process_that_we_cannot_see_may_be_alive(owner):
    assert is_alive(owner)


def test_the_environment_and_the_store_import_no_torch():
    code = "import sys, attnbench.harness.environment as e, attnbench.harness.store; e.this_run(['x']); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
