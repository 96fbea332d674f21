"""How many tokens a second: training, prefill, decoding, against the length of the text.

One attention operation in float32, timed in rounds that alternate between the variants of a point, after warm-up, with
the device synchronised. The value is tokens over the median time; the raw times are kept.

Source: arXiv:2102.11174, section 6.3, gives words per second of whole models.
"""

import statistics
from collections.abc import Sequence

from attnbench.harness.clock import Timed
from attnbench.harness.lab import Lab
from attnbench.harness.spec import Grid, Suite
from attnbench.suites.tasks.operation import FORMS, check, forms_of, operation, points

METRICS = {
    "training": "training_tokens_per_second",
    "prefill": "prefill_tokens_per_second",
    "decoding": "decode_tokens_per_second",
}


SUITE = Suite(
    name="speed",
    title="Speed",
    question="How many tokens a second, in training, prefill and decoding?",
    source="arXiv:2102.11174, section 6.3",
    module=__name__,
    axis="tokens",
    metrics=tuple(METRICS.values()),
    scales={
        "smoke": Grid(
            variants=("softmax", "linear", "delta"),
            points=points(32, batch=1, heads=2, key_width=16, timing="interleaved"),
            timeout_seconds=60,
            seconds_per_case=0.2,
        ),
        "quick": Grid(
            variants=("softmax", "linear", "performer-m64", "dpfp-nu1", "delta"),
            points=points(256, 1024, 4096, batch=1, heads=4, key_width=64, timing="interleaved"),
            timeout_seconds=120,
            seconds_per_case=1.5,
        ),
        "standard": Grid(
            variants=("softmax", "linear", "performer-m64", "dpfp-nu1", "dpfp-nu1+delta", "delta"),
            points=points(
                *(128 << doubled for doubled in range(9)), batch=1, heads=4, key_width=64, timing="interleaved"
            ),
            timeout_seconds=1800,
            seconds_per_case=5,
        ),
    },
    forms=FORMS,
    check=check,
    forms_for=lambda point: forms_of(point.text("phase")),
    threads=2,
    is_timing=True,
)


def prepare(lab: Lab) -> Timed:
    """The operation of a case, and what its times are recorded as."""
    ready = operation(lab)

    def record(samples: Sequence[float]) -> None:
        rates = tuple(ready.tokens / taken for taken in samples)
        lab.record(METRICS[lab.case.point.text("phase")], ready.tokens / statistics.median(samples), rates)

    return Timed(ready.call, record)
