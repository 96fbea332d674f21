"""Can a model work out nested lists of digits?

    [MAX 2 9 [MIN 4 7] 0]  ->  9

Ten classes, one a digit. A decoder-only Transformer reads the list, one token after the other, and its hidden state at
the last token, the bracket that closes the list, gives the scores: there every causal variant has read all. (A mean
over the tokens learned more slowly, for softmax and delta alike, and would hide what a memory has lost by the end.) The
encoders of Long Range Arena look both ways and read a token of their own; here every variant runs the causal forms that
its checks cover. Lists of a batch are of similar length and padded behind their ends, where causality keeps the padding
out of sight.

Training, validation and test lists are all different. The numbers are those of the last step on the test lists, which
nothing else sees; curves are on the validation lists. Beside the models stand two floors, counted on the training
lists: the most frequent class (`majority`), and the most frequent class under the list's first operator
(`first_operator`), which takes one token of the list. A model below the second has shown nothing of the lists' insides.

Source: arXiv:2011.04006, section 2.2.1, and its released configuration: at `paper` scale its lists, sample counts,
widths, batch, steps, optimiser and learning rate. Its dropout of 0.1 is left out, as not all variants have attention
weights to drop, and gradients are clipped at a norm of 1.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnbench.harness.errors import BadParameter
from attnbench.harness.lab import Lab
from attnbench.harness.models import Decoder, Shape, count_parameters, normal
from attnbench.harness.spec import Grid, Point, Suite
from attnbench.harness.training import Stopping, train
from attnbench.suites.tasks.nested_lists import CLASSES, PADDING, VOCABULARY, Bounds, Sample, depth_of, samples
from attnbench.variants.contract import Variant

VARIANTS = ("softmax", "linear", "performer-m64", "dpfp-nu1", "delta", "dpfp-nu1+delta", "delta+l2norm")
SORTED_BATCHES = 32
LISTS_AT_ONCE = 100

# the class that a list is counted under
FLOORS: dict[str, Callable[[Sample], int]] = {"majority": lambda one: 0, "first_operator": lambda one: one.tokens[0]}


def check(point: Point) -> None:
    """Refuse settings that do not go together. Raises BadParameter."""
    width, heads, key_width = (point.integer(name) for name in ("width", "heads", "key_width"))
    if width != heads * key_width:
        raise BadParameter(
            f"width is heads times key_width, here {heads} x {key_width} = {heads * key_width}, got {width}."
        )
    if point.integer("training_lists") < point.integer("batch"):
        raise BadParameter(
            f"a batch of {point.integer('batch')} needs as many training lists, got {point.integer('training_lists')}."
        )
    bounds_of(point).check(lists_of(point))


def bounds_of(point: Point) -> Bounds:
    """How many tokens the lists of a point have."""
    return Bounds(point.integer("shortest"), point.integer("longest"))


def lists_of(point: Point) -> int:
    """How many lists a point needs: for training, validation and test."""
    return point.integer("training_lists") + 2 * point.integer("evaluation_lists")


def _point(
    shortest: int,
    longest: int,
    *,
    lists: tuple[int, int],
    size: tuple[int, int, int, int],
    steps: int,
    learning_rate: float,
    warm_up: int,
    weight_decay: float = 0.01,
    batch: int = 32,
    evaluate_every: int,
) -> Point:
    """`lists` for training and for each evaluation; `size` is width, layers, heads, feed-forward."""
    width, layers, heads, feed_forward = size
    return Point(
        shortest=shortest,
        longest=longest,
        training_lists=lists[0],
        evaluation_lists=lists[1],
        width=width,
        layers=layers,
        heads=heads,
        key_width=width // heads,
        feed_forward=feed_forward,
        batch=batch,
        steps=steps,
        learning_rate=learning_rate,
        warm_up=warm_up,
        weight_decay=weight_decay,
        evaluate_every=evaluate_every,
    )


SUITE = Suite(
    name="listops",
    title="Nested lists",
    question="Can a model work out nested lists of digits?",
    source="arXiv:2011.04006, section 2.2.1",
    module=__name__,
    axis="longest",
    metrics=(
        "classification_accuracy",
        "classification_loss",
        "parameters",
        "state_floats",
        "milliseconds_per_step",
    ),
    scales={
        "smoke": Grid(
            variants=("softmax", "linear", "delta"),
            points=(
                _point(
                    6,
                    16,
                    lists=(64, 32),
                    size=(16, 1, 2, 32),
                    batch=8,
                    steps=10,
                    learning_rate=2e-3,
                    warm_up=2,
                    evaluate_every=5,
                ),
            ),
            timeout_seconds=120,
            seconds_per_case=1,
        ),
        "quick": Grid(
            variants=("softmax", "linear", "performer-m16", "dpfp-nu1", "delta"),
            points=(
                _point(
                    8,
                    24,
                    lists=(8000, 1000),
                    size=(64, 2, 4, 128),
                    steps=400,
                    learning_rate=3e-3,
                    warm_up=40,
                    evaluate_every=200,
                ),
            ),
            timeout_seconds=300,
            seconds_per_case=10,
        ),
        "standard": Grid(
            variants=VARIANTS,
            points=tuple(
                _point(
                    shortest,
                    longest,
                    lists=(40_000, 2000),
                    size=(64, 2, 4, 128),
                    steps=steps,
                    learning_rate=3e-3,
                    warm_up=300,
                    evaluate_every=1000,
                )
                for shortest, longest, steps in ((16, 64, 6000), (32, 128, 4000))
            ),
            timeout_seconds=3600,
            seconds_per_case=300,
        ),
        "paper": Grid(
            variants=VARIANTS,
            points=(
                # 500 < tokens < 2000; the rate is 0.05 / sqrt(1000 steps of warm-up)
                _point(
                    501,
                    1999,
                    lists=(96_000, 2000),
                    size=(512, 6, 8, 2048),
                    steps=5000,
                    learning_rate=1.5811e-3,
                    warm_up=1000,
                    weight_decay=0.1,
                    evaluate_every=500,
                ),
            ),
            timeout_seconds=24 * 3600,
            seconds_per_case=3600,
        ),
    },
    forms=("sdpa", "chunkwise", "gram", "parallel", "recurrent"),
    references=tuple(FLOORS),
    check=check,
)


@dataclass(frozen=True)
class Batch:
    """Lists of several lengths: tokens [B,T], padded behind their ends, lengths [B] and values [B]."""

    tokens: Tensor
    lengths: Tensor
    values: Tensor

    @classmethod
    def of(cls, lists: Sequence[Sample], device: torch.device) -> "Batch":
        """The lists as a batch on a device."""
        lengths = [len(one.tokens) for one in lists]
        longest = max(lengths)
        tokens = [[*one.tokens, *(longest - len(one.tokens)) * [PADDING]] for one in lists]
        values = [one.value for one in lists]
        return cls(*(torch.tensor(part, device=device) for part in (tokens, lengths, values)))


class Reader(nn.Module):
    """A decoder that reads a list, and a matrix from what it holds at the list's last token to the scores of the classes."""

    def __init__(
        self, variant: Variant, form: str, shape: Shape, generator: torch.Generator, head_generator: torch.Generator
    ) -> None:
        super().__init__()
        self.decoder = Decoder(variant, form, shape, generator)
        # from a generator of its own: the decoder draws more for variants that need more
        self.head = normal(shape.width, CLASSES, deviation=shape.width**-0.5, generator=head_generator)

    def forward(self, batch: Batch, draws: Sequence[Tensor | None] | None = None) -> Tensor:
        """Scores [B,10]."""
        hidden, _ = self.decoder(batch.tokens, draws=draws)
        return hidden[torch.arange(len(hidden), device=hidden.device), batch.lengths - 1] @ self.head


