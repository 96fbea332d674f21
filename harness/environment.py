"""Where numbers come from: machine, device, versions, commit, command. Reads all of it, needs none of it, imports no torch.

run = this_run(sys.argv, device="cpu")      # what the table `run` keeps
hardware("cpu")                             # "AMD EPYC 7B13, 8 cores": what a timing depends on
lease_owner()                               # "box/1f0c9a2e/4026531836:4711:8812345": this process, and no later one
"""

import importlib.metadata
import os
import platform
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from attnbench.harness.spec import processes_of

Facts = Mapping[str, str | int]

# distributions whose version can change a number
_DISTRIBUTIONS = (
    "attnbench",
    "torch",
    "triton",
    "xformers",
    "fla-core",
    "numpy",
    "scipy",
    "sentencepiece",
    "sacrebleu",
    "datasets",
    "pytest-benchmark",
    "ray",
)
# environment variables that change a number or a time: threads, allocators, precision
_SETTINGS = re.compile(
    r"(OMP|KMP|GOMP|MKL|OPENBLAS|BLIS|VECLIB|NUMEXPR|MALLOC|CUDA|CUBLAS|CUDNN|NVIDIA|PYTORCH|TORCH|ATEN|DNNL|ONEDNN|TRITON)_\w+"
    r"|LD_PRELOAD|DYLD_INSERT_LIBRARIES|PYTHONHASHSEED|TOKENIZERS_PARALLELISM"
)


@dataclass(frozen=True)
class Run:
    """One command, and all that its numbers may hang on. `environment` holds the variables that its workers got."""

    id: str
    command: str
    started_at: datetime
    machine: Facts = field(default_factory=dict)
    device: Facts = field(default_factory=dict)
    driver: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    commit: str = ""
    is_dirty: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    testbed: str = ""


def this_run(
    arguments: Sequence[str], *, device: str = "cpu", worker_environment: Mapping[str, str] | None = None
) -> Run:
    """The run that starts now, by this process. `worker_environment` is what its workers get on top of our variables."""
    started_at = datetime.now(UTC)
    device_facts = dict(graphics())
    driver = str(device_facts.pop("driver", ""))
    commit, is_dirty = source_state()
    return Run(
        id=f"{started_at:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
        command=command_line(arguments),
        started_at=started_at,
        machine=machine(),
        device=device_facts,
        driver=driver,
        versions=versions(),
        commit=commit,
        is_dirty=is_dirty,
        environment={**settings(os.environ), **(worker_environment or {})},
        testbed=hardware(device),
    )


def machine() -> Facts:
    """Name, operating system, processor, cores, memory."""
    facts: dict[str, str | int] = {
        "node": platform.node(),
        "os": platform.platform(),
        "architecture": platform.machine(),
        "cpu": cpu_model(),
        "cores": os.cpu_count() or 1,
        "usable_cores": usable_cores(),
    }
    memory = memory_bytes()
    return facts if memory is None else {**facts, "memory_bytes": memory}


def usable_cores() -> int:
    """The cores that this process may use: fewer than the machine has under taskset or in many containers."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int | None:
    """The machine's memory; None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


@cache
def cpu_model() -> str:
    """The processor's name, without its momentary clock."""
    try:
        model = _cpu_model_in(Path("/proc/cpuinfo").read_text(errors="replace"))
    except OSError:
        model = told_by("sysctl", "-n", "machdep.cpu.brand_string")
    return model or platform.processor() or platform.machine() or "unknown processor"


