"""Can a stored value be replaced?

S key symbols and S value symbols drawn with replacement, 2S writes; the value that counts is the one written last under
the key that is asked for. A rule that only adds reads a mixture of all values a key has had; a rule that corrects reads
the last one.

Source: arXiv:2102.11174, section 6.1.2, "setting 2".
"""

from attnbench.harness.lab import Lab
from attnbench.harness.spec import Grid, Point, Suite
from attnbench.suites.tasks.associative import Sampler, measure_retrieval


def _points(*keys: int, max_steps: int, patience: int) -> tuple[Point, ...]:
    return tuple(
        Point(
            keys=count, key_width=64, batch=32, max_steps=max_steps, evaluate_every=100, patience=patience, target=0.001
        )
        for count in keys
    )


SUITE = Suite(
    name="rewrite",
    title="Rewriting",
    question="Can a stored value be replaced?",
    source="arXiv:2102.11174, section 6.1.2",
    module=__name__,
    axis="keys",
    metrics=("retrieval_loss", "last_retrieval_loss", "retrieval_accuracy", "training_steps", "milliseconds_per_step"),
    scales={
        "smoke": Grid(
            variants=("dpfp-nu1", "dpfp-nu1+delta", "delta", "gated", "fwm", "softmax"),
            points=(Point(keys=5, key_width=16, batch=8, max_steps=20, evaluate_every=10, patience=10, target=0.001),),
            timeout_seconds=60,
            seconds_per_case=1,
        ),
        "quick": Grid(
            variants=("softmax", "linear", "performer-m64+delta", "dpfp-nu1", "dpfp-nu1+delta", "delta"),
            points=_points(20, max_steps=3000, patience=9),
            timeout_seconds=300,
            seconds_per_case=10,
        ),
    },
    forms=("readout", "chunkwise", "recurrent"),
)


def measure(lab: Lab) -> None:
    """Losses, accuracy and steps of one case."""
    keys = lab.case.point.integer("keys")
    measure_retrieval(lab, Sampler(keys, 2 * keys, repeats=True), keys)
