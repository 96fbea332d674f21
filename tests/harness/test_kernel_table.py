"""Kernels compiled for GPUs that are not here: what the supported shapes need, and that what does not fit is seen."""

import io
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version

import pytest
import torch
from rich.console import Console

from attnbench.harness.errors import BadParameter, UserError
from attnbench.harness.kernel_table import (
    EXTREMES,
    NEVER_RUN,
    SHAPES,
    SHARED_BYTES,
    Resources,
    Shape,
    launches,
    line_of,
    print_resources,
    resources,
    show_kernels,
)
from attnbench.variants import Unsupported

pytest.importorskip("triton", reason="Triton is not installed")

from attnbench.variants.kernels.table import blocks_for

SMALL = Shape("sum", "elu1", "none", 16, 16, 16, "float32")
ROW = Resources(SMALL, "states", 90, registers=40, spilled_bytes=0, shared_bytes=SHARED_BYTES)


def test_kernels_of_the_shapes_that_need_most_fit_on_both_architectures() -> None:
    rows = list(resources(EXTREMES))
    assert [line_of(row) for row in rows if not row.fits] == []
    assert {row.architecture for row in rows} == {80, 90}
    assert all(0 < row.registers <= 255 for row in rows)


def test_what_needs_more_registers_than_there_are_is_seen() -> None:
    # a process of its own, since kernels here are the interpreter's
    program = (
        "import dataclasses, os\n"
        "os.environ.pop('TRITON_INTERPRET', None)\n"
        "from attnbench.harness import kernel_table\n"
        "from attnbench.variants.kernels import table\n"
        "fitting = table.blocks_for\n"
        "table.blocks_for = lambda *shape: dataclasses.replace(fitting(*shape), state_features=64, state_values=64, warps=1)\n"
        "shape = kernel_table.Shape('sum', 'elu1', 'none', 64, 64, 64, 'float32')\n"
        "print({(row.verdict, row.spilled_bytes > 0, row.fits) for row in kernel_table._on(shape)})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "('spills', True, False)" in done.stdout


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (ROW, "fits"),
        (replace(ROW, spilled_bytes=4), "spills"),
        (replace(ROW, shared_bytes=SHARED_BYTES + 1), "too much shared memory"),
    ],
)
def test_a_line_says_what_a_kernel_needs_and_whether_it_fits(row: Resources, says: str) -> None:
    assert row.fits == (says == "fits")
    words = " ".join(line_of(row).split())
    assert words == (
        f"sum elu1 K=16 D=16 V=16 float32 states sm_90 40 registers {row.spilled_bytes} B spilled "
        f"{row.shared_bytes} B shared {says}"
    )


@pytest.mark.parametrize(
    ("rows", "code", "says"),
    [
        ([ROW, ROW], 0, "all fit"),
        ([ROW, replace(ROW, spilled_bytes=4)], 1, "1 of them spill or need more than 101376 B"),
    ],
)
def test_the_table_ends_with_what_does_not_fit_and_what_has_never_run(
    rows: list[Resources], code: int, says: str
) -> None:
    console = Console(file=io.StringIO(), width=200)
    assert print_resources(rows, console) == code
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"2 kernels compiled by Triton {version('triton')}: {says}" in text
    assert text.endswith(f"{NEVER_RUN}\n")
    assert len(text.splitlines()) == len(rows) + 2


def test_shapes_are_supported_and_all_kernels_are_among_those_that_need_most() -> None:
    for shape in (*SHAPES, *EXTREMES):
        dtype = getattr(torch, shape.dtype)
        blocks_for(shape.feature_map, shape.key_width, shape.width, shape.value_width, dtype)
    assert {(shape.rule, shape.feature_map, shape.dtype) for shape in SHAPES} == {
        (rule, feature_map, dtype)
        for rule in ("sum", "delta")
        for feature_map in ("elu1", "dpfp", "favor")
        for dtype in ("float32", "bfloat16")
    }
    started = {kernel.fn.__name__ for shape in EXTREMES for kernel, _, _ in launches(shape)}
    assert started == {
        *("inverse_sizes", "states", "outputs", "gradient_of_values", "gradient_of_inputs"),
        *("mixing", "corrected_states", "gradient_of_corrections"),
    }


def test_a_shape_outside_the_table_is_not_compiled() -> None:
    with pytest.raises(Unsupported, match=r"variants/kernels/table\.py"):
        list(resources([replace(SMALL, key_width=129, width=129)], workers=1))


def test_without_triton_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"needs Triton, which is not installed: pip install 'attnbench\[cuda\]'\."):
        show_kernels(1, only_largest=True)


def test_a_number_of_workers_below_zero_is_refused() -> None:
    with pytest.raises(BadParameter, match=r"^--workers is a number from 0 up, got -1\. Use 0 for one a processor\.$"):
        show_kernels(-1, only_largest=True)
