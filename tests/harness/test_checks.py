from dataclasses import replace
from pathlib import Path

import pytest
import torch

from attnbench.harness.checks import CHECKS, LONGEST_DETAIL, QUICK, TOLERANCES, Finding, check, correct, count
from attnbench.harness.checks.agreement import shapes
from attnbench.harness.checks.claims import keep
from attnbench.harness.checks.trial import Sizes, Trial, Wrong, agree
from attnbench.variants import Form, Unsupported, Variant, find, listed

WRONG_VARIANTS = Path(__file__).with_name("wrong_variants.py")
WRONG_LAYERS = Path(__file__).with_name("wrong_layers.py")


def wrong(name: str) -> Variant:
    """One of the variants that are wrong on purpose, by its address."""
    return find(f"{WRONG_VARIANTS}:{name}")


def wrong_layer(name: str) -> Variant:
    """One of the whole layers that are wrong on purpose, by its address."""
    return find(f"{WRONG_LAYERS}:{name}")


def failures(variant: Variant, form: str) -> dict[str, str]:
    """Failed checks of one form, with what they say."""
    return {finding.check: finding.detail for finding in check(variant, forms=[form]) if finding.state == "failed"}


@pytest.mark.parametrize("name", listed())
def test_every_listed_variant_passes_every_check(name, monkeypatch):
    # kernels are judged in Triton's interpreter, at smaller sizes, by tests of their own
    monkeypatch.delenv("TRITON_INTERPRET")
    findings = list(check(find(name)))
    for_a_gpu = {form for form, declared in find(name).forms.items() if "cpu" not in declared.devices}
    assert {finding.detail for finding in findings if finding.form in for_a_gpu} == {
        f"{name}/{form} needs cuda; this device is cpu." for form in for_a_gpu
    }
    here = [finding for finding in findings if finding.form not in for_a_gpu]
    assert [str(finding) for finding in here if finding.state != "passed"] == []
    assert {finding.form for finding in findings} >= set(find(name).forms)


def test_the_right_variant_behind_the_wrong_ones_passes_every_check():
    assert [str(finding) for finding in check(wrong("right")) if finding.state != "passed"] == []


@pytest.mark.parametrize(
    ("name", "form", "caught_by"),
    [
        ("leaks_the_future", "parallel", {"causality", "equals_recurrent", "split_and_resume", "low_precision"}),
        ("leaks_the_future_everywhere", "recurrent", {"causality", "split_and_resume", "low_precision"}),
        ("leaks_the_future_everywhere", "parallel", {"causality", "split_and_resume", "low_precision"}),
        ("drops_memory", "parallel", {"equals_recurrent", "split_and_resume", "low_precision"}),
        ("drops_memory_everywhere", "recurrent", {"split_and_resume", "low_precision"}),
        ("drops_memory_everywhere", "step", {"step_equals_full", "low_precision"}),
        ("lies_about_its_state", "recurrent", {"state_size"}),
        ("wrong_gradient", "parallel", {"equals_recurrent"}),
        ("wrong_gradient_everywhere", "recurrent", {"gradient"}),
        ("wrong_gradient_everywhere", "parallel", set()),
        ("cuts_gradient_of_memory", "parallel", {"equals_recurrent"}),
        ("lies_about_its_cost", "parallel", {"cost_class"}),
        ("claims_more_cost", "recurrent", {"cost_class"}),
        ("has_a_quadratic_backward", "recurrent", {"cost_class"}),
        ("leaks_across_the_batch", "recurrent", {"independence"}),
        ("leaks_across_heads", "recurrent", {"independence"}),
        ("keeps_its_state_in_bfloat16", "parallel", {"low_precision"}),
        ("gives_another_dtype", "parallel", {"shapes", "equals_recurrent"}),
        ("reads_uninitialised_memory", "recurrent", {"nan_poisoning"}),
        ("is_not_deterministic", "parallel", {"determinism"}),
        (
            "writes_into_its_memory",
            "parallel",
            {"inputs_untouched", "determinism", "equals_recurrent", "nan_poisoning"},
        ),
        ("steps_differently", "step", {"step_equals_full", "low_precision"}),
    ],
)
def test_a_variant_that_is_wrong_on_purpose_is_caught(name, form, caught_by):
    assert set(failures(wrong(name), form)) == caught_by


