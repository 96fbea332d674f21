"""The operation is used in its three ways, and what is recorded is what its samples and tensors say."""

from dataclasses import replace
from typing import Any

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from attnbench.harness.ceilings import Ceilings
from attnbench.harness.clock import Timed
from attnbench.harness.devices import Room
from attnbench.harness.errors import BadParameter, Unsupported
from attnbench.harness.lab import Lab
from attnbench.harness.spec import Case, Point, Setting
from attnbench.suites import find_suites, memory, speed
from attnbench.suites.tasks.language import points as language
from attnbench.suites.tasks.language.steps import MODEL, model_point
from attnbench.suites.tasks.operation import DECODED_TOKENS, PHASES, operation
from attnbench.variants import find
from attnbench.variants.contract import Variant


def lab_for(suite: str, name: str, form: str, phase: str, tokens: int = 12, cache: str = "as_left") -> Lab:
    point = Point(phase=phase, tokens=tokens, batch=2, heads=3, key_width=4, cache=cache)
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
    rate, fraction = lab.measurements
    assert rate.metric == speed.METRICS[phase]
    assert rate.value == pytest.approx(tokens / 0.2)
    assert rate.samples == pytest.approx((tokens / 0.5, tokens / 0.1, tokens / 0.2))
    assert fraction.metric == speed.FRACTION
    assert fraction.samples == pytest.approx((fraction.value * 0.4, fraction.value * 2, fraction.value))


# q, k and v of 2 x 24 x 3 x 4 floats, beta of 2 x 24 x 3: in training read twice, with the gradient of as many as v has
ALL, BETA = 4 * 2 * 24 * 3 * 4, 4 * 2 * 24 * 3


