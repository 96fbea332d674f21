"""What perplexity does a language model reach when its attention is swapped?

A decoder-only Transformer on real English text, subwords in, word perplexity out: every variant with the same widths,
the same batches and the same number of steps. The held-out text is scored in windows of the training length that move by
`stride` tokens; of each but the first only the last `stride` positions count. Beside the models stand two floors that
know no context or one token of it; a model above the bigram's has learned nothing that compares attention.

Source: arXiv:2102.11174, section 6.3 and Table 2, at a smaller size and on another text.
"""

import math

import torch
from torch import Tensor

from attnbench.harness.data.corpus import END_OF_LINE, Corpus, Split, corpus, corpus_hash
from attnbench.harness.data.fetch import load
from attnbench.harness.data.ngrams import bigram_nll, unigram_nll
from attnbench.harness.errors import BadParameter
from attnbench.harness.lab import Lab
from attnbench.harness.models import Decoder, Shape, count_parameters
from attnbench.harness.spec import Grid, Point, Suite
from attnbench.harness.training import Stopping, train

FLOORS = {"unigram": unigram_nll, "bigram": bigram_nll}
WARM_UP_SHARE = 0.05
WINDOWS_AT_ONCE = 16
SMALLEST_VOCABULARY = 400


def check(point: Point) -> None:
    """Refuse settings that do not go together. Raises BadParameter."""
    width, heads, key_width = (point.integer(name) for name in ("width", "heads", "key_width"))
    if width != heads * key_width:
        raise BadParameter(
            f"width is heads times key_width, here {heads} x {key_width} = {heads * key_width}, got {width}."
        )
    context, stride = point.integer("context"), point.integer("stride")
    if stride > context:
        raise BadParameter(
            f"stride is at most the context of {context} tokens, or tokens would not be scored; got {stride}."
        )
    if point.integer("vocabulary") < SMALLEST_VOCABULARY:
        raise BadParameter(
            f"a vocabulary has room for every byte and character, so at least {SMALLEST_VOCABULARY}; "
            f"got {point.integer('vocabulary')}."
        )


SUITE = Suite(
    name="language_modelling",
    title="Language modelling",
    question="What perplexity does a language model reach when its attention is swapped?",
    source="arXiv:2102.11174, section 6.3",
    module=__name__,
    axis="context",
    metrics=(
        "word_perplexity",
        "bits_per_byte",
        "token_perplexity",
        "parameters",
        "state_floats",
        "observed_tokens_per_second",
    ),
    scales={
        "smoke": Grid(
            variants=("softmax", "linear", "delta"),
            points=(
                Point(
                    data="python-manual",
                    vocabulary=512,
                    context=32,
                    stride=16,
                    width=32,
                    layers=1,
                    heads=2,
                    key_width=16,
                    feed_forward=64,
                    batch=8,
                    steps=10,
                    learning_rate=3e-3,
                ),
            ),
            timeout_seconds=120,
            seconds_per_case=2,
        ),
        "quick": Grid(
            variants=("softmax", "linear", "performer-m16", "dpfp-nu1", "delta"),
            points=(
                Point(
                    data="web-bible",
                    vocabulary=1000,
                    context=128,
                    stride=64,
                    width=128,
                    layers=2,
                    heads=4,
                    key_width=32,
                    feed_forward=512,
                    batch=8,
                    steps=800,
                    learning_rate=6e-3,
                ),
            ),
            timeout_seconds=900,
            seconds_per_case=75,
        ),
    },
    forms=("sdpa", "chunkwise", "gram", "parallel", "recurrent"),
    references=tuple(FLOORS),
    data=lambda point: (point.text("data"),),
    data_hash=lambda point, hashes: corpus_hash(hashes[point.text("data")], vocabulary=point.integer("vocabulary")),
    check=check,
)


def measure(lab: Lab) -> None:
    """Perplexities of a trained model, or of a floor on the same text."""
    point = lab.case.point
    text = corpus(
        load(point.text("data"), cache=lab.cache, offline=True), vocabulary=point.integer("vocabulary"), cache=lab.cache
    )
    if lab.variant is None:
        nll = FLOORS[lab.case.variant](text.train.stream, text.validation.stream, text.vocabulary)
        _record(lab, nll, text.validation)
        return
    _measure_model(lab, text)


