"""The check for a machine with a GPU, as far as a CPU can take it: all of its path, and what becomes of what fails on it."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from attnbench.harness import gpu_check
from attnbench.harness.gpu_check import FORMS, TINY, Line, Times, main
from attnbench.harness.gpu_check_table import markdown
from attnbench.variants import Variant, find, listed

SCRIPT = Path(__file__).parents[2] / "reports" / "measured" / "gpu_check"
TIMED = (TINY.tokens, TINY.heads, TINY.width)
Run = Callable[..., tuple[int, str, dict[str, dict[str, Any]]]]


@pytest.fixture
def checked(tmp_path: Path) -> Run:
    """What a check on the CPU says: its exit code, its text, and its lines by VARIANT/FORM."""

    def run(*arguments: str) -> tuple[int, str, dict[str, dict[str, Any]]]:
        code = main(["--device", "cpu", "--output", str(tmp_path / "told"), *arguments])
        told = json.loads((tmp_path / "told.json").read_text(encoding="utf-8"))
        lines = {f"{line['variant']}/{line['form']}": line for line in told["lines"]}
        return code, (tmp_path / "told.md").read_text(encoding="utf-8"), lines

    return run


def wrongly(change: Callable[[torch.Tensor], torch.Tensor]) -> Variant:
    """The linear variant with one form more, `odd`, that makes something else of the values."""
    linear = find("linear")
    right = linear.forms["chunkwise"]

    def odd(**inputs: Any) -> tuple[torch.Tensor, Any]:
        values, memory = right.call(**inputs)
        return change(values), memory

    return replace(linear, forms={**linear.forms, "odd": replace(right, call=odd)})


def with_odd(monkeypatch: pytest.MonkeyPatch, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    monkeypatch.setattr(gpu_check, "find", lambda name: wrongly(change))
    monkeypatch.setitem(FORMS, "linear", ("chunkwise", "odd"))


def test_every_form_is_checked_timed_and_predicted_as_it_would_be_on_a_gpu(checked: Run) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    code, text, lines = checked("-v", "linear")
    assert code == 0
    assert list(lines) == [f"linear/{form}" for form in FORMS["linear"]]
    for form in ("triton", "chunkwise"):
        line = lines[f"linear/{form}"]
        assert (line["checks"], line["reason"], line["dtype"]) == ("passed 2", "", "float32")
        assert line["difference"] < 1e-5
        for one in ("forward", "training"):
            for caches in ("warm", "cold"):
                assert line[caches][one]["median"] > 0
                assert line[caches][one]["samples"] == TINY.rounds
            assert line["peak"][one] == line["predicted"][one] > 0
            assert line["roofline"][one] > 0
    assert lines["linear/fla-chunk"]["reason"] == "linear/fla-chunk needs cuda; this device is cpu."
    assert "- linear/fla-chunk in float32: linear/fla-chunk needs cuda; this device is cpu." in text
    assert "\nNever run on a GPU: all of it. This was a CPU, whose times and peaks say nothing about one.\n" in text


def test_a_form_that_is_wrong_fails_and_gets_no_number(checked: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with_odd(monkeypatch, lambda values: values.double())
    code, text, lines = checked("-v", "linear")
    assert code == 1
    assert lines["linear/odd"]["checks"] == "failed 1 of 2"
    assert lines["linear/odd"]["reason"].startswith("shapes: ")
    assert lines["linear/odd"]["warm"] is None
    assert lines["linear/chunkwise"]["warm"] is not None
    assert "| linear/odd | float32 | failed 1 of 2 | - | - |" in text


@pytest.mark.parametrize("change", [lambda values: 1.01 * values, lambda values: values * math.nan])
def test_a_form_that_is_wrong_at_the_size_that_is_timed_only_fails_too(
    checked: Run, monkeypatch: pytest.MonkeyPatch, change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    with_odd(monkeypatch, lambda values: change(values) if values.shape[1:] == TIMED else values)
    code, text, lines = checked("-v", "linear")
    assert code == 1
    assert lines["linear/odd"]["checks"] == "failed"
    assert lines["linear/odd"]["warm"] is None
    assert "of the largest element; 0.0002 is allowed" in text


def test_a_form_that_breaks_down_costs_no_other_its_numbers(checked: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(values: torch.Tensor) -> torch.Tensor:
        if values.requires_grad and values.shape[1:] == TIMED:
            raise RuntimeError("no memory is left\nand much more")
        return values

    with_odd(monkeypatch, change)
    code, _, lines = checked("-v", "linear")
    assert code == 1
    assert lines["linear/odd"]["checks"] == "failed"
    assert lines["linear/odd"]["reason"] == "RuntimeError: no memory is left"
    assert lines["linear/odd"]["warm"] is None
    assert lines["linear/chunkwise"]["warm"] is not None


def test_a_device_that_breaks_down_costs_nothing_that_was_found_before(
    checked: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FORMS, "fwp1991", ("chunkwise",))
    monkeypatch.setitem(FORMS, "delta", ("chunkwise",))
    measured = gpu_check._measured

    def broken(variant: Variant, *rest: Any) -> Any:
        if variant.name == "delta":
            raise RuntimeError("an illegal memory access was encountered")
        return measured(variant, *rest)

    monkeypatch.setattr(gpu_check, "_measured", broken)
    code, _, lines = checked("-v", "fwp1991", "-v", "delta")
    assert code == 1
    assert lines["delta/chunkwise"]["checks"] == "failed"
    assert lines["fwp1991/chunkwise"]["warm"] is not None
    assert lines["delta/chunkwise"]["reason"] == "RuntimeError: an illegal memory access was encountered"


def test_a_kernel_whose_memory_cannot_be_told_has_its_times_and_the_reason(
    checked: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(values: torch.Tensor) -> torch.Tensor:
        # what tensors without contents do not have
        float(values.detach().sum())
        return values

    with_odd(monkeypatch, change)
    code, text, lines = checked("-v", "linear")
    assert code == 0
    assert lines["linear/odd"]["warm"] is not None
    assert lines["linear/odd"]["predicted"] is None
    assert lines["linear/odd"]["reason"].startswith("no prediction: ")
    assert "- linear/odd in float32: no prediction: " in text


def test_what_is_not_reached_in_time_is_named(checked: Run) -> None:
    code, text, lines = checked("-v", "fwp1991", "--seconds", "0")
    assert (code, lines) == (0, {})
    assert "\nNot reached in time: fwp1991/triton.\n" in text


def test_without_a_gpu_it_says_so_and_ends_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert "device 'cuda' is not here: torch sees no CUDA device. Use --device cpu." in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_told_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--device", "cpu", "--output", str(tmp_path / "gone" / "told")])
    assert ended.value.code == 2
    assert "to write into. Make it first, or name another." in capsys.readouterr().err


def script(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The script run by a Python in which `program` was carried out before."""
    run = f"import runpy, sys; {program}; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", run, str(SCRIPT), *arguments], capture_output=True, text=True, check=False
    )


