"""Form `triton`: which compositions have it, what it refuses, and that Triton's interpreter finds what the recurrent form says."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from attnbench.harness import running
from attnbench.harness.checks import CHECKS, agreement, check
from attnbench.harness.checks.trial import Sizes, Trial
from attnbench.harness.peak import peak_bytes
from attnbench.harness.predicted import predicted_peak_bytes
from attnbench.variants import Unsupported, find
from attnbench.variants import triton as fused

pytest.importorskip("triton", reason="Triton is not installed")

SERVED = (
    "linear",
    "linear+noattnnorm",
    "linear+sumnorm",
    "linear+l2norm",
    "dpfp-nu3",
    "performer-m64",
    "performer-m64+fixeddraws",
    "fwp1991",
    "delta",
    "delta+nosumnorm",
    "delta+l2norm",
    "delta+fixedbeta",
    "dpfp-nu1+delta",
    "performer-m64+delta",
)
NOT_SERVED = ("softmax", "performer-m64+scaled", "performer-m64+scaled+delta", "delta+attnnorm", "gated", "fwm", "xl")


def tokens(key_width: int = 16, value_width: int = 16, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    q, k, v = (torch.ones(1, 3, 2, width, dtype=dtype) for width in (key_width, key_width, value_width))
    return {"q": q, "k": k, "v": v, "beta": torch.ones(1, 3, 2, dtype=dtype)}


@pytest.mark.parametrize("name", SERVED)
def test_what_the_kernels_compute_has_their_form_behind_all_others(name: str) -> None:
    assert list(find(name).forms)[-1] == "triton"


@pytest.mark.parametrize("name", NOT_SERVED)
def test_what_the_kernels_do_not_compute_has_no_form_of_theirs(name: str) -> None:
    assert "triton" not in find(name).forms


@pytest.mark.parametrize("name", ["linear", "dpfp-nu1+delta"])
@pytest.mark.parametrize("judged", ["equals_recurrent", "split_and_resume", "low_precision", "independence"])
def test_the_interpreter_finds_what_the_recurrent_form_says(
    name: str, judged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 33 tokens are one more than a chunk of float32
    monkeypatch.setattr(agreement, "LENGTHS", (1, 3, 33))
    CHECKS[judged].judge(Trial(find(name), "triton").at(Sizes(key_width=8, batch=2, heads=1)))


@pytest.mark.parametrize("judged", ["shapes", "state_size", "determinism", "inputs_untouched", "nan_poisoning"])
def test_the_interpreter_leaves_and_touches_what_it_should(judged: str) -> None:
    CHECKS[judged].judge(Trial(find("delta"), "triton").at(Sizes(key_width=8, batch=1, heads=2)))


@pytest.mark.parametrize("name", ["delta+fixedbeta", "performer-m8+delta", "fwp1991", "linear+l2norm"])
def test_strengths_of_one_draws_and_normalisations_are_those_of_the_recurrent_form(name: str) -> None:
    trial = Trial(find(name), "triton").at(Sizes(key_width=8, value_width=5, batch=1, heads=2))
    for memory in (None, trial.past()):
        agreement._difference_from_recurrent(trial, 5, memory)


def test_work_inside_a_kernel_is_not_counted_and_the_check_says_so() -> None:
    with pytest.raises(Unsupported, match=r"^linear/triton runs a kernel whose work torch does not count\.$"):
        CHECKS["cost_class"].judge(Trial(find("linear"), "triton"))


def test_without_the_interpreter_it_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET")
    delta = find("delta")
    assert {finding.detail for finding in check(delta, forms=["triton"])} == {
        "delta/triton needs cuda; this device is cpu."
    }
    with pytest.raises(Unsupported, match=r"^delta/triton needs cuda; this device is cpu\.$"):
        delta.apply("triton", **tokens())
    assert delta.forms["triton"].dtypes == ("float32", "bfloat16")


def test_the_interpreter_gets_no_bfloat16_which_it_multiplies_wrongly() -> None:
    with pytest.raises(Unsupported, match=r"^delta/triton takes float32, float16; these inputs are bfloat16\.$"):
        find("delta").apply("triton", **tokens(dtype=torch.bfloat16))


@pytest.mark.parametrize("widths", [(129, 16), (16, 129)])
def test_a_shape_that_is_not_in_the_table_is_unsupported(widths: tuple[int, int]) -> None:
    with pytest.raises(Unsupported, match=r"variants/kernels/table\.py"):
        find("delta").apply("triton", **tokens(*widths))


def in_a_new_process(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout


def test_finding_the_form_imports_no_triton() -> None:
    program = "import sys; from attnbench.variants import find; print('triton' in find('delta').forms, 'triton' in sys.modules)"
    assert in_a_new_process(program) == "True False\n"


def test_without_triton_it_says_what_to_install() -> None:
    program = (
        "import sys, torch; sys.modules['triton'] = None\n"
        "from attnbench.variants import Unsupported, find\n"
        "x = torch.ones(1, 1, 1, 16)\n"
        "try: find('linear').apply('triton', x, x, x)\n"
        "except Unsupported as lack: print(lack)"
    )
    assert in_a_new_process(program) == (
        "form 'triton' needs Triton, which is not installed: pip install 'attnbench[cuda]'.\n"
    )


def training(name: str, form: str) -> Callable[[], object]:
    """A training step over two chunks and a bit."""
    variant = find(name)
    inputs = {one: torch.ones(1, 70, 2, 16) for one in "qkv"} | {"beta": torch.ones(1, 70, 2)}
    leaves = [inputs[one].requires_grad_() for one in variant.inputs]
    direction = torch.ones(1, 70, 2, 16)

    def train() -> None:
        values, _ = variant.apply(form, **inputs)
        torch.autograd.grad(values, leaves, direction)

    return train


@pytest.mark.parametrize("name", ["linear", "delta"])
def test_its_peak_memory_is_predicted_without_starting_a_kernel(name: str) -> None:
    real = training(name, "triton")
    real()
    with FakeTensorMode():
        predicted = predicted_peak_bytes(training(name, "triton"))
    assert predicted == pytest.approx(peak_bytes(real, torch.device("cpu")), rel=0.02)


def test_its_peak_memory_is_predicted_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET")
    with FakeTensorMode():
        assert predicted_peak_bytes(training("delta", "triton"), "cuda") > 0


def test_the_code_of_a_case_takes_in_the_kernels_where_its_form_is_theirs_and_only_there() -> None:
    delta = find("delta")
    own = Path(fused.__file__)
    assert running._origins("triton", delta) == (*delta.origins, own)
    assert running._origins("chunkwise", delta) == delta.origins
    assert own not in delta.origins