def _measure_model(lab: Lab, text: Corpus) -> None:
    """Train and evaluate the model of a case."""
    point = lab.case.point
    shape = Shape(
        text.vocabulary,
        point.integer("width"),
        point.integer("layers"),
        point.integer("heads"),
        point.integer("feed_forward"),
    )
    model = Decoder(lab.mechanism(), lab.case.form, shape, lab.generator("init")).to(lab.device)
    steps, batch, context = point.integer("steps"), point.integer("batch"), point.integer("context")
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=point.number("learning_rate"), betas=(0.9, 0.95), weight_decay=0.01
    )
    order = lab.generator("data", "order")
    stream = torch.from_numpy(text.train.stream.copy()).long()
    scored: dict[str, float] = {}

    def draws(*parts: str | int) -> list[Tensor | None]:
        return [lab.draws(shape.heads, shape.head_width, *parts, layer=layer) for layer in range(shape.layers)]

    def loss_of_step(step: int) -> Tensor:
        starts = torch.randint(len(stream) - context, (batch,), generator=order)
        window = stream[starts.unsqueeze(1) + torch.arange(context + 1)].to(lab.device)
        return model.loss(window[:, :-1], window[:, 1:], draws("training", step))

    def evaluate(step: int) -> float:
        scored["nll"] = total_nll(model, text.validation, context, point.integer("stride"), draws("evaluation"))
        return scored["nll"] / text.validation.tokens

    training = train(
        loss_of_step,
        evaluate,
        optimiser,
        Stopping(steps, evaluate_every=steps),
        learning_rate=lambda step: point.number("learning_rate") * warm_up_then_cosine(step, steps),
        clip=1.0,
        progress=lab.progress,
    )
    _record(lab, scored["nll"], text.validation)
    lab.record("parameters", count_parameters(model))
    of_a_head = lab.mechanism().state_floats(shape.head_width, shape.head_width, context)
    lab.record("state_floats", of_a_head * shape.heads * shape.layers)
    lab.record("observed_tokens_per_second", steps * batch * context / training.training_seconds)
    lab.record("training_steps", steps)
    tail = training.training_losses[-max(1, steps // 10) :]
    lab.record("training_loss", sum(tail) / len(tail))
    every = max(1, steps // 100)
    kept = range(0, steps, every)
    lab.curve("training_loss", "step", [one + 1 for one in kept], [training.training_losses[one] for one in kept])


def total_nll(model: Decoder, split: Split, context: int, stride: int, draws: list[Tensor | None]) -> float:
    """Negative log-likelihood in nats of the whole split: every token is scored once.

    Windows of `context` tokens move by `stride`; the first is scored whole, later ones at their last `stride` positions.
    An end of line stands before the first token, as it does before every other line.
    """
    device = next(model.parameters()).device
    stream = torch.cat([torch.tensor([END_OF_LINE]), torch.from_numpy(split.stream.copy()).long()])
    count = len(stream) - 1
    context = min(context, count)
    stride = min(stride, context)
    # window -> (where it starts, from which position on it counts)
    windows = [(0, 0)]
    scored = context
    while scored < count:
        end = min(scored + stride, count)
        windows.append((end - context, scored - (end - context)))
        scored = end
    total = 0.0
    for first in range(0, len(windows), WINDOWS_AT_ONCE):
        group = windows[first : first + WINDOWS_AT_ONCE]
        starts = torch.tensor([start for start, _ in group]).unsqueeze(1)
        taken = stream[starts + torch.arange(context + 1)].to(device)
        counts = (torch.arange(context) >= torch.tensor([begin for _, begin in group]).unsqueeze(1)).to(device)
        hidden, _ = model(taken[:, :-1], draws=draws)
        surprise = torch.nn.functional.cross_entropy(
            model.logits(hidden).flatten(0, 1), taken[:, 1:].flatten(), reduction="none"
        )
        total += float(surprise.double()[counts.flatten()].sum())
    return total


def warm_up_then_cosine(step: int, steps: int) -> float:
    """Share of the full learning rate at step 1 ... steps: a linear rise, then a cosine to zero."""
    warm_up = max(1, round(WARM_UP_SHARE * steps))
    if step <= warm_up:
        return step / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))


def _record(lab: Lab, nll: float, split: Split) -> None:
    lab.record("word_perplexity", split.word_perplexity(nll))
    lab.record("bits_per_byte", split.bits_per_byte(nll))
    nats_per_token = nll / split.tokens
    lab.record("token_perplexity", math.exp(nats_per_token) if nats_per_token < 700 else math.inf)