def test_the_script_needs_torch_triton_and_jaxtyping_and_nothing_else(tmp_path: Path) -> None:
    lacking = (
        *("numpy", "scipy", "pandas", "matplotlib", "seaborn", "jinja2", "sqlalchemy", "alembic", "typer", "rich"),
        *("platformdirs", "sentencepiece", "mwparserfromhell", "pytest", "fla", "xformers", "beartype"),
    )
    done = script(
        f"sys.modules.update(dict.fromkeys({lacking!r}))",
        *("--device", "cpu", "-v", "softmax", "-o", str(tmp_path / "told")),
    )
    assert done.returncode == 0, done.stderr
    assert "| softmax/sdpa | float32 | passed 2 |" in done.stdout
    assert (tmp_path / "told.md").read_text(encoding="utf-8") + "\n" == done.stdout


def test_the_script_says_what_it_lacks() -> None:
    done = script("sys.modules['torch'] = None")
    assert done.returncode == 2
    assert done.stderr == "gpu_check: needs torch, Triton and jaxtyping; there is no module 'torch'.\n"


def test_every_form_that_is_for_gpus_alone_is_held_against_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET")

    def for_gpus(variant: Variant) -> set[str]:
        return {name for name, form in variant.forms.items() if form.devices == ("cuda",)}

    assert set().union(*(for_gpus(find(name)) for name in listed())) == set().union(
        *(for_gpus(find(name)) & set(forms) for name, forms in FORMS.items())
    )
    for name, forms in FORMS.items():
        assert set(forms) <= set(find(name).forms), name