def clock_mhz(device: str) -> float | None:
    """The clock of the processor or of the first GPU at this moment, the median of its cores; None where nobody tells."""
    if device.startswith("cuda"):
        told = told_by("nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits").splitlines()[:1]
    else:
        try:
            told = re.findall(r"^cpu MHz\s*:\s*(\S+)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
        except OSError:
            told = []
    try:
        return median(map(float, told)) if told else None
    except ValueError:
        return None


def _cpu_model_in(cpuinfo: str) -> str:
    # ARM kernels give no model name; the first of these lines that is there has to do
    for name in ("model name", "Model", "Hardware", "cpu"):
        found = re.search(rf"^{name}\s*:\s*(\S.*)$", cpuinfo, re.MULTILINE)
        if found:
            return " ".join(found[1].split())
    return ""


@cache
def _nvidia_smi() -> tuple[tuple[str, int, str], ...]:
    """Name, memory in bytes and driver of each GPU; empty without nvidia-smi."""
    text = told_by("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")
    fields = [[part.strip() for part in line.split(",")] for line in text.splitlines()]
    return tuple((f[0], int(f[1]) * 2**20 if f[1].isdigit() else 0, f[2]) for f in fields if len(f) == 3)


def graphics() -> Facts:
    """GPUs, their memory, driver and CUDA version; empty where there is none. Asks torch only if it is loaded already."""
    gpus = _nvidia_smi()
    torch = _torch_with_cuda()
    facts: dict[str, str | int] = {}
    if gpus:
        facts = {
            "gpu": "; ".join(sorted({name for name, _, _ in gpus})),
            "gpus": len(gpus),
            "gpu_memory_bytes": max(memory_bytes for _, memory_bytes, _ in gpus),
            "driver": gpus[0][2],
        }
    elif torch is not None:
        properties = torch.cuda.get_device_properties(0)
        facts = {
            "gpu": properties.name,
            "gpus": torch.cuda.device_count(),
            "gpu_memory_bytes": properties.total_memory,
        }
    return facts if torch is None else {**facts, "cuda": torch.version.cuda or ""}


def _torch_with_cuda() -> Any | None:
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return torch if cuda is not None and cuda.is_available() else None


def hardware(device: str = "cpu") -> str:
    """What a timing on `device` depends on, the testbed: the GPU's name, or the processor and the cores that we may use."""
    one, processes = processes_of(device)
    kind, _, index = one.partition(":")
    if kind == "cuda":
        gpu = _gpu_name(int(index or 0))
        return gpu if processes == 1 else f"{processes} x {gpu}"
    cores = usable_cores()
    processor = f"{cpu_model()}, {cores} core{'s' if cores > 1 else ''}"
    if processes > 1:
        processor = f"{processor}, {processes} processes"
    return processor if kind == "cpu" else f"{processor}, {kind}"


def _gpu_name(index: int) -> str:
    names = {name for name, _, _ in _nvidia_smi()}
    # torch counts GPUs in another order than nvidia-smi, and to ask it claims memory there: only where names differ
    if len(names) == 1:
        return names.pop()
    torch = _torch_with_cuda()
    return "unknown GPU" if torch is None else str(torch.cuda.get_device_name(index))


def versions() -> dict[str, str]:
    """Versions of Python, the platform, and the distributions that can change a number; what is absent is left out."""
    found = {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
    }
    for name in _DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def source_state(root: Path | None = None) -> tuple[str, bool]:
    """The commit of the checkout that this package runs from, and whether its files differ from it.

    Empty and False for an installed copy, and where git is missing or refuses.
    """
    root = Path(__file__).resolve().parent.parent if root is None else root
    if not (root / ".git").exists():
        return "", False
    # a new file in variants/ changes what runs, so untracked ones count; a database beside the folders does not
    folders = [name for name in ("variants", "harness", "suites") if (root / name).is_dir()]
    commit = told_by("git", "-C", str(root), "rev-parse", "HEAD")
    changes = told_by("git", "-C", str(root), "status", "--porcelain", "--untracked-files=all", "--", *folders)
    return commit, bool(commit and changes)


def settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of `variables` that set threads, allocators or precision: they change numbers and times."""
    return {name: value for name, value in sorted(variables.items()) if _SETTINGS.fullmatch(name)}


def command_line(arguments: Sequence[str]) -> str:
    """The command as one would type it, without the folder of the program and without passwords."""
    program, *rest = arguments or [""]
    return without_password(shlex.join([Path(program).name, *rest]))


def without_password(text: str) -> str:
    """`text` with *** in place of passwords in database URLs and connection strings."""
    text = re.sub(r"(\w[\w+.-]*://[^\s:/@?'\"]*):[^\s'\"]*@", r"\1:***@", text)
    return re.sub(r"((?:password|passfile|passwd|pwd)=)[^\s&'\"]+", r"\1***", text, flags=re.IGNORECASE)


def lease_owner() -> str:
    """This process as `node:pid:start`. Its start makes it differ from a later process with the same number."""
    pid = os.getpid()
    return f"{_node()}:{pid}:{_process_start(pid)}"


def is_alive(owner: str) -> bool:
    """Whether the process `owner` may still run. One on another node, or one that we cannot read, may."""
    node, _, process = owner.partition(":")
    pid, _, start = process.partition(":")
    if node != _node() or not pid.isdigit():
        return True
    return _process_start(int(pid)) == start


@cache
def _node() -> str:
    # Containers can share a host name and see only their own processes, so boot and process namespace belong to it.
    parts = [platform.node()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text()[:8])
        parts.append(re.sub(r"\D", "", str(Path("/proc/self/ns/pid").readlink())))
    except OSError:
        pass
    return "/".join(parts).replace(":", "-")


def _process_start(pid: int) -> str:
    """When process `pid` started, in the kernel's own spelling; empty when it does not run (any more)."""
    if not Path("/proc/self/stat").exists():
        return told_by("ps", "-o", "lstart=", "-p", str(pid))
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    # the program's name, in brackets, may hold spaces and brackets itself
    state, *others = stat.rpartition(")")[2].split()
    return "" if state in "ZX" else others[18]


def told_by(*command: str) -> str:
    """What `command` prints, stripped; empty if it is missing or fails."""
    program = shutil.which(command[0])
    if program is None:
        return ""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    # GIT_OPTIONAL_LOCKS: asking for the status must not write to the repository
    variables |= {"LC_ALL": "C", "TZ": "UTC", "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
            env=variables,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
