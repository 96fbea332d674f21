"""The settings of a language model, its text and its training: defaults, the published ones, and what goes together.

Source of the published ones: arXiv:2102.11174, section 6.3 and appendix D.3; what the text leaves open (cosine, clipping,
cutoffs, post-norm) from its released code. That code counts positions from the end of a segment backwards; here they
count from its start, which is the same information in another order.
"""

from collections.abc import Mapping
from itertools import pairwise

from attnbench.harness.data.catalogue import data_set
from attnbench.harness.errors import BadParameter, did_you_mean
from attnbench.harness.models import Shape
from attnbench.harness.spec import Point, Setting

NO_CUTOFFS = "none"
SMALLEST_BPE_VOCABULARY = 400
CHOICES: Mapping[str, tuple[str, ...]] = {
    "tokeniser": ("bpe", "words"),
    "norm": ("pre", "post"),
    "activation": ("gelu", "relu"),
    "positions": ("sinusoidal", "none"),
    "order": ("windows", "streams"),
    "precision": ("float32", "bfloat16"),
}

_DEFAULTS: Mapping[str, Setting] = {
    "data": "web-bible",
    "tokeniser": "bpe",
    "vocabulary": 1000,
    "context": 128,
    "width": 128,
    "layers": 2,
    "heads": 4,
    "key_width": 32,
    "feed_forward": 512,
    "norm": "pre",
    "activation": "gelu",
    "positions": "sinusoidal",
    "cutoffs": NO_CUTOFFS,
    "dropout": 0.0,
    "batch": 8,
    "accumulation": 1,
    "order": "windows",
    "steps": 800,
    "warm_up": 40,
    "learning_rate": 6e-3,
    "weight_decay": 0.01,
    "beta2": 0.95,
    "clip": 1.0,
    "precision": "float32",
    "evaluate_every": 800,
}
_TINY: Mapping[str, Setting] = {
    "data": "python-manual",
    "vocabulary": 512,
    "context": 32,
    "width": 32,
    "layers": 1,
    "heads": 2,
    "key_width": 16,
    "feed_forward": 64,
    "steps": 10,
    "warm_up": 1,
    "learning_rate": 3e-3,
    "evaluate_every": 10,
}
_PUBLISHED: Mapping[str, Setting] = {
    "data": "wikitext-103",
    "tokeniser": "words",
    "vocabulary": 267_735,
    "layers": 16,
    "heads": 8,
    "feed_forward": 2048,
    "norm": "post",
    "activation": "relu",
    "cutoffs": "20000/40000/200000",
    "dropout": 0.1,
    "order": "streams",
    "warm_up": 2000,
    "learning_rate": 2.5e-4,
    "weight_decay": 0.0,
    "beta2": 0.999,
    "clip": 0.25,
    "evaluate_every": 4000,
}


def point(**changed: Setting) -> Point:
    """The default settings, some changed or added."""
    return Point({**_DEFAULTS, **changed})


def tiny(**changed: Setting) -> Point:
    """A model of seconds, on a text that comes with Python."""
    return point(**{**_TINY, **changed})


def small(**changed: Setting) -> Point:
    """The published small model: 44M parameters, a context of 256."""
    sizes = {"width": 128, "key_width": 16, "context": 256, "batch": 96, "steps": 500_000}
    return point(**{**_PUBLISHED, **sizes, **changed})


def medium(**changed: Setting) -> Point:
    """The published medium model: 90M parameters, a context of 384."""
    sizes = {"width": 256, "key_width": 32, "context": 384, "batch": 56, "steps": 400_000}
    return point(**{**_PUBLISHED, **sizes, **changed})


def cutoffs_of(point: Point) -> tuple[int, ...]:
    """The cutoffs of the adaptive softmax; none for a plain one. Raises BadParameter."""
    text = point.text("cutoffs")
    if text == NO_CUTOFFS:
        return ()
    try:
        cutoffs = tuple(int(one) for one in text.split("/"))
    except ValueError:
        raise BadParameter(
            f"cutoffs are numbers of words with strokes between, as in 20000/40000, or '{NO_CUTOFFS}'; got '{text}'."
        ) from None
    bounds = (0, *cutoffs, point.integer("vocabulary"))
    if any(low >= high for low, high in pairwise(bounds)):
        raise BadParameter(
            f"cutoffs rise from above 0 to below the vocabulary of {point.integer('vocabulary')}; got '{text}'."
        )
    return cutoffs


def shape_of(point: Point) -> Shape:
    """The size of the model."""
    return Shape(
        *(point.integer(name) for name in ("vocabulary", "width", "layers", "heads", "feed_forward")),
        norm=point.text("norm"),  # type: ignore[arg-type]
        activation=point.text("activation"),  # type: ignore[arg-type]
        dropout=point.number("dropout"),
        positions=point.text("positions"),  # type: ignore[arg-type]
        cutoffs=cutoffs_of(point),
    )


def check(point: Point) -> None:
    """Refuse settings that do not go together. Raises BadParameter."""
    for name, known in CHOICES.items():
        if point.text(name) not in known:
            raise BadParameter(f"no {name} '{point.text(name)}'. {did_you_mean(point.text(name), known)}")
    if data_set(point.text("data")).pairs:
        raise BadParameter(
            f"a language model reads a text in one language, and '{point.text('data')}' holds pairs in two."
        )
    width, heads, key_width = (point.integer(name) for name in ("width", "heads", "key_width"))
    if width != heads * key_width:
        raise BadParameter(
            f"width is heads times key_width, here {heads} x {key_width} = {heads * key_width}, got {width}."
        )
    if point.text("tokeniser") == "bpe" and point.integer("vocabulary") < SMALLEST_BPE_VOCABULARY:
        raise BadParameter(
            f"a vocabulary has room for every byte and character, so at least {SMALLEST_BPE_VOCABULARY}; "
            f"got {point.integer('vocabulary')}."
        )
    if cutoffs_of(point) and point.text("tokeniser") != "words":
        raise BadParameter(
            f"cutoffs need words in the order of their frequency, so tokeniser=words; use cutoffs={NO_CUTOFFS}."
        )
    if point.integer("batch") % point.integer("accumulation"):
        raise BadParameter(
            f"a batch is cut into parts of one size, so accumulation divides batch, here {point.integer('batch')}; "
            f"got {point.integer('accumulation')}."
        )
    if not 0 <= point.number("dropout") < 1:
        raise BadParameter(f"dropout is a share from 0 to below 1, got {point.number('dropout'):g}.")
    if not 0 < point.number("beta2") < 1:
        raise BadParameter(f"beta2 is a number between 0 and 1, got {point.number('beta2'):g}.")
    if point.integer("warm_up") > point.integer("steps"):
        raise BadParameter(f"warm_up is at most the {point.integer('steps')} steps, got {point.integer('warm_up')}.")