@pytest.mark.parametrize(
    ("name", "form", "caught_by", "says"),
    [
        ("leaks_the_future", "parallel", "causality", "tokens changed from t=1 on: an earlier value differs by"),
        ("drops_memory", "parallel", "split_and_resume", "cut at 1 of 100: values differs by"),
        ("lies_about_its_state", "step", "state_size", "K=8, V=6, T=5: 24 floats a head are declared, 48 are kept"),
        ("wrong_gradient", "parallel", "equals_recurrent", "T=1: gradient of k differs by"),
        ("wrong_gradient_everywhere", "recurrent", "gradient", "Jacobian"),
        ("cuts_gradient_of_memory", "parallel", "equals_recurrent", "T=1 with a memory: gradient of memory S differs"),
        ("lies_about_its_cost", "parallel", "cost_class", "declared linear, but the work grows as T^1.9"),
        ("claims_more_cost", "recurrent", "cost_class", "declared quadratic, but the work grows as T^1.0"),
        ("leaks_across_the_batch", "recurrent", "independence", "batch entry 1 changed, entry 0 read: values differs"),
        ("leaks_across_heads", "recurrent", "independence", "head 1 changed, head 0 read: values differs"),
        ("keeps_its_state_in_bfloat16", "parallel", "low_precision", "memory S is kept in bfloat16, not in float32"),
        ("gives_another_dtype", "parallel", "shapes", "in float64: values are float32 [2, 1, 2, 6], expected float64"),
        ("gives_nan", "parallel", "shapes", "T=70 in float32: values is not finite"),
        ("gives_nan", "parallel", "equals_recurrent", "T=1: gradient of q is not finite"),
        ("reads_uninitialised_memory", "recurrent", "nan_poisoning", "filled with NaN: values is not finite"),
        ("is_not_deterministic", "parallel", "determinism", "two runs: values differs by"),
        ("writes_into_its_memory", "parallel", "inputs_untouched", "memory S is changed in place"),
        ("raises", "parallel", "causality", "ValueError: the kernel fell over"),
    ],
)
def test_a_failed_check_says_what_is_wrong_and_where(name, form, caught_by, says):
    assert says in failures(wrong(name), form)[caught_by]


def test_the_right_layer_behind_the_wrong_ones_passes_every_check():
    findings = list(check(wrong_layer("right")))
    assert [str(finding) for finding in findings if finding.state != "passed"] == []
    # all but those of what a layer does not have
    assert {finding.check for finding in findings} == set(CHECKS) - {"readout", "written_then_read", "draws"}


@pytest.mark.parametrize(
    ("name", "form", "caught_by"),
    [
        ("sees_the_future", "parallel", {"causality", "equals_recurrent", "split_and_resume", "low_precision"}),
        ("sees_one_token_too_many", "parallel", {"causality", "equals_recurrent", "split_and_resume", "low_precision"}),
        ("sees_one_token_too_few", "parallel", {"equals_recurrent", "low_precision"}),
        ("drops_its_memory", "parallel", {"equals_recurrent", "split_and_resume", "low_precision"}),
        ("drops_its_memory_everywhere", "recurrent", {"split_and_resume", "low_precision"}),
        ("hands_its_memory_on_unread", "parallel", {"equals_recurrent", "split_and_resume", "low_precision"}),
        ("learns_nothing", "parallel", {"equals_recurrent"}),
        ("learns_half_everywhere", "recurrent", {"gradient"}),
        ("learns_half_everywhere", "parallel", set()),
        ("leaks_across_the_batch", "parallel", {"equals_recurrent", "independence", "low_precision"}),
        ("gives_another_width", "parallel", {"shapes", "equals_recurrent", "low_precision"}),
        ("lies_about_its_state", "step", {"state_size"}),
    ],
)
def test_a_layer_that_is_wrong_on_purpose_is_caught(name, form, caught_by):
    assert set(failures(wrong_layer(name), form)) == caught_by


