"""Every Triton kernel compiled for GPUs that need not be here: registers, spills and shared memory, shape by shape.

What the rules would start in a forward and a backward pass is recorded on tensors without contents and compiled as it
stands; Triton brings the compiler, its assembler and the tool that reads what a kernel needs. Spilled bytes are those of
the stack that the assembler set aside for a thread.

    for row in resources(EXTREMES):
        print(row.shape, row.kernel, row.registers)
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch._subclasses.fake_tensor import FakeTensorMode

from attnbench.harness.environment import usable_cores
from attnbench.harness.errors import BadParameter, UserError

ARCHITECTURES = (80, 90)
# bytes of shared memory that one kernel can have on the smallest GPUs since sm_80; sm_80 itself has 163 KiB, sm_90 227 KiB
SHARED_BYTES = 99 << 10
# a length that 16 does not divide, which takes a few registers more than one that it does
TOKENS = 255
# what compiling cannot show
NEVER_RUN = (
    "Compiled, not run: none of these has ever run on a GPU. In Triton's interpreter float32 and float16 are run and held "
    "against the recurrent form; bfloat16, which it multiplies wrongly, is compiled only. On a GPU, "
    "reports/measured/gpu_check runs them."
)
# Triton's word for the element of a tensor
_TYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
# one launch: the kernel, its arguments, and what is fixed when it is compiled
Launch = tuple[Any, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Shape:
    """A rule on a feature map, with the normalisation of its features, at widths K, D and V; the sum rule divides by attention."""

    rule: str
    feature_map: str
    norm: str
    key_width: int
    width: int
    value_width: int
    dtype: str

    def __str__(self) -> str:
        widths = f"K={self.key_width} D={self.width} V={self.value_width}"
        return f"{self.rule} {self.feature_map} {widths} {self.dtype}"


@dataclass(frozen=True)
class Resources:
    """What a kernel needs on one architecture: registers and spilled bytes of a thread, bytes of shared memory of a block."""

    shape: Shape
    kernel: str
    architecture: int
    registers: int
    spilled_bytes: int
    shared_bytes: int

    @property
    def fits(self) -> bool:
        """Whether nothing is spilled and the shared memory is there."""
        return not self.spilled_bytes and self.shared_bytes <= SHARED_BYTES

    @property
    def verdict(self) -> str:
        """Whether it fits, or why not."""
        if self.spilled_bytes:
            return "spills"
        return "fits" if self.fits else "too much shared memory"


def _shapes() -> Iterator[Shape]:
    """Representatives of the table of shapes: each power of two, at the largest D of its map, and widths that are none."""
    for dtype in ("float32", "bfloat16"):
        for rule, norm in (("delta", "l2"), ("sum", "none")):
            for width in (16, 32, 64, 128):
                values = min(width, 64) if dtype == "float32" else width
                yield Shape(rule, "elu1", norm, width, width, values, dtype)
            for width in (16, 32, 64):
                yield Shape(rule, "dpfp", norm, width, min(512, 2 * width * (width - 1)), width, dtype)
                yield Shape(rule, "favor", norm, width, 512, width, dtype)
            yield Shape(rule, "elu1", norm, 24, 24, 20, dtype)
            yield Shape(rule, "elu1", norm, 100, 100, 60 if dtype == "float32" else 100, dtype)
            yield Shape(rule, "dpfp", norm, 20, 120, 24, dtype)
            yield Shape(rule, "dpfp", norm, 48, 480, 40, dtype)
            yield Shape(rule, "favor", norm, 40, 272, 48, dtype)


SHAPES = tuple(_shapes())
# those that need most, for a check that takes no longer than a few minutes
EXTREMES = (
    Shape("delta", "elu1", "l2", 128, 128, 64, "float32"),
    Shape("delta", "elu1", "l2", 128, 128, 128, "bfloat16"),
    Shape("delta", "favor", "l2", 64, 512, 64, "float32"),
    Shape("delta", "dpfp", "l2", 64, 512, 64, "bfloat16"),
    Shape("sum", "favor", "none", 64, 512, 64, "bfloat16"),
)


def resources(shapes: Sequence[Shape] = SHAPES, *, workers: int = 0) -> Iterator[Resources]:
    """What each kernel of these shapes needs on each architecture, shape by shape; compiled by so many processes at once.

    Raises a UserError where Triton is not installed, Unsupported for a shape that is not in the table.
    """
    try:
        import triton  # noqa: F401
    except ModuleNotFoundError as lack:
        raise UserError(
            "compiling kernels needs Triton, which is not installed: pip install 'attnbench[cuda]'."
        ) from lack
    # new processes, since a kernel that Triton's interpreter has taken in is never compiled
    with ProcessPoolExecutor(workers or usable_cores(), get_context("spawn"), _without_interpreter) as pool:
        for found in pool.map(_on, shapes):
            yield from found


def show_kernels(workers: int, *, only_largest: bool) -> int:
    """Compile the kernels of all SHAPES, or of EXTREMES, and print what they need; 1 if one does not fit, else 0.

    Raises a UserError for a mistake, and where Triton is not installed.
    """
    if workers < 0:
        raise BadParameter(f"--workers is a number from 0 up, got {workers}. Use 0 for one a processor.")
    return print_resources(resources(EXTREMES if only_largest else SHAPES, workers=workers), Console())


def print_resources(rows: Iterable[Resources], console: Console) -> int:
    """Print a line for each kernel as it is compiled, and what none of this shows; 1 if one does not fit, else 0."""
    number = misfits = 0
    for row in rows:
        number += 1
        misfits += not row.fits
        style = None if row.fits else "bold red"
        console.print(line_of(row), style=style, markup=False, highlight=False, soft_wrap=True)
    said = "all fit" if not misfits else f"{misfits} of them spill or need more than {SHARED_BYTES} B of shared memory"
    console.print(f"{number} kernels compiled by Triton {version('triton')}: {said}", highlight=False)
    console.print(NEVER_RUN, highlight=False, soft_wrap=True)
    return 1 if misfits else 0


def line_of(row: Resources) -> str:
    """One kernel on one architecture in words."""
    needs = f"{row.registers:>3} registers {row.spilled_bytes:>4} B spilled {row.shared_bytes:>6} B shared"
    return f"{row.shape!s:<37} {row.kernel:<27} sm_{row.architecture} {needs}  {row.verdict}"


def _without_interpreter() -> None:
    os.environ.pop("TRITON_INTERPRET", None)


def _on(shape: Shape) -> list[Resources]:
    """What the kernels of one shape need, each once an architecture."""
    found: dict[tuple[str, int], Resources] = {}
    for kernel, given, fixed in launches(shape):
        name = _name(kernel, fixed)
        for architecture in ARCHITECTURES:
            if (name, architecture) not in found:
                needed = _needed(compiled(kernel, given, fixed, architecture))
                found[name, architecture] = Resources(shape, name, architecture, *needed)
    return list(found.values())


def _name(kernel: Any, fixed: dict[str, Any]) -> str:
    """The kernel's own name, and which of its uses it is."""
    of = {True: " of keys", False: " of queries", None: ""}[fixed.get("IS_KEY")]
    return kernel.fn.__name__ + of.replace(" of", ":") + (", backwards" if fixed.get("REVERSE") else "")


