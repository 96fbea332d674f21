"""Can several pairs be recalled while reading on?

N pairs of a key and a value are written, then the keys come again between fillers, near ones more often than far ones,
and each is to be answered with its value. What differs from `capacity`: reading and writing go on together, one pass
asks for all pairs, and the model has to find out by itself that a key and the token behind it are a pair.

To link a value with its key, something must look one token back. With `first_layer=convolution` a short convolution
does, and the second layer, the attention in question, is all the memory that there is: `state_floats` is the size of
that one layer, and no variant fails for want of a shift. With `first_layer=attention` both layers are attention and the
shift has to be learned from positions: with the size and the steps of the quick scale softmax, linear, delta and
dpfp-nu1+delta then all ended near 1 / N, naming some value of the sequence rather than the right one.

Training stops at an accuracy of `target`, or when its steps are over, with the learning rate falling along a cosine; a
variant below the target may get further with more steps or another rate. Guessing gives 2 / vocabulary.

Source: arXiv:2312.04927 (multi-query associative recall). The `paper` scale is the grid of its Figure 2 as released: two
layers of attention, blank filler, the same 100,000 sequences 64 times, four learning rates, of which the figure shows
the best. There softmax attention alone gets positions, learned ones, and a dropout of 0.1; here all variants have the
same model with sinusoidal positions and no dropout, and the rate falls at every step, not every epoch. The convolution
before attention is that of arXiv:2402.18668, Figure 2, by the same authors.
"""

import math

import torch
from torch import Tensor

from attnbench.harness.errors import BadParameter
from attnbench.harness.lab import Lab
from attnbench.harness.models import Shape, count_parameters
from attnbench.harness.spec import Grid, Point, Suite
from attnbench.harness.training import Stopping, train
from attnbench.suites.tasks.recall import FILLERS, FIRST_LAYERS, LAYERS, Recaller, Recalls, Sampler

EVALUATION_BATCH = 64
WEIGHT_DECAY = 0.1
VARIANTS = (
    "softmax",
    "linear",
    "performer-m64",
    "dpfp-nu1",
    "dpfp-nu2",
    "delta",
    "dpfp-nu1+delta",
    "delta+l2norm",
    "gated",
)


def check(point: Point) -> None:
    """Refuse settings that do not go together. Raises BadParameter."""
    pairs, length, vocabulary = (point.integer(name) for name in ("pairs", "length", "vocabulary"))
    if pairs < 1 or length % 2 or 4 * pairs > length:
        raise BadParameter(
            f"pairs are at least 1 and the length is even and at least 4 tokens a pair, here 4 x {pairs} = {4 * pairs}; "
            f"got {pairs} pairs and a length of {length}. Use {max(length // 4, 1)} pairs or fewer, and an even length."
        )
    if vocabulary // 2 - 1 < pairs:
        raise BadParameter(
            f"keys are half of the vocabulary without token 0, so {pairs} pairs need a vocabulary of at least "
            f"{2 * pairs + 2}; got {vocabulary}."
        )
    for name in ("heads", "batch", "evaluation_examples"):
        if point.integer(name) < 1:
            raise BadParameter(f"{name} is at least 1; got {point.integer(name)}.")
    for name, known in (("filler", FILLERS), ("first_layer", FIRST_LAYERS)):
        if point.text(name) not in known:
            raise BadParameter(f"{name} is one of {', '.join(known)}; got '{point.text(name)}'.")


def _points(*key_widths: int, pairs: int, length: int, **more: int | float | str) -> tuple[Point, ...]:
    return tuple(
        Point(
            {
                "pairs": pairs,
                "length": length,
                "vocabulary": 256,
                "filler": "random",
                "power": 0.01,
                "first_layer": "convolution",
                "heads": 1,
                "key_width": key_width,
                "batch": 32,
                "examples": 0,
                "evaluation_examples": 256,
                "steps": 1500,
                "evaluate_every": 100,
                "learning_rate": 1e-2,
                "target": 0.99,
                **more,
            }
        )
        for key_width in key_widths
    )