@pytest.mark.parametrize(
    ("name", "form", "caught_by", "says"),
    [
        ("sees_one_token_too_many", "parallel", "causality", "tokens changed from t=1 on: an earlier value differs by"),
        ("drops_its_memory", "parallel", "equals_recurrent", "T=1 with a memory: values differs by"),
        ("learns_nothing", "parallel", "equals_recurrent", "T=1: gradient of parameter W differs by"),
        ("gives_another_width", "parallel", "shapes", "values are float32 [2, 1, 15], expected float32 [2, 1, 16]"),
        ("changes_its_parameters", "parallel", "inputs_untouched", "parameter W is changed in place"),
        # a head keeps K floats of each hidden state
        ("lies_about_its_state", "parallel", "state_size", "K=8, V=6, T=5: 20 floats a head are declared, 40 are kept"),
    ],
)
def test_a_failed_check_of_a_layer_says_what_is_wrong_and_where(name, form, caught_by, says):
    assert says in failures(wrong_layer(name), form)[caught_by]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("keeps_the_first_tokens", "1 of 9 tokens kept: x differs by"),
        ("keeps_everything_for_nothing", "no tokens kept: the memory is not empty"),
    ],
)
def test_a_memory_that_is_cut_wrongly_is_caught(name, says):
    with pytest.raises(Wrong) as caught:
        keep(Trial(wrong_layer(name), "recurrent"))
    assert str(caught.value).startswith(says)


def test_a_memory_that_nothing_cuts_is_not_checked_for_it():
    assert not CHECKS["keep"].applies(Trial(find("delta"), "recurrent"))
    with pytest.raises(Unsupported, match="delta cuts no memory"):
        keep(Trial(find("delta"), "recurrent"))


def test_all_forms_of_a_layer_are_tried_with_the_same_parameters_in_their_own_dtype():
    trial = Trial(find("xl"), "parallel")
    mine, oracles = trial.parameters(torch.float32), trial.oracle.parameters(torch.float64)
    assert set(mine) == {"u", "w", "into", "out", "from_distance"}
    for name, parameter in mine.items():
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter.double(), oracles[name])


def test_a_trial_of_other_sizes_takes_its_oracle_along():
    trial = Trial(find("xl"), "parallel").at(Sizes(key_width=4, batch=1, heads=3))
    # width = H K = 3 x 4
    assert trial.tokens(7)["x"].shape == trial.oracle.tokens(7)["x"].shape == (1, 7, 12)
    assert trial.past()["x"].shape == (1, 5, 12)


def test_a_memory_that_is_no_mapping_is_wrong(monkeypatch):
    trial = Trial(wrong("gives_no_mapping"), "parallel")
    call = trial.declared.call
    # past `Variant.apply`, whose annotations the tests enforce and an installed copy does not
    monkeypatch.setattr(Trial, "run", lambda self, tokens: call(tokens["q"], tokens["k"], tokens["v"]))
    with pytest.raises(Wrong, match=r"T=1 in float32: the memory must map names to tensors, got \(tensor\("):
        shapes(trial)


def test_what_an_exception_says_is_cut_to_a_readable_length():
    def complains(key_width):
        raise ValueError("word " * 1000)

    (found,) = {finding.detail for finding in check(replace(wrong("right"), check=complains), forms=["step"])}
    assert len(found) <= LONGEST_DETAIL
    assert found.startswith("ValueError: word word")
    assert found.endswith(" ...")


