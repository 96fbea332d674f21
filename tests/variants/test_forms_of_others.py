"""Kernels of others as forms: what each says that it cannot do, and that those that run here compute what they should."""

import importlib
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from attnbench.harness.checks import check
from attnbench.harness.predicted import predicted_peak_bytes
from attnbench.variants import Unsupported, find

SDPA = ("sdpa-flash", "sdpa-efficient", "sdpa-cudnn", "sdpa-math")
FLA = ("fla-chunk", "fla-recurrent")


@pytest.fixture(autouse=True)
def on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of Triton as they are where no interpreter is asked for."""
    monkeypatch.delenv("TRITON_INTERPRET")


def inputs(key_width: int = 8, value_width: int = 8, tokens: int = 3, **how: object) -> dict[str, torch.Tensor]:
    shape = {"q": key_width, "k": key_width, "v": value_width}
    return {name: torch.ones(1, tokens, 2, width, **how) for name, width in shape.items()}  # type: ignore[call-overload]


def test_softmax_keeps_its_own_forms_first_and_has_those_of_others() -> None:
    forms = list(find("softmax").forms)
    assert forms[:4] == ["sdpa", "parallel", "recurrent", "step"]
    assert set(forms[4:]) == {*SDPA, "xformers"}
    assert not {*SDPA, "xformers"} & set(find("linear").forms)


@pytest.mark.parametrize("form", ["sdpa-flash", "sdpa-math"])
def test_torchs_kernels_for_the_cpu_pass_every_check(form: str) -> None:
    findings = list(check(find("softmax"), forms=[form]))
    assert [str(finding) for finding in findings if finding.state != "passed"] == []
    assert len(findings) == 11


@pytest.mark.parametrize("form", ["sdpa-efficient", "sdpa-cudnn", "xformers"])
def test_a_kernel_for_gpus_needs_one(form: str) -> None:
    with pytest.raises(Unsupported, match=rf"^softmax/{form} needs cuda; this device is cpu\.$"):
        find("softmax").apply(form, **inputs())


def test_torchs_own_reason_is_the_reason_why_its_kernel_is_not_taken() -> None:
    with pytest.raises(
        Unsupported,
        match=r"^torch's FLASH_ATTENTION kernel does not take these inputs: Flash attention requires q,k,v to have the same "
        r"last dimension\. Got Query\.size\(-1\): 8, Key\.size\(-1\): 8, Value\.size\(-1\): 6 instead\.$",
    ):
        find("softmax").apply("sdpa-flash", **inputs(value_width=6))


@pytest.mark.parametrize("form", ["sdpa-efficient", "sdpa-cudnn"])
def test_a_kernel_that_is_not_here_is_refused_by_torch_and_not_replaced(form: str) -> None:
    with pytest.raises(Unsupported, match=r"kernel does not take these inputs: No viable backend"):
        find("softmax").forms[form].call(**inputs())


def test_what_else_goes_wrong_in_a_kernel_is_no_lack_of_it() -> None:
    wrong = inputs() | {"q": torch.ones(1, 3, 5, 8)}
    with pytest.raises(RuntimeError, match="must match the size"):
        find("softmax").forms["sdpa-math"].call(**wrong)


def test_dtypes_of_flash_attention_are_halves_on_gpus_and_all_on_the_cpu() -> None:
    flash = find("softmax").forms["sdpa-flash"]
    assert flash.dtypes_on("cuda") == ("bfloat16", "float16")
    assert flash.dtypes_on("cpu") == ("float32", "float64", "bfloat16")


@pytest.mark.parametrize("form", SDPA)
def test_memory_of_torchs_kernels_is_predicted_without_a_gpu(form: str) -> None:
    variant = find("softmax")

    def peak(tokens: int) -> int:
        with FakeTensorMode():
            given = inputs(tokens=tokens, dtype=torch.bfloat16)
            return predicted_peak_bytes(lambda: variant.apply(form, **given), "cuda")

    # the scores of 512 tokens are 16 times those of 128, what is read is 4 times as much
    assert (peak(512) > 8 * peak(128)) == (form == "sdpa-math")


@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("linear", True),
        ("dpfp-nu2", True),
        ("performer-m16", True),
        ("delta", True),
        ("delta+l2norm", True),
        ("delta+fixedbeta", True),
        ("delta+attnnorm", False),
        ("performer-m16+scaled", False),
        ("performer-m16+scaled+delta", False),
        ("gated", False),
        ("softmax", False),
    ],
)
def test_fla_serves_the_sum_rule_and_the_delta_rule_without_a_moving_scale(name: str, has: bool) -> None:
    assert (set(FLA) <= set(find(name).forms)) == has


def test_only_the_recurrent_delta_rule_of_fla_runs_in_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    devices = {(name, form): find(name).forms[form].devices for name in ("linear", "delta") for form in FLA}
    assert {which for which, kinds in devices.items() if "cpu" in kinds} == {("delta", "fla-recurrent")}


@pytest.mark.parametrize(
    ("name", "form", "library", "says"),
    [
        ("softmax", "xformers", "xformers", r"pip install 'attnbench\[xformers\]'"),
        ("linear", "fla-chunk", "fla", r"pip install 'attnbench\[fla\]'"),
        ("delta", "fla-recurrent", "fla", r"pip install 'attnbench\[fla\]'"),
    ],
)
def test_a_library_that_is_not_installed_is_named_with_how_to_get_it(
    name: str, form: str, library: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for loaded in [one for one in sys.modules if one.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, library, None)  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match=rf"^form '{form}' needs .* \(no module '{library}.*'\): {says}\.$"):
        find(name).forms[form].call(**inputs())


@pytest.mark.parametrize("library", ["xformers", "fla"])
def test_finding_the_forms_imports_none_of_the_libraries(library: str) -> None:
    importlib.import_module(f"attnbench.variants.{library}")
    assert find("delta").forms
    assert library not in sys.modules