def measure(lab: Lab) -> None:
    """Accuracy of a trained model, or of a floor counted on the same lists."""
    point = lab.case.point
    drawn = samples(bounds_of(point), lists_of(point), lab.generator("data", "lists"))
    count = point.integer("evaluation_lists")
    training, validation, test = drawn[: -2 * count], drawn[-2 * count : -count], drawn[-count:]
    if lab.variant is None:
        answers = counted(training, test, FLOORS[lab.case.variant])
        _record_accuracy(lab, answers, test)
        return
    _measure_model(lab, training, validation, test)


def counted(training: Sequence[Sample], test: Sequence[Sample], group: Callable[[Sample], int]) -> list[int]:
    """For each test list the most frequent value of the training lists of its group; the smaller of two as frequent."""
    values: dict[int, Counter[int]] = {}
    for one in training:
        values.setdefault(group(one), Counter())[one.value] += 1
    everywhere = sum(values.values(), Counter[int]())

    def most_frequent(counts: Counter[int]) -> int:
        return min(counts, key=lambda value: (-counts[value], value))

    return [most_frequent(values.get(group(one), everywhere)) for one in test]


def _measure_model(
    lab: Lab, training_lists: Sequence[Sample], validation: Sequence[Sample], test: Sequence[Sample]
) -> None:
    """Train and evaluate the model of a case."""
    point = lab.case.point
    shape = Shape(VOCABULARY, *(point.integer(name) for name in ("width", "layers", "heads", "feed_forward")))
    model = Reader(lab.mechanism(), lab.case.form, shape, lab.generator("init"), lab.generator("init", "head")).to(
        lab.device
    )
    optimiser = torch.optim.AdamW(
        model.parameters(),
        lr=point.number("learning_rate"),
        betas=(0.9, 0.98),
        eps=1e-9,
        weight_decay=point.number("weight_decay"),
    )
    batches = batches_of_similar_length(training_lists, point.integer("batch"), lab.generator("data", "order"))
    steps, every = point.integer("steps"), point.integer("evaluate_every")
    accuracies: list[float] = []

    def draws(*parts: str | int) -> list[Tensor | None]:
        return [lab.draws(shape.heads, shape.head_width, *parts, layer=layer) for layer in range(shape.layers)]

    def loss_of_step(step: int) -> Tensor:
        batch = Batch.of(next(batches), lab.device)
        return functional.cross_entropy(model(batch, draws("training", step)), batch.values)

    def evaluate(step: int) -> float:
        answers, loss = answered(model, validation, draws("evaluation"), lab.device)
        accuracies.append(accuracy(answers, validation))
        return loss

    training = train(
        loss_of_step,
        evaluate,
        optimiser,
        Stopping(steps, evaluate_every=every),
        learning_rate=lambda step: point.number("learning_rate") * warm_up_then_root(step, point.integer("warm_up")),
        clip=1.0,
        progress=lab.progress,
    )
    with torch.no_grad():
        answers, loss = answered(model, test, draws("evaluation"), lab.device)
    _record_accuracy(lab, answers, test)
    lab.record("classification_loss", loss)
    lab.record("parameters", count_parameters(model))
    of_a_head = lab.mechanism().state_floats(shape.head_width, shape.head_width, point.integer("longest"))
    lab.record("state_floats", of_a_head * shape.heads * shape.layers)
    lab.record("training_steps", steps)
    lab.record("training_seconds", training.training_seconds + training.evaluation_seconds)
    lab.record("milliseconds_per_step", 1e3 * training.training_seconds / training.steps)
    ends = [step for step, _ in training.curve]
    evaluated = [float(step) for step in ends]
    lab.curve("evaluation_loss", "step", evaluated, [loss for _, loss in training.curve])
    lab.curve("evaluation_accuracy", "step", evaluated, accuracies)
    means = [
        sum(training.training_losses[before:step]) / (step - before)
        for before, step in zip([0, *ends], ends, strict=False)
    ]
    lab.curve("training_loss", "step", evaluated, means)