def test_a_readout_that_differs_from_the_recurrent_form_is_caught():
    # N=1 first; every weight is 1.01 times too large, and so is what is read
    (found,) = [finding for finding in check(wrong("reads_out_differently")) if finding.check == "readout"]
    assert (found.state, found.form, found.subject) == ("failed", "", "otherreadout")
    assert found.detail.startswith("N=1: values differs by")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("draws_by_itself", "the same generator gives two different draws"),
        ("draws_without_heads", "a draw for 3 heads has the shape [8], expected [H,...]"),
    ],
)
def test_draws_that_the_generator_does_not_determine_are_caught(name, says):
    (found,) = [finding for finding in check(wrong(name)) if finding.check == "draws"]
    assert (found.state, found.detail) == ("failed", says)


def test_only_the_checks_that_are_asked_for_are_made():
    findings = list(check(wrong("right"), forms=["parallel"], names=("shapes", "causality")))
    assert [finding.check for finding in findings] == ["shapes", "causality"]


def test_a_form_that_raises_fails_its_own_checks_and_no_other_forms():
    findings = list(check(wrong("raises")))
    assert {finding.state for finding in findings if finding.form == "parallel"} == {"failed"}
    assert {finding.state for finding in findings if finding.form != "parallel"} == {"passed"}


def test_a_form_that_is_not_for_here_is_skipped_with_its_own_words():
    findings = list(check(wrong("is_not_for_here"), forms=["parallel"]))
    assert {(finding.state, finding.detail) for finding in findings} == {
        ("skipped", "refuses/parallel needs a better machine.")
    }


def test_a_form_that_the_variant_lacks_is_skipped_once():
    assert [str(finding) for finding in check(wrong("right"), forms=["triton"])] == [
        "right/triton shapes skipped: right has no form 'triton'; it has recurrent, parallel, step."
    ]


def test_a_form_for_another_device_is_skipped():
    right = wrong("right")
    on_gpu = replace(right, forms={**right.forms, "kernel": Form(right.forms["parallel"].call, devices=("cuda",))})
    findings = list(check(on_gpu, forms=["kernel"]))
    assert {(finding.state, finding.detail) for finding in findings} == {
        ("skipped", "right/kernel needs cuda; this device is cpu."),
    }


def test_a_declared_deviation_is_shown_with_its_reason_and_is_no_failure():
    findings = list(check(wrong("declares_a_deviation"), forms=["recurrent", "parallel"]))
    assert "declared/parallel causality declared: reads both ways on purpose" in map(str, findings)
    assert [finding.form for finding in findings if finding.check == "causality"] == ["recurrent", "parallel"]
    assert not any(finding.state == "failed" and finding.check == "causality" for finding in findings)


def test_a_variant_without_float64_is_compared_in_its_own_dtype_and_skips_what_needs_more():
    findings = {(finding.form, finding.check): finding for finding in check(wrong("only_single_precision"))}
    assert findings["parallel", "equals_recurrent"].state == "passed"
    assert str(findings["recurrent", "gradient"]) == (
        "single/recurrent gradient skipped: finite differences need float64, which this form does not declare."
    )
    assert str(findings["step", "low_precision"]) == (
        "single/step low_precision skipped: single/step declares no dtype of half precision."
    )
    assert count(findings.values()) == {"passed": 28, "failed": 0, "declared": 0, "skipped": 4}


def test_a_cache_of_the_inputs_may_be_kept_in_half_precision():
    # softmax keeps k and v as they came; a state computed from them would have to be float32
    (found,) = [finding for finding in check(find("softmax"), forms=["sdpa"]) if finding.check == "low_precision"]
    assert found.state == "passed"
    _, memory = find("softmax").apply("sdpa", *(torch.ones(1, 1, 1, 2, dtype=torch.bfloat16) for _ in "qkv"))
    assert memory["k"].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("name", "form", "reason"),
    [
        ("right", "parallel", ""),
        ("right", "step", ""),
        ("leaks_the_future", "parallel", "equals_recurrent: T=3: values differs by"),
        ("leaks_the_future_everywhere", "recurrent", "causality: tokens changed from t=1 on"),
        ("drops_memory_everywhere", "recurrent", "split_and_resume: cut at 1 of 100"),
        ("gives_nan", "parallel", "shapes: T=70 in float32: values is not finite"),
        ("steps_differently", "step", "step_equals_full: T=1 with a memory"),
        ("raises", "parallel", "shapes: ValueError: the kernel fell over"),
    ],
)
def test_correct_gives_the_first_failure_or_nothing(name, form, reason):
    found = correct(wrong(name), form)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


