"""The operation is used in its three ways, and what is recorded is what its samples and tensors say."""

import pytest

from attnbench.harness.errors import BadParameter, Unsupported
from attnbench.harness.lab import Lab
from attnbench.harness.spec import Case, Point
from attnbench.suites import find_suites, memory, speed
from attnbench.suites.tasks.operation import DECODED_TOKENS, PHASES, operation
from attnbench.variants import find


def lab_for(suite: str, name: str, form: str, phase: str, tokens: int = 12) -> Lab:
    point = Point(phase=phase, tokens=tokens, batch=2, heads=3, key_width=4)
    return Lab(Case(suite, name, form, point, 0, "smoke"), find(name))


@pytest.mark.parametrize(
    ("phase", "form", "tokens"),
    [("training", "chunkwise", 24), ("prefill", "parallel", 24), ("decoding", "step", 2 * DECODED_TOKENS)],
)
def test_the_value_is_tokens_over_the_median_time_and_the_samples_are_kept(phase: str, form: str, tokens: int) -> None:
    lab = lab_for("speed", "delta", form, phase)
    timed = speed.prepare(lab)
    timed.call()
    timed.record([0.5, 0.1, 0.2])
    (measured,) = lab.measurements
    assert measured.metric == speed.METRICS[phase]
    assert measured.value == pytest.approx(tokens / 0.2)
    assert measured.samples == pytest.approx((tokens / 0.5, tokens / 0.1, tokens / 0.2))


@pytest.mark.parametrize("name", ["softmax", "performer-m8+scaled", "fwm", "gated"])
def test_training_computes_gradients_for_every_input_that_takes_part(name: str) -> None:
    operation(lab_for("speed", name, "recurrent", "training")).call()


def test_a_form_that_takes_one_token_is_not_used_on_many() -> None:
    with pytest.raises(Unsupported, match="delta/step takes 1 token at a time"):
        operation(lab_for("speed", "delta", "step", "prefill")).call()


# floats of a head: softmax T (K + V) = 12 x 8, linear V K + K = 20, delta V K = 16; two sequences, three heads, four bytes
@pytest.mark.parametrize(("name", "floats"), [("softmax", 96), ("linear", 20), ("delta", 16)])
def test_the_state_of_decoding_is_counted_from_the_tensors_that_are_carried(name: str, floats: int) -> None:
    lab = lab_for("memory", name, "step", "decoding")
    memory.measure(lab)
    (measured,) = lab.measurements
    assert measured.metric == "decode_state_bytes"
    assert measured.value == floats * 2 * 3 * 4


def test_the_peak_of_the_quadratic_form_grows_with_the_square_of_the_text() -> None:
    def peak(form: str, tokens: int) -> float:
        lab = lab_for("memory", "linear", form, "training", tokens)
        memory.measure(lab)
        return lab.measurements[0].value

    assert peak("parallel", 512) / peak("parallel", 256) > 3
    assert peak("chunkwise", 512) / peak("chunkwise", 256) < 2.2


@pytest.mark.parametrize("suite", find_suites().values(), ids=lambda suite: suite.name)
def test_every_suite_is_complete(suite: object) -> None:
    declared = suite
    assert {"smoke", "quick"} <= set(declared.scales)  # type: ignore[attr-defined]
    for grid in declared.scales.values():  # type: ignore[attr-defined]
        for variant in grid.variants:
            find(variant)
            for point in grid.points_of(variant):
                assert declared.axis in point  # type: ignore[attr-defined]


def test_every_phase_has_a_metric_in_both_suites() -> None:
    assert set(speed.METRICS) == set(memory.METRICS) == set(PHASES)


def test_a_phase_that_there_is_not_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        BadParameter, match=r"no phase 'trainig'. Known: decoding, prefill, training. Did you mean 'training'?"
    ):
        speed.SUITE.check(Point(phase="trainig"))