def test_spread_is_half_the_distance_between_the_quartiles() -> None:
    # quartiles of 1 to 5 are 2, 3 and 4
    assert gpu_check._times([5.0, 1.0, 4.0, 2.0, 3.0]) == Times(median=3.0, spread=1.0, samples=5)


def test_a_difference_is_the_largest_as_a_part_of_the_largest_element() -> None:
    one, other = torch.tensor([1.0, 4.0]), torch.tensor([2.0, 4.0])
    assert gpu_check._difference([one, other], [other, other]) == 0.25
    assert math.isnan(gpu_check._difference([other, one * math.nan], [other, other]))


FACTS = {
    "started_at": "2026-01-01T00:00:00+00:00",
    "device": "a GPU",
    "is_gpu": True,
    "versions": {"torch": "2.11.0", "triton": "3.6.0"},
    "commit": "0123456789abcdef",
    "size": {"batch": 2, "tokens": 4096, "heads": 16, "width": 64, "rounds": 15},
    "ceilings": {"bytes_per_second": 4e12, "flops_per_second": {"float32": 5e13, "bfloat16": 8e14}},
    "clocks_before": "clocks.sm\n1980 MHz",
    "clocks_after": "",
    "left_out": [],
}
MEASURED = Line(
    "delta",
    "triton",
    "bfloat16",
    "passed 6",
    difference=0.0123,
    warm={"forward": Times(0.001, 0.00001, 15), "training": Times(0.004, 0.0005, 15)},
    cold={"forward": Times(0.002, 0.0001, 15), "training": Times(0.005, 0.0001, 15)},
    peak={"forward": 2**20, "training": 10 * 2**20},
    predicted={"forward": 2**20, "training": 9 * 2**20},
    roofline={"forward": 0.5, "training": 0.25},
)


def test_the_table_shows_milliseconds_mebibytes_errors_and_shares_and_points_out_a_wide_spread() -> None:
    text = markdown(FACTS, [MEASURED])
    assert (
        "| delta/triton | bfloat16 | passed 6 | 1.2e-02 | 1 +- 0.01 | 2 +- 0.1 | 4 +- 0.5 (wide) | 5 +- 0.1 | 10 | 9 | "
        "-10.0% | 50.0% | 25.0% |\n"
    ) in text
    assert "a GPU, 2026-01-01T00:00:00+00:00. torch 2.11.0, triton 3.6.0. Commit 0123456789ab." in text
    assert "4000 GB/s copied, 50 TFLOP/s float32, 800 TFLOP/s bfloat16." in text
    assert "    1980 MHz\n" in text
    assert "\nWithout a run on this GPU: nothing.\n" in text


def test_the_table_names_in_one_line_what_did_not_run_on_the_gpu() -> None:
    skipped = Line("softmax", "xformers", "float32", "skipped", "it is not installed.")
    text = markdown(FACTS | {"left_out": ["fwp1991/triton"]}, [MEASURED, skipped])
    assert "\nWithout a run on this GPU: softmax/xformers in float32, fwp1991/triton.\n" in text
    assert "\n- softmax/xformers in float32: it is not installed.\n" in text
    assert "\nNot reached in time: fwp1991/triton.\n" in text


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_all_forms_for_gpus_are_right_on_one(tmp_path: Path) -> None:
    run = [sys.executable, str(SCRIPT), "--tiny", "--output", str(tmp_path / "told")]
    done = subprocess.run(run, capture_output=True, text=True, check=False, env=os.environ | {"TRITON_INTERPRET": "0"})
    assert done.returncode == 0, done.stdout + done.stderr