SUITE = Suite(
    name="mqar",
    title="Multi-query recall",
    question="Can several pairs be recalled while reading on?",
    source="arXiv:2312.04927",
    module=__name__,
    axis="key_width",
    metrics=("recall_accuracy", "recall_loss", "state_floats", "parameters", "training_steps", "milliseconds_per_step"),
    scales={
        "smoke": Grid(
            variants=("softmax", "linear", "performer-m8", "dpfp-nu1", "delta", "gated"),
            points=_points(
                16, pairs=2, length=16, vocabulary=32, batch=8, evaluation_examples=32, steps=20, evaluate_every=10
            ),
            timeout_seconds=60,
            seconds_per_case=1,
        ),
        "quick": Grid(
            variants=("softmax", "linear", "performer-m16", "dpfp-nu1", "delta"),
            points=_points(16, 32, pairs=4, length=32, vocabulary=64, steps=300, evaluate_every=50, learning_rate=3e-2),
            timeout_seconds=120,
            seconds_per_case=3,
        ),
        "standard": Grid(
            variants=VARIANTS,
            points=(*_points(16, 32, 64, pairs=8, length=64), *_points(32, 64, pairs=16, length=128)),
            seeds=(0, 1),
            timeout_seconds=1800,
            seconds_per_case=50,
        ),
        "paper": Grid(
            variants=VARIANTS,
            points=tuple(
                point
                for length, pairs, batch in ((64, 4, 512), (128, 8, 512), (256, 16, 256), (512, 64, 128))
                for learning_rate in (1e-4, 10 ** (-10 / 3), 10 ** (-8 / 3), 1e-2)
                for point in _points(
                    64,
                    128,
                    256,
                    512,
                    pairs=pairs,
                    length=length,
                    vocabulary=8192,
                    filler="blank",
                    first_layer="attention",
                    batch=batch,
                    examples=100_000,
                    evaluation_examples=3000,
                    steps=64 * math.ceil(100_000 / batch),
                    evaluate_every=math.ceil(100_000 / batch),
                    learning_rate=learning_rate,
                )
            ),
            timeout_seconds=6 * 3600,
            seconds_per_case=600,
        ),
    },
    forms=("sdpa", "chunkwise", "gram", "parallel", "recurrent"),
    check=check,
)


def measure(lab: Lab) -> None:
    """Accuracy and loss of the queries of unseen sequences, after training on others."""
    point, variant = lab.case.point, lab.mechanism()
    heads, key_width = point.integer("heads"), point.integer("key_width")
    shape = Shape(point.integer("vocabulary"), heads * key_width, LAYERS, heads, feed_forward=0)
    sampler = Sampler(
        shape.vocabulary, point.integer("length"), point.integer("pairs"), point.number("power"), point.text("filler")
    )
    model = Recaller(variant, lab.case.form, shape, point.text("first_layer"), lab.generator("init")).to(lab.device)
    steps, batch, examples = point.integer("steps"), point.integer("batch"), point.integer("examples")
    rate = point.number("learning_rate")
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=WEIGHT_DECAY)
    accuracies: list[float] = []
    losses: list[float] = []

    def draws(*parts: str | int) -> list[Tensor | None]:
        return [lab.draws(heads, key_width, *parts, layer=layer) for layer in range(len(model.attentions))]

    def loss_of_step(step: int) -> Tensor:
        asked = training_batch(lab, sampler, step, batch, examples).to(lab.device)
        return cross_entropy(model.answers(asked, draws("training", step)), asked.targets)

    def evaluate(step: int) -> float:
        data = lab.generator("data", "evaluation")
        fixed = draws("evaluation")
        right, loss, count = 0, 0.0, 0
        for first in range(0, point.integer("evaluation_examples"), EVALUATION_BATCH):
            asked = sampler(data, min(EVALUATION_BATCH, point.integer("evaluation_examples") - first)).to(lab.device)
            answers = model.answers(asked, fixed)
            right += int((answers.argmax(2) == asked.targets).sum())
            loss += float(cross_entropy(answers, asked.targets)) * asked.targets.numel()
            count += asked.targets.numel()
        accuracies.append(right / count)
        losses.append(loss / count)
        return 1 - right / count

    training = train(
        loss_of_step,
        evaluate,
        optimiser,
        Stopping(steps, point.integer("evaluate_every"), target=1 - point.number("target")),
        learning_rate=lambda step: rate * 0.5 * (1 + math.cos(math.pi * (step - 1) / steps)),
        progress=lab.progress,
    )
    lab.record("recall_accuracy", accuracies[-1])
    lab.record("recall_loss", losses[-1])
    of_a_head = variant.state_floats(key_width, key_width, point.integer("length"))
    lab.record("state_floats", of_a_head * heads * len(model.attentions))
    lab.record("parameters", count_parameters(model))
    lab.record("training_steps", training.steps)
    lab.record("training_seconds", training.training_seconds + training.evaluation_seconds)
    lab.record("milliseconds_per_step", 1e3 * training.training_seconds / training.steps)
    at = [float(step) for step, _ in training.curve]
    lab.curve("recall_accuracy", "step", at, accuracies)
    lab.curve("evaluation_loss", "step", at, losses)


def training_batch(lab: Lab, sampler: Sampler, step: int, batch: int, examples: int) -> Recalls:
    """The sequences of a training step.

    With `examples` the training set has so many and is gone through again and again, in one order; with 0 none comes twice.
    """
    if not examples:
        return sampler(lab.generator("data", "training", step), batch)
    number = (step - 1) % math.ceil(examples / batch)
    return sampler(lab.generator("data", "training", number), min(batch, examples - number * batch))


def cross_entropy(answers: Tensor, targets: Tensor) -> Tensor:
    """Mean over all queries, in nats, of answers [B,N,vocabulary] against targets [B,N]."""
    return torch.nn.functional.cross_entropy(answers.flatten(0, 1), targets.flatten())
