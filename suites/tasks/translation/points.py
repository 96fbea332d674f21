"""The settings of a translator, its text and its training: defaults, the published ones, and what goes together.

Published are arXiv:2102.11174, section 6.2 and appendix E: a Transformer (big) with 32K pieces, updates of at most 3 x 16 x
3,584 tokens for 45 epochs, the best checkpoint by validation BLEU and no averaging. What it leaves open is the recipe
that it adapts (arXiv:1806.00187; fairseq's scaling_nmt): Adam (0.9, 0.98), inverse square root with a warm-up of 4,000,
dropout 0.3, label smoothing 0.1, beam 4 with a length penalty of 0.6.
"""

from collections.abc import Mapping

from attnbench.harness.data.catalogue import data_set
from attnbench.harness.errors import BadParameter, did_you_mean
from attnbench.harness.models import TranslatorShape
from attnbench.harness.spec import Point, Setting

SMALLEST_VOCABULARY = 300
CHOICES: Mapping[str, tuple[str, ...]] = {
    "encoder": ("same", "softmax"),
    "cross": ("softmax", "same"),
    "norm": ("pre", "post"),
    "activation": ("gelu", "relu"),
    "precision": ("float32", "bfloat16"),
    "choose": ("loss", "bleu"),
}

_DEFAULTS: Mapping[str, Setting] = {
    "data": "home-assistant-en-de",
    "vocabulary": 4000,
    "encoder": "same",
    "cross": "softmax",
    "width": 128,
    "layers": 2,
    "heads": 4,
    "key_width": 32,
    "feed_forward": 512,
    "norm": "pre",
    "activation": "relu",
    "dropout": 0.2,
    "smoothing": 0.1,
    "longest": 100,
    "tokens_at_once": 1024,
    "tokens_per_update": 2048,
    "steps": 3600,
    "warm_up": 200,
    "learning_rate": 3e-3,
    "weight_decay": 0.0,
    "beta2": 0.98,
    "clip": 1.0,
    "precision": "float32",
    "evaluate_every": 300,
    "patience": 0,
    "choose": "loss",
    "average": 1,
    "test_pairs": 0,
    "beam": 4,
    "length_penalty": 1.0,
}
_NUMBERS: Mapping[str, Setting] = {
    "data": "number-words",
    "vocabulary": 400,
    "width": 64,
    "key_width": 16,
    "feed_forward": 256,
    "dropout": 0.0,
    "tokens_at_once": 512,
    "steps": 240,
    "warm_up": 50,
    "learning_rate": 5e-3,
    "evaluate_every": 60,
}
_TINY: Mapping[str, Setting] = {
    "width": 32,
    "heads": 2,
    "layers": 1,
    "feed_forward": 64,
    "tokens_at_once": 256,
    "tokens_per_update": 512,
    "steps": 6,
    "warm_up": 2,
    "evaluate_every": 3,
    "test_pairs": 16,
    "beam": 2,
}
_BIG: Mapping[str, Setting] = {
    "data": "wmt14-en-de",
    "vocabulary": 32_768,
    "width": 1024,
    "layers": 6,
    "heads": 16,
    "key_width": 64,
    "feed_forward": 4096,
    "norm": "post",
    "dropout": 0.3,
    "longest": 250,
    "tokens_at_once": 3584,
    "tokens_per_update": 172_032,
    # 45 epochs of some 860 updates: 4.5M pairs whose longer sides have about 33 pieces
    "steps": 39_000,
    "warm_up": 4000,
    "learning_rate": 1e-3,
    "clip": 0.0,
    "evaluate_every": 860,
    "choose": "bleu",
    "length_penalty": 0.6,
}


def point(**changed: Setting) -> Point:
    """The default settings, some changed."""
    return Point({**_DEFAULTS, **changed})


def numbers(**changed: Setting) -> Point:
    """A small model on number words."""
    return point(**{**_NUMBERS, **changed})


def tiny(**changed: Setting) -> Point:
    """A model of seconds on number words."""
    return numbers(**{**_TINY, **changed})


def big(**changed: Setting) -> Point:
    """The published model."""
    return point(**{**_BIG, **changed})


def shape_of(point: Point) -> TranslatorShape:
    """The size of the model."""
    return TranslatorShape(
        *(point.integer(name) for name in ("vocabulary", "width", "layers", "heads", "feed_forward")),
        norm=point.text("norm"),  # type: ignore[arg-type]
        activation=point.text("activation"),  # type: ignore[arg-type]
        dropout=point.number("dropout"),
    )


def check(point: Point) -> None:
    """Refuse settings that do not go together. Raises BadParameter."""
    for name, known in CHOICES.items():
        if point.text(name) not in known:
            raise BadParameter(f"no {name} '{point.text(name)}'. {did_you_mean(point.text(name), known)}")
    if not data_set(point.text("data")).pairs:
        raise BadParameter(
            f"translation needs a text in two languages, and '{point.text('data')}' is in one. Use number-words."
        )
    width, heads, key_width = (point.integer(name) for name in ("width", "heads", "key_width"))
    if width != heads * key_width:
        raise BadParameter(
            f"width is heads times key_width, here {heads} x {key_width} = {heads * key_width}, got {width}."
        )
    if point.integer("vocabulary") < SMALLEST_VOCABULARY:
        raise BadParameter(
            f"a vocabulary has room for every byte and character, so at least {SMALLEST_VOCABULARY}; "
            f"got {point.integer('vocabulary')}."
        )
    for name in ("dropout", "smoothing"):
        if not 0 <= point.number(name) < 1:
            raise BadParameter(f"{name} is a share from 0 to below 1, got {point.number(name):g}.")
    if not 0 < point.number("beta2") < 1:
        raise BadParameter(f"beta2 is a number between 0 and 1, got {point.number('beta2'):g}.")
    if point.integer("tokens_at_once") < point.integer("longest"):
        raise BadParameter(
            f"tokens_at_once has room for one pair of the longest, here {point.integer('longest')} tokens a side; "
            f"got {point.integer('tokens_at_once')}."
        )
    if point.integer("tokens_per_update") < point.integer("tokens_at_once"):
        raise BadParameter(
            f"an update has at least the tokens of one pass, here {point.integer('tokens_at_once')}; "
            f"got tokens_per_update={point.integer('tokens_per_update')}."
        )
    if point.integer("warm_up") > point.integer("steps"):
        raise BadParameter(f"warm_up is at most the {point.integer('steps')} steps, got {point.integer('warm_up')}.")
