"""The training step of a whole language model as a case of suites that measure operations: `phase=model`.

A point has the sizes of the model and no text: words are drawn by Zipf's law, as many as a step reads.
"""

from attnbench.harness.spec import Point, Setting
from attnbench.suites.tasks.language import points
from attnbench.suites.tasks.operation import PHASES, check_phase

MODEL = "model"
# what of a language model's settings the cost of a step hangs on
_SIZES = (
    *("vocabulary", "width", "layers", "heads", "key_width", "feed_forward", "norm", "activation", "positions"),
    *("cutoffs", "dropout", "batch", "accumulation", "precision"),
)


def model_point(sized: Point, **changed: Setting) -> Point:
    """The training step of the language model that a point describes."""
    sizes = {name: sized[name] for name in _SIZES}
    return Point({"phase": MODEL, "tokens": sized["context"], **sizes, **changed})


def as_language(point: Point) -> Point:
    """A point with `phase=model` as one of a language model."""
    text = {"tokeniser": "words"} if point["cutoffs"] != points.NO_CUTOFFS else {}
    sizes = {name: point[name] for name in _SIZES}
    return points.point(**{**sizes, **text, "context": point["tokens"]})


def check(point: Point) -> None:
    """Refuse a phase that there is not, and a model that does not go together. Raises BadParameter."""
    check_phase(point, (*PHASES, MODEL))
    if point.text("phase") == MODEL:
        points.check(as_language(point))