@pytest.mark.parametrize(
    ("name", "form", "phase", "count"),
    [
        ("linear", "chunkwise", "prefill", 4 * ALL),
        ("linear", "chunkwise", "training", 11 * ALL),
        ("delta", "chunkwise", "prefill", 4 * ALL + BETA),
        ("delta", "chunkwise", "training", 11 * ALL + 3 * BETA),
        # a token's inputs and result, and the memory of 2 x 3 heads: 16 floats read and written, or 24 x 8 floats read
        ("delta", "step", "decoding", DECODED_TOKENS * ((4 * ALL + BETA) // 24 + 2 * 4 * 2 * 3 * 16)),
        ("softmax", "step", "decoding", DECODED_TOKENS * (4 * ALL // 24 + 4 * 2 * 3 * 24 * 8)),
    ],
)
def test_the_bytes_that_must_move_are_those_of_inputs_results_gradients_and_memory(
    name: str, form: str, phase: str, count: int
) -> None:
    assert operation(lab_for("speed", name, form, phase, 24)).moved_bytes == count


def test_the_roofline_is_the_longer_of_arithmetic_and_moving(monkeypatch: pytest.MonkeyPatch) -> None:
    def fraction(flops: float, moved: float) -> float:
        most = Ceilings(moved, {"float32": flops})
        monkeypatch.setattr(speed, "ceilings", lambda device: most)
        lab = lab_for("speed", "linear", "parallel", "prefill", 64)
        speed.prepare(lab).record([2.0])
        assert lab.facts["ceiling_bytes_per_second"] == f"{moved:.4g}"
        return lab.measurements[1].value

    # scores, weighted values and sums of six heads: 2 x 64 x 64 x (4 + 4) a head at least, and 4 inputs and results
    assert fraction(1e6, 1e30) >= 6 * 2 * 64 * 64 * 8 / 1e6 / 2
    assert fraction(1e30, 1e6) == pytest.approx(4 * 4 * 2 * 64 * 3 * 4 / 1e6 / 2)


def test_where_torch_does_not_see_the_work_that_of_a_form_stands_in_which_it_sees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(speed, "ceilings", lambda device: Ceilings(1e30, {"float32": 1e9}))

    def fraction(variant: Variant) -> float:
        lab = replace(lab_for("speed", "linear", "parallel", "prefill", 64), variant=variant)
        speed.prepare(lab).record([1.0])
        return lab.measurements[1].value

    linear = find("linear")
    chunkwise, parallel, recurrent = (linear.forms[name] for name in ("chunkwise", "parallel", "recurrent"))
    in_chunks = fraction(replace(linear, forms={"parallel": chunkwise, "recurrent": recurrent}))
    unseen = {"chunkwise": chunkwise, "parallel": replace(parallel, counts_work=False), "recurrent": recurrent}
    assert fraction(replace(linear, forms=unseen)) == in_chunks
    assert fraction(linear) != in_chunks


def test_what_goes_token_by_token_is_timed_and_has_no_roofline() -> None:
    lab = lab_for("speed", "delta", "recurrent", "training")
    speed.prepare(lab).record([1.0])
    assert [one.metric for one in lab.measurements] == [speed.METRICS["training"]]


def test_clocks_are_kept_from_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter([2600.4, None])
    monkeypatch.setattr(speed, "clock_mhz", lambda device: next(told))
    lab = lab_for("speed", "delta", "recurrent", "training")
    speed.prepare(lab).record([1.0])
    assert lab.facts == {"clock_mhz_before": "2600", "clock_mhz_after": "not told"}


def test_caches_are_left_alone_or_made_warm_or_cold_before_each_call() -> None:
    def before(cache: str) -> tuple[Timed, list[str]]:
        timed = speed.prepare(lab_for("speed", "linear", "chunkwise", "prefill", cache=cache))
        with Dispatched() as seen:
            if timed.before is not None:
                timed.before()
        return timed, seen.names

    timed, names = before("as_left")
    assert timed.before is None
    assert names == []
    _, names = before("cold")
    assert names == ["aten.zero_.default"]
    timed, names = before("warm")
    with Dispatched() as seen:
        timed.call()
    assert names == seen.names


class Dispatched(TorchDispatchMode):
    """The names of the operations that are carried out."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_models_training_step_is_timed_in_the_parts_that_it_goes_through() -> None:
    def ready(**changed: Setting) -> tuple[Lab, Timed]:
        point = model_point(language.tiny(), batch=4, timing="interleaved", cache="as_left", **changed)
        lab = Lab(Case("speed", "delta", "chunkwise", point, 0, "smoke"), find("delta"))
        return lab, speed.prepare(lab)

    lab, timed = ready()
    before = [timed.call(), timed.call()]
    timed.record([0.5])
    rate, fraction = lab.measurements
    assert before == [None, None]
    assert rate.metric == "model_training_tokens_per_second"
    assert rate.value == pytest.approx(4 * 32 / 0.5)
    in_parts, timed = ready(accumulation=2)
    timed.record([0.5])
    # as many tokens and as many FLOPs
    assert in_parts.measurements[0].value == rate.value
    assert in_parts.measurements[1].value == pytest.approx(fraction.value, rel=0.05)


def test_a_state_of_the_caches_that_there_is_not_is_refused_with_the_nearest() -> None:
    with pytest.raises(BadParameter, match=r"no cache 'hot'. Known: as_left, cold, warm"):
        speed.SUITE.check(Point(phase="training", cache="hot"))


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
    assert set(speed.METRICS) == set(memory.METRICS) == {*PHASES, MODEL}


def recorded(lab: Lab) -> dict[str, float]:
    memory.measure(lab)
    return {one.metric: one.value for one in lab.measurements}


def model_lab(name: str = "delta", form: str = "chunkwise", **changed: Setting) -> Lab:
    point = model_point(language.tiny(), batch=2, **changed)
    return Lab(Case("memory", name, form, point, 0, "smoke"), find(name))


@pytest.mark.parametrize("phase", ["training", "prefill"])
def test_beside_the_peak_of_an_operation_stands_its_prediction(phase: str) -> None:
    found = recorded(lab_for("memory", "delta", "chunkwise", phase, 100))
    peak = found[memory.METRICS[phase]]
    assert found["prediction_error"] == pytest.approx(found["predicted_peak_bytes"] / peak - 1)
    assert abs(found["prediction_error"]) < 0.1


def test_what_goes_token_by_token_is_measured_and_not_predicted() -> None:
    assert set(recorded(lab_for("memory", "delta", "recurrent", "training"))) == {"training_peak_bytes"}


@pytest.mark.parametrize(("name", "form"), [("softmax", "sdpa"), ("delta", "chunkwise"), ("performer-m8", "chunkwise")])
def test_a_models_step_holds_what_was_predicted(name: str, form: str) -> None:
    found = recorded(model_lab(name, form, dropout=0.1))
    assert set(found) == {"model_peak_bytes", "predicted_peak_bytes", "prediction_error"}
    assert abs(found["prediction_error"]) < 0.01


def test_a_batch_in_parts_takes_less() -> None:
    whole, parts = (recorded(model_lab(accumulation=count))["model_peak_bytes"] for count in (1, 2))
    assert parts < whole


def test_in_half_precision_the_prediction_holds_as_well() -> None:
    found, single = recorded(model_lab(precision="bfloat16")), recorded(model_lab())
    assert abs(found["prediction_error"]) < 0.05
    assert found["predicted_peak_bytes"] != single["predicted_peak_bytes"]


def test_a_model_that_takes_more_than_half_of_the_memory_is_predicted_only(monkeypatch: pytest.MonkeyPatch) -> None:
    predicted = int(recorded(model_lab())["predicted_peak_bytes"])
    for room, metrics in ((2 * predicted, 3), (2 * predicted - 1, 1)):
        monkeypatch.setattr(memory, "room_here", lambda device, room=room: Room(device, room))
        assert len(recorded(model_lab())) == metrics


def test_a_model_of_published_size_is_predicted_in_no_memory_to_speak_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "room_here", lambda device: Room(device, 2**30))
    point = model_point(language.small(), layers=3)
    found = recorded(Lab(Case("memory", "linear", "chunkwise", point, 0, "paper"), find("linear")))
    # the logits of the 20,003 frequent words and clusters alone are 2 GB
    assert found["predicted_peak_bytes"] > 4 * 24_576 * 20_003


def test_a_model_that_does_not_go_together_is_refused() -> None:
    with pytest.raises(BadParameter, match="width is heads times key_width"):
        memory.SUITE.check(model_point(language.tiny(), width=33))
    with pytest.raises(BadParameter, match=r"no phase 'modal'.*Did you mean 'model'"):
        memory.SUITE.check(Point(phase="modal"))


def test_a_phase_that_there_is_not_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        BadParameter, match=r"no phase 'trainig'. Known: decoding, model, prefill, training. Did you mean 'training'?"
    ):
        speed.SUITE.check(Point(phase="trainig", cache="warm"))
