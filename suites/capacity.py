"""How many pairs fit into a memory of fixed size?

S key symbols and S value symbols, each written once, in random pairs; then one key is asked for its value. Training
draws new sequences at every step, so nothing can be learned but the use of the memory. A variant retrieves while its
features offer S nearly orthogonal directions, and blurs beyond.

Training stops at a loss of 0.001 or after 1,000 steps without a new best. The quick scale gives up sooner, after 600
steps without a new best or 1,500 in all, so a variant near its limit may end above what it could reach.

Source: arXiv:2102.11174, section 6.1.1, "setting 1".
"""

from attnbench.harness.lab import Lab
from attnbench.harness.spec import Grid, Suite
from attnbench.suites.tasks.associative import FORMS, METRICS, check, measure_retrieval, point

SUITE = Suite(
    name="capacity",
    title="Retrieval capacity",
    question="How many pairs fit into a memory of fixed size?",
    source="arXiv:2102.11174, section 6.1.1",
    module=__name__,
    axis="pairs",
    metrics=METRICS,
    scales={
        "smoke": Grid(
            variants=("softmax", "linear", "performer-m64", "dpfp-nu1", "delta", "delta+l2norm", "fwm"),
            points=(point(pairs=8, key_width=16, batch=8, max_steps=20, evaluate_every=10),),
            timeout_seconds=60,
            seconds_per_case=1,
        ),
        "quick": Grid(
            variants=(
                "softmax",
                "linear",
                "performer-m64",
                "performer-m64+scaled",
                "dpfp-nu1",
                "dpfp-nu2",
                "delta",
                "delta+l2norm",
            ),
            points=tuple(point(pairs=S, max_steps=1500, patience=6) for S in (20, 60, 100, 200)),
            # 128 features and a triangular solve cost most and fail early: their last point is left out
            points_for={
                name: tuple(point(pairs=S, max_steps=1500, patience=6) for S in (20, 60, 100))
                for name in ("performer-m64", "performer-m64+scaled", "delta", "delta+l2norm")
            },
            timeout_seconds=300,
            seconds_per_case=8,
        ),
        # around the number of pairs at which each variant stops retrieving
        "standard": Grid(
            variants=(
                "softmax",
                "linear",
                "dpfp-nu1",
                "dpfp-nu2",
                "dpfp-nu3",
                "delta",
                "delta+l2norm",
                "performer-m64",
                "performer-m64+scaled",
            ),
            points=tuple(point(pairs=S) for S in (20, 30, 40, 50, 60, 80)),
            points_for={
                "softmax": tuple(point(pairs=S) for S in (200, 400, 600)),
                "dpfp-nu1": tuple(point(pairs=S) for S in (80, 100, 110, 120, 130, 140, 160)),
                "dpfp-nu2": tuple(point(pairs=S) for S in (200, 220, 240, 280)),
                "dpfp-nu3": tuple(point(pairs=S) for S in (300, 320, 340, 360, 400)),
                "performer-m64": tuple(point(pairs=S) for S in (5, 10, 20, 40)),
                "performer-m64+scaled": tuple(point(pairs=S) for S in (5, 10, 20, 30, 40, 60)),
            },
            seeds=(0, 1, 2),
            timeout_seconds=3600,
            seconds_per_case=40,
        ),
        "paper": Grid(
            variants=(
                "softmax",
                "linear",
                "dpfp-nu1",
                "dpfp-nu2",
                "dpfp-nu3",
                "performer-m64",
                "performer-m128",
                "performer-m512",
            ),
            points=tuple(point(pairs=S) for S in range(20, 601, 20)),
            timeout_seconds=6 * 3600,
            seconds_per_case=45,
        ),
    },
    forms=FORMS,
    check=check,
)


def measure(lab: Lab) -> None:
    """Losses, accuracy and steps of one case."""
    pairs = lab.case.point.integer("pairs")
    measure_retrieval(lab, symbols=pairs, length=pairs, repeats=False)
