"""How many pairs fit into a memory of fixed size?

S key symbols and S value symbols, each written once, in random pairs; then one key is asked for its value. Training
draws new sequences at every step, so nothing can be learned but the use of the memory. A variant retrieves while its
features offer S nearly orthogonal directions, and blurs beyond.

The paper stops at a loss of 0.001 or after 1,000 steps without a new best. The quick scale gives up sooner, after 600
steps without a new best or 1,500 in all, so a variant near its limit may end above what it could reach.

Source: arXiv:2102.11174, section 6.1.1, "setting 1".
"""

from attnbench.harness.lab import Lab
from attnbench.harness.spec import Grid, Point, Suite
from attnbench.suites.tasks.associative import Sampler, measure_retrieval


def _points(*pairs: int, max_steps: int, patience: int) -> tuple[Point, ...]:
    return tuple(
        Point(
            pairs=count,
            key_width=64,
            batch=32,
            max_steps=max_steps,
            evaluate_every=100,
            patience=patience,
            target=0.001,
        )
        for count in pairs
    )


SLOW = ("performer-m64", "performer-m64+scaled", "delta")

SUITE = Suite(
    name="capacity",
    title="Retrieval capacity",
    question="How many pairs fit into a memory of fixed size?",
    source="arXiv:2102.11174, section 6.1.1",
    module=__name__,
    axis="pairs",
    metrics=("retrieval_loss", "last_retrieval_loss", "retrieval_accuracy", "training_steps", "milliseconds_per_step"),
    scales={
        "smoke": Grid(
            variants=("softmax", "linear", "performer-m64", "dpfp-nu1", "delta", "fwm"),
            points=(Point(pairs=8, key_width=16, batch=8, max_steps=20, evaluate_every=10, patience=10, target=0.001),),
            timeout_seconds=60,
            seconds_per_case=1,
        ),
        "quick": Grid(
            variants=("softmax", "linear", "performer-m64", "performer-m64+scaled", "dpfp-nu1", "dpfp-nu2", "delta"),
            points=_points(20, 60, 100, 200, max_steps=1500, patience=5),
            # 128 features and a triangular solve cost most and fail early: their last point is left out
            points_for={name: _points(20, 60, 100, max_steps=1500, patience=5) for name in SLOW},
            timeout_seconds=300,
            seconds_per_case=8,
        ),
    },
    forms=("readout", "chunkwise", "recurrent"),
)


def measure(lab: Lab) -> None:
    """Losses, accuracy and steps of one case."""
    pairs = lab.case.point.integer("pairs")
    measure_retrieval(lab, Sampler(pairs, pairs, repeats=False), pairs)
