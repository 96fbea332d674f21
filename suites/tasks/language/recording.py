"""What is kept of a language model: perplexities of the test and the validation text, sizes, curves; and of the floors beside it."""

import math
from collections.abc import Mapping

from attnbench.harness.data.corpus import Corpus, Split, corpus, corpus_hash
from attnbench.harness.data.fetch import load
from attnbench.harness.data.ngrams import bigram_nll, unigram_nll
from attnbench.harness.lab import Lab
from attnbench.harness.models import Shape, count_parameters
from attnbench.harness.spec import Point
from attnbench.suites.tasks.language.scoring import Scored
from attnbench.suites.tasks.language.training import Trained
from attnbench.variants.contract import Variant

FLOORS = {"unigram": unigram_nll, "bigram": bigram_nll}
METRICS = (
    "word_perplexity",
    "validation_word_perplexity",
    "segment_word_perplexity",
    "bits_per_byte",
    "token_perplexity",
    "parameters",
    "state_floats",
    "carried_floats",
    "observed_tokens_per_second",
)
FORMS = ("sdpa", "chunkwise", "gram", "parallel", "recurrent")
CURVE_POINTS = 100


def text_of(lab: Lab) -> Corpus:
    """The text of a case, split and encoded."""
    point = lab.case.point
    return corpus(
        load(point.text("data"), cache=lab.cache, offline=True),
        vocabulary=point.integer("vocabulary"),
        tokeniser=point.text("tokeniser"),
        cache=lab.cache,
    )


def data_of(point: Point) -> tuple[str, ...]:
    """The data sets of a point."""
    return (point.text("data"),)


def hash_of_data(point: Point, hashes: Mapping[str, str]) -> str:
    """The hash of a point's text, split and encoded."""
    return corpus_hash(
        hashes[point.text("data")], vocabulary=point.integer("vocabulary"), tokeniser=point.text("tokeniser")
    )


def record_floor(lab: Lab, text: Corpus) -> None:
    """The perplexities of a model that only counts."""
    floor = FLOORS[lab.case.variant]
    _record_perplexities(lab, floor(text.train.stream, text.test.stream, text.vocabulary), text.test)
    nll = floor(text.train.stream, text.validation.stream, text.vocabulary)
    lab.record("validation_word_perplexity", text.validation.word_perplexity(nll))


def record_model(
    lab: Lab, text: Corpus, trained: Trained, *, test: Scored, validation: Scored, in_segments: Scored, tokens: int
) -> None:
    """A trained model: `in_segments` is the test text in segments of the context, each from nothing; `tokens` are what a read
    can look back on where the memory grows.
    """
    point, training = lab.case.point, trained.training
    _record_perplexities(lab, test.nll, text.test)
    lab.record("validation_word_perplexity", text.validation.word_perplexity(validation.nll))
    lab.record("segment_word_perplexity", text.test.word_perplexity(in_segments.nll))
    lab.record("parameters", count_parameters(trained.model))
    lab.record("state_floats", state_floats(lab.mechanism(), trained.model.shape, tokens))
    lab.record("carried_floats", test.floats)
    read = training.steps * point.integer("batch") * point.integer("context")
    lab.record("observed_tokens_per_second", read / training.training_seconds)
    lab.record("training_steps", training.steps)
    lab.record("training_seconds", training.training_seconds + training.evaluation_seconds)
    losses = training.training_losses
    tail = losses[-max(1, len(losses) // 10) :]
    lab.record("training_loss", sum(tail) / len(tail))
    kept = range(0, len(losses), max(1, len(losses) // CURVE_POINTS))
    lab.curve("training_loss", "step", [one + 1 for one in kept], [losses[one] for one in kept])
    lab.curve("validation_loss", "step", [step for step, _ in training.curve], [loss for _, loss in training.curve])
    positions, nats = _thinned(in_segments.by_position(point.integer("context")).tolist())
    lab.curve("perplexity_by_position", "position", positions, [math.exp(min(one, 700)) for one in nats])


def state_floats(variant: Variant, shape: Shape, tokens: int) -> int:
    """Numbers that a read of the whole model looks at, for one sequence: the memory of fixed size, or the keys and values of
    so many tokens where the memory grows. So counts arXiv:2102.11174, appendix F, which leaves out the normaliser z.
    """
    if variant.keep is not None:
        return 2 * shape.width * tokens * shape.layers
    return variant.state_floats(shape.head_width, shape.head_width, tokens) * shape.heads * shape.layers


def _record_perplexities(lab: Lab, nll: float, split: Split) -> None:
    lab.record("word_perplexity", split.word_perplexity(nll))
    lab.record("bits_per_byte", split.bits_per_byte(nll))
    nats_per_token = nll / split.tokens
    lab.record("token_perplexity", math.exp(nats_per_token) if nats_per_token < 700 else math.inf)


def _thinned(values: list[float]) -> tuple[list[float], list[float]]:
    """Values at positions 1, 2, ... as means over stretches that grow with the position: the last position and the mean of each."""
    ends, means, begin = [], [], 0
    while begin < len(values):
        end = min(begin + max(1, begin // 16), len(values))
        ends.append(float(end))
        means.append(sum(values[begin:end]) / (end - begin))
        begin = end
    return ends, means