def launches(shape: Shape) -> list[Launch]:
    """What the rules would start for a shape, forwards and backwards. Raises Unsupported for one outside their table."""
    from attnbench.variants.kernels import rules
    from attnbench.variants.kernels.table import blocks_for

    dtype = getattr(torch, shape.dtype)
    blocks = blocks_for(shape.feature_map, shape.key_width, shape.width, shape.value_width, dtype)
    kernel = rules.Kernel(shape.feature_map, shape.norm, shape.rule == "sum", shape.width, blocks)
    batch, heads = 2, 4
    told: list[Launch] = []

    def listen(*launch: Any) -> None:
        told.append(launch)

    rules.listeners.append(listen)
    try:
        with FakeTensorMode():
            q, k, v = (
                torch.empty(batch, TOKENS, heads, width, dtype=dtype, requires_grad=True)
                for width in (shape.key_width, shape.key_width, shape.value_width)
            )
            S = torch.empty(batch, heads, shape.value_width, shape.width, requires_grad=True)
            R = torch.empty(heads, shape.width // 2, shape.key_width) if shape.feature_map == "favor" else None
            results: tuple[torch.Tensor, ...]
            if shape.rule == "sum":
                z = torch.empty(batch, heads, shape.width, requires_grad=True)
                results = rules.sum_rule(q, k, v, S, z, R, kernel)
            else:
                beta = torch.empty(batch, TOKENS, heads, dtype=dtype, requires_grad=True)
                results = rules.delta_rule(q, k, v, beta, S, R, kernel)
            torch.autograd.backward([one.float().sum() for one in results])
    finally:
        rules.listeners.remove(listen)
    return told


def compiled(kernel: Any, given: Sequence[Any], fixed: dict[str, Any], architecture: int) -> Any:
    """The kernel as Triton compiles it for such arguments on a GPU of that architecture.

    As at a start on a GPU: tensors are aligned, numbers that 16 divides are known to be, and a 1 is a constant.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    options = {name: fixed[name] for name in ("num_warps", "num_stages")}
    constants = {name: value for name, value in fixed.items() if name not in options}
    signature: dict[str, str] = {}
    attributes: dict[tuple[int, ...], list[list[object]]] = {}
    for place, name in enumerate(kernel.arg_names):
        value = constants[name] if name in constants else given[place]
        if name in constants or (isinstance(value, int) and value == 1):
            constants[name], signature[name] = value, "constexpr"
            continue
        is_tensor = isinstance(value, torch.Tensor)
        signature[name] = "*" + _TYPES[value.dtype] if is_tensor else "fp32" if isinstance(value, float) else "i32"
        if is_tensor or (isinstance(value, int) and value % 16 == 0):
            attributes[(place,)] = [["tt.divisibility", 16]]
    placed = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, signature, placed, attributes)
    return triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)


def _needed(kernel: Any) -> tuple[int, int, int]:
    """Registers, spilled bytes and shared bytes of a compiled kernel."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        told = subprocess.run(
            [tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    numbers = {name: int(number) for name, number in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", told)}
    return numbers["REG"], max(numbers["STACK"], numbers["LOCAL"]), int(kernel.metadata.shared)