def answered(
    model: Reader, lists: Sequence[Sample], draws: Sequence[Tensor | None], device: torch.device
) -> tuple[list[int], float]:
    """The class with the highest score for each list, and the mean cross-entropy in nats."""
    answers, loss = [0] * len(lists), 0.0
    by_length = sorted(range(len(lists)), key=lambda place: len(lists[place].tokens))
    for first in range(0, len(lists), LISTS_AT_ONCE):
        places = by_length[first : first + LISTS_AT_ONCE]
        batch = Batch.of([lists[place] for place in places], device)
        scores = model(batch, draws)
        loss += functional.cross_entropy(scores, batch.values, reduction="sum").item()
        for place, answer in zip(places, scores.argmax(1).tolist(), strict=True):
            answers[place] = answer
    return answers, loss / len(lists)


def batches_of_similar_length(
    lists: Sequence[Sample], batch: int, generator: torch.Generator
) -> Iterator[list[Sample]]:
    """Batches for ever: each pass in a new order, of which stretches of 32 batches are sorted by length, then cut and mixed.

    The last lists of a pass that fill no batch wait for another pass.
    """
    while True:
        order = torch.randperm(len(lists), generator=generator).tolist()
        order = order[: len(lists) // batch * batch]
        for first in range(0, len(order), SORTED_BATCHES * batch):
            stretch = sorted(order[first : first + SORTED_BATCHES * batch], key=lambda place: len(lists[place].tokens))
            for number in torch.randperm(len(stretch) // batch, generator=generator).tolist():
                yield [lists[place] for place in stretch[number * batch : (number + 1) * batch]]


def warm_up_then_root(step: int, warm_up: int) -> float:
    """Share of the full learning rate at step 1, 2, ...: a linear rise, then a fall with the root of the step."""
    return step / warm_up if step <= warm_up else float((warm_up / step) ** 0.5)


def accuracy(answers: Iterable[int], lists: Sequence[Sample]) -> float:
    """The share of right answers."""
    return sum(answer == one.value for answer, one in zip(answers, lists, strict=True)) / len(lists)


def _record_accuracy(lab: Lab, answers: Sequence[int], test: Sequence[Sample]) -> None:
    """The accuracy, in all and by the depth of the lists."""
    lab.record("classification_accuracy", accuracy(answers, test))
    by_depth: dict[int, list[int]] = {}
    for place, one in enumerate(test):
        by_depth.setdefault(depth_of(one.tokens), []).append(place)
    depths = sorted(by_depth)
    lab.curve(
        "accuracy_by_depth",
        "depth",
        [float(depth) for depth in depths],
        [
            accuracy([answers[place] for place in by_depth[depth]], [test[place] for place in by_depth[depth]])
            for depth in depths
        ],
    )
