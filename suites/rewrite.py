"""Can a stored value be replaced?

S key symbols and S value symbols drawn with replacement, 2S writes; the value that counts is the one written last under
the key that is asked for. A rule that only adds reads a mixture of all values a key has had; a rule that corrects reads
the last one.

With `protocol=code` evaluation sequences have S writes although training has 2S: a key that was written has then been
written 1.6 times in the mean and not 2.3 times, so the rules that only add look better than under `text`.

Source: arXiv:2102.11174, section 6.1.2, "setting 2".
"""

from attnbench.harness.lab import Lab
from attnbench.harness.spec import Grid, Suite
from attnbench.suites.tasks.associative import FORMS, METRICS, check, measure_retrieval, point

SUITE = Suite(
    name="rewrite",
    title="Rewriting",
    question="Can a stored value be replaced?",
    source="arXiv:2102.11174, section 6.1.2",
    module=__name__,
    axis="keys",
    metrics=METRICS,
    scales={
        "smoke": Grid(
            variants=("dpfp-nu1", "dpfp-nu1+delta", "delta", "delta+l2norm", "gated", "fwm", "softmax"),
            points=(point(keys=5, key_width=16, batch=8, max_steps=20, evaluate_every=10),),
            timeout_seconds=60,
            seconds_per_case=1,
        ),
        "quick": Grid(
            variants=(
                "softmax",
                "linear",
                "performer-m64+delta",
                "dpfp-nu1",
                "dpfp-nu1+delta",
                "delta",
                "delta+l2norm",
            ),
            points=(point(keys=20, max_steps=3000),),
            timeout_seconds=300,
            seconds_per_case=10,
        ),
        "standard": Grid(
            variants=(
                "softmax",
                "linear",
                "gated",
                "dpfp-nu1",
                "dpfp-nu1+fwm",
                "dpfp-nu1+delta",
                "dpfp-nu2+delta",
                "delta",
                "delta+l2norm",
                "performer-m64+delta",
            ),
            points=tuple(point(keys=S) for S in (20, 40, 60, 80, 100)),
            points_for={
                "softmax": (point(keys=20),),
                "gated": (point(keys=20),),
                "dpfp-nu1+fwm": (point(keys=20),),
                "performer-m64+delta": tuple(point(keys=S) for S in (20, 40)),
            },
            seeds=(0, 1, 2),
            timeout_seconds=3600,
            seconds_per_case=40,
        ),
        "paper": Grid(
            variants=(
                "dpfp-nu1",
                "dpfp-nu1+delta",
                "dpfp-nu2+delta",
                "delta",
                "performer-m64+delta",
                "performer-m128+delta",
                "dpfp-nu1+fwm",
                "fwm",
            ),
            points=tuple(point(keys=S) for S in range(20, 201, 20)),
            # longer ones by --set keys=80 and so on: hours each
            points_for={name: tuple(point(keys=S) for S in (20, 40, 60)) for name in ("dpfp-nu1+fwm", "fwm")},
            timeout_seconds=6 * 3600,
            seconds_per_case=120,
        ),
    },
    forms=FORMS,
    check=check,
)


def measure(lab: Lab) -> None:
    """Losses, accuracy and steps of one case."""
    keys = lab.case.point.integer("keys")
    measure_retrieval(lab, symbols=keys, length=2 * keys, repeats=True)