@pytest.mark.parametrize(
    ("name", "form", "reason"),
    [
        ("right", "parallel", ""),
        ("right", "step", ""),
        ("drops_its_memory", "parallel", "equals_recurrent: T=1 with a memory: values differs by"),
        ("learns_half_everywhere", "recurrent", "gradient: "),
    ],
)
def test_correct_judges_layers_too(name, form, reason):
    found = correct(wrong_layer(name), form)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


def test_correct_judges_a_form_once_in_a_process():
    calls = []

    def counted(q, k, v, memory=None):
        calls.append(v.shape[1])
        return wrong("right").forms["parallel"].call(q, k, v, memory)

    variant = replace(wrong("right"), name="counted", forms={**wrong("right").forms, "counted": Form(counted)})
    assert correct(variant, "counted") == ""
    judged = len(calls)
    assert judged > 0
    assert correct(variant, "counted") == ""
    assert len(calls) == judged


def test_correct_refuses_a_form_that_the_variant_lacks():
    with pytest.raises(Unsupported, match="softmax has no form 'triton'; it has sdpa, parallel, recurrent, step"):
        correct(find("softmax"), "triton")


def test_every_check_says_in_a_line_what_it_shows():
    assert set(QUICK) <= set(CHECKS)
    assert all(one.shows and "\n" not in one.shows for one in CHECKS.values())


def test_a_finding_prints_as_one_line():
    assert str(Finding("delta", "chunkwise", "causality", "passed", "fine")) == "delta/chunkwise causality passed: fine"
    assert str(Finding("delta", "", "readout", "failed", "off")) == "delta readout failed: off"


def test_the_checks_leave_the_settings_of_torch_as_they_were():
    before = (torch.get_deterministic_debug_mode(), torch.utils.deterministic.fill_uninitialized_memory)
    failures(wrong("raises"), "parallel")
    assert (torch.get_deterministic_debug_mode(), torch.utils.deterministic.fill_uninitialized_memory) == before


def test_the_inputs_of_a_trial_are_the_same_for_every_variant_and_form():
    one, other = Trial(find("delta"), "chunkwise"), Trial(find("softmax"), "sdpa")
    for name, tensor in one.tokens(7).items():
        assert torch.equal(tensor, other.tokens(7)[name])


def test_a_trial_takes_the_smallest_even_key_width_that_the_variant_is_defined_for():
    assert Trial(find("linear"), "recurrent").sizes == Sizes(key_width=8)
    # nu may go up to K - 1
    assert Trial(find("dpfp-nu12"), "recurrent").sizes.key_width == 14


def test_agreement_is_relative_to_the_largest_magnitude():
    tolerance = TOLERANCES[torch.float64]
    expected = torch.tensor([1e6, 1.0], dtype=torch.float64)
    # 1e-9 of a million is 1e-3
    assert agree({"x": expected + 0.9e-3}, {"x": expected}, tolerance, "here") == pytest.approx(0.9e-9)
    with pytest.raises(Wrong, match=r"here: x differs by 0\.0011 at \[0\], where 0\.001 is allowed"):
        agree({"x": expected + torch.tensor([1.1e-3, 0])}, {"x": expected}, tolerance, "here")


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({"x": torch.zeros(2)}, r"here: x has the shape \[2\], expected \[3\]"),
        ({"y": torch.zeros(3)}, "here: has y; expected x"),
        ({"x": torch.tensor([0.0, torch.nan, 0.0])}, "here: x is not finite"),
    ],
)
def test_outcomes_that_cannot_be_compared_are_wrong(found, says):
    with pytest.raises(Wrong, match=says):
        agree(found, {"x": torch.zeros(3)}, TOLERANCES[torch.float64], "here")
