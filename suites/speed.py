"""How many tokens a second: training, prefill, decoding, and the training step of a whole model, against the length of the text.

One attention operation, or one step of a language model with Adam, in float32, timed in rounds that alternate between the
variants of a point, after warm-up, with the device synchronised. The value is tokens over the median time; the raw times are
kept. Before each call, off the clock, caches are left as the call before left them, made warm by one more call, or made
cold by writing what no cache holds: the setting `cache` says which.

Beside each rate stands the share of the device's own roofline, whose ceilings are measured before; ceilings and clocks are
stored with the case.

Source: arXiv:2102.11174, section 6.3, gives words per second of whole models.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from attnbench.harness.ceilings import ceilings
from attnbench.harness.clock import Timed
from attnbench.harness.costs import adam_step, counted_flops
from attnbench.harness.environment import clock_mhz
from attnbench.harness.errors import BadParameter, did_you_mean
from attnbench.harness.lab import Lab
from attnbench.harness.spec import Grid, Point, Suite
from attnbench.suites.tasks.language import points as language
from attnbench.suites.tasks.language.costing import step_of
from attnbench.suites.tasks.language.steps import MODEL, as_language, check, model_point
from attnbench.suites.tasks.operation import FORMS, Operation, forms_of, operation, points

METRICS = {
    "training": "training_tokens_per_second",
    "prefill": "prefill_tokens_per_second",
    "decoding": "decode_tokens_per_second",
    MODEL: "model_training_tokens_per_second",
}
FRACTION = "roofline_fraction"
CACHES = ("as_left", "warm", "cold")
# more than the caches of any processor hold
_COLD_BYTES = 1 << 28
_TIMED: dict[str, str] = {"timing": "interleaved", "cache": "as_left"}


def check_timed(point: Point) -> None:
    """Refuse what `check` refuses, and a state of the caches that there is not. Raises BadParameter."""
    check(point)
    if (asked := point.text("cache")) not in CACHES:
        raise BadParameter(f"no cache '{asked}'. {did_you_mean(asked, CACHES)}")


SUITE = Suite(
    name="speed",
    title="Speed",
    question="How many tokens a second, in training, prefill and decoding, and of a whole model?",
    source="arXiv:2102.11174, section 6.3",
    module=__name__,
    axis="tokens",
    metrics=(*METRICS.values(), FRACTION),
    scales={
        "smoke": Grid(
            variants=("softmax", "linear", "delta"),
            points=(
                *points(32, batch=1, heads=2, key_width=16, **_TIMED),
                model_point(language.tiny(), batch=2, **_TIMED),
            ),
            timeout_seconds=60,
            seconds_per_case=0.3,
        ),
        "quick": Grid(
            variants=("softmax", "linear", "performer-m64", "dpfp-nu1", "delta"),
            points=(
                *points(256, 1024, 4096, batch=1, heads=4, key_width=64, **_TIMED),
                model_point(language.point(), batch=2, **_TIMED),
                model_point(language.point(context=1024), batch=2, **_TIMED),
            ),
            timeout_seconds=120,
            seconds_per_case=1.5,
        ),
        "standard": Grid(
            variants=("softmax", "linear", "performer-m64", "dpfp-nu1", "dpfp-nu1+delta", "delta"),
            points=(
                *points(*(128 << doubled for doubled in range(9)), batch=1, heads=4, key_width=64, **_TIMED),
                *(
                    model_point(language.point(context=context), batch=1, **_TIMED)
                    for context in (256, 1024, 4096, 16384)
                ),
            ),
            timeout_seconds=1800,
            seconds_per_case=5,
        ),
        "paper": Grid(
            variants=("softmax", "linear", "delta", "dpfp-nu1", "performer-m16"),
            # in parts of eight sequences, so that a step fits into the memory of a small machine
            points=(model_point(language.small(), accumulation=12, **_TIMED),),
            timeout_seconds=7200,
            seconds_per_case=600,
        ),
    },
    forms=FORMS,
    check=check_timed,
    forms_for=lambda point: forms_of(point.text("phase")),
    threads=2,
    is_timing=True,
)


def prepare(lab: Lab) -> Timed:
    """What a case times, and what its times are recorded as."""
    phase = lab.case.point.text("phase")
    ready = _ready(lab)
    least = _least_seconds(lab, ready)
    lab.fact("clock_mhz_before", _clock(lab))

    def record(samples: Sequence[float]) -> None:
        median = statistics.median(samples)
        lab.record(METRICS[phase], ready.tokens / median, tuple(ready.tokens / taken for taken in samples))
        if least is not None:
            lab.record(FRACTION, least / median, tuple(least / taken for taken in samples))
        lab.fact("clock_mhz_after", _clock(lab))

    return Timed(ready.call, record, _before(lab, ready.call))


def _ready(lab: Lab) -> Operation:
    return _model(lab) if lab.case.point.text("phase") == MODEL else operation(lab)


def _model(lab: Lab) -> Operation:
    """The training step of a language model: of its bytes, those of the weights, read forwards and backwards, of their
    gradients and of what Adam reads and writes count as moved.
    """
    point = as_language(lab.case.point)
    step = step_of(lab, point)
    model = step.model(step.layers).to(lab.device)
    parts = point.integer("accumulation")
    weights = sum(one.nbytes for one in model.parameters())
    tokens = point.integer("batch") * point.integer("context")
    # Adam reads weight, gradient and two moments, and writes all but the gradient
    moved = parts * 3 * weights + 7 * weights
    return Operation(adam_step(model, step.loss, step.at_once, parts), tokens, moved)


def _least_seconds(lab: Lab, ready: Operation) -> float | None:
    """The time that the ceilings of the device allow for what this form computes; None for one that goes token by token,
    where counting would take many times as long as the operation. Where torch does not see its work, that of a form which
    it sees stands in.
    """
    seen = lab.mechanism().seen_in_place_of(lab.case.form)
    if lab.case.form == "recurrent":
        return None
    most = ceilings(lab.device)
    for name, text in most.facts().items():
        lab.fact(name, text)
    counted = ready if seen == lab.case.form else _ready(replace(lab, case=replace(lab.case, form=seen)))
    return most.seconds(counted_flops(counted.call), ready.moved_bytes)


def _before(lab: Lab, call: Callable[[], object]) -> Callable[[], object] | None:
    """What is done to the caches before each call."""
    state = lab.case.point.text("cache")
    if state == "as_left":
        return None
    if state == "warm":
        return call
    flushing = torch.zeros(_COLD_BYTES, dtype=torch.uint8, device=lab.device)
    return flushing.zero_


def _clock(lab: Lab) -> str:
    """The clock at this moment."""
    told = clock_mhz(lab.device.type)
    return "not told" if told is None else f"{told:.0f}"
