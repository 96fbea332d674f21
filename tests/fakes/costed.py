"""A suite that says what its cases would cost, in numbers that can be added up by hand, and can do none of them.

A case takes 3.6e15 FLOPs and 2 GiB of training a unit of width, and as many FLOPs of evaluation as it `reads`.
"""

from typing import TYPE_CHECKING

from attnbench.harness.costs import Cost
from attnbench.harness.errors import BadParameter
from attnbench.harness.spec import Grid, Point, Suite

if TYPE_CHECKING:
    from attnbench.harness.lab import Lab

TRAINING = 3_600_000_000_000_000


def _grid(*points: Point) -> Grid:
    return Grid(("softmax", "linear"), points, seconds_per_case=7200)


COSTED = Suite(
    name="costed",
    title="Costed",
    question="What would it cost?",
    source="none",
    module="costed",
    axis="width",
    metrics=("retrieval_loss",),
    scales={
        "smoke": _grid(Point(width=1, reads=0)),
        "quick": _grid(Point(width=1, reads=0), Point(width=1, reads=1000), Point(width=2, reads=0)),
        "standard": _grid(Point(width=1, reads=0, data="web-bible"), Point(width=2, reads=0, data="python-manual")),
    },
    forms=("sdpa", "chunkwise"),
    references=("nobody",),
    data=lambda point: (point.text("data"),) if "data" in point else (),
    evaluation=("reads",),
    spreads=True,
)


def cost(lab: "Lab") -> Cost:
    """What the point says; some widths cannot be counted."""
    width = lab.case.point.integer("width")
    if width == 13:
        raise BadParameter("width 13 is bad luck.")
    if width == 14:
        raise ValueError("not a number\nof this world")
    return Cost(
        parameters=1000 * width,
        tokens=500,
        steps=5,
        flops=TRAINING * width,
        evaluation_flops=lab.case.point.integer("reads"),
        training_bytes=width << 31,
    )
