"""What training and scoring a language model takes, without its text: for that, Zipf's law stands in.

How long the held-out parts are is known of a text that is published with its counts, and of one that is in the cache; else
scoring is left out.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from attnbench.harness.costs import Cost, Evaluation, of_training, zipf_words
from attnbench.harness.data.catalogue import data_set
from attnbench.harness.data.fetch import is_cached
from attnbench.harness.lab import Lab
from attnbench.harness.models import Decoder, Memories
from attnbench.harness.spec import Point
from attnbench.suites.tasks.language.points import shape_of
from attnbench.suites.tasks.language.recording import text_of
from attnbench.suites.tasks.language.training import autocast


@dataclass(frozen=True)
class Lengths:
    """Tokens of the test part, and of the validation part; how often training looks at the latter."""

    test: int
    validation: int
    looks: int


@dataclass(frozen=True)
class Reading:
    """`calls` calls of the model on `tokens` tokens each, the last `scored` of them scored, behind a memory of so many tokens
    where it grows.
    """

    calls: int
    tokens: int
    scored: int
    memory: int = 0


@dataclass(frozen=True)
class Step:
    """The training step of a case: `model(layers)` on the CPU, `loss(model, sequences)`, and how many go through it together.

    `draws` are what is random in the variant, one entry a layer.
    """

    model: Callable[[int], Decoder]
    loss: Callable[[nn.Module, int], Tensor]
    layers: int
    at_once: int
    draws: Sequence[Tensor | None]


def step_of(lab: Lab, point: Point, memory: int = 0) -> Step:
    """The step at a point, with a memory of so many tokens where it grows. Words are Zipf's."""
    shape, context = shape_of(point), point.integer("context")
    draws = [lab.draws(shape.heads, shape.head_width, "cost", layer=layer) for layer in range(shape.layers)]

    def loss(model: nn.Module, sequences: int) -> Tensor:
        assert isinstance(model, Decoder)
        rows = _words(model, sequences, context + 1)
        past = _remembered(model, rows[:, :1], memory, draws)
        with autocast(rows.device, point):
            return model.nll(rows[:, :-1], rows[:, 1:], past, draws)[0].mean()

    return Step(
        lambda layers: Decoder(lab.mechanism(), lab.case.form, replace(shape, layers=layers), lab.generator("init")),
        loss,
        shape.layers,
        point.integer("batch") // (point.integer("accumulation") * lab.case.processes),
        draws,
    )


def cost_of(lab: Lab, readings: Callable[[Lengths], Sequence[Reading]], memory: int = 0) -> Cost:
    """The cost of a case: of training with a memory of so many tokens, where it grows, and of what is read afterwards."""
    point = lab.training_point
    step, steps = step_of(lab, point, memory), point.integer("steps")

    def evaluation(reading: Reading) -> Evaluation:
        def read(model: nn.Module) -> None:
            assert isinstance(model, Decoder)
            row = _words(model, 1, reading.tokens)
            hidden, _ = model(row, _remembered(model, row[:, :1], reading.memory, step.draws), step.draws)
            model.words.nll(hidden[:, -reading.scored :], row[:, -reading.scored :])

        return Evaluation(read, reading.calls, reading.calls * reading.scored)

    held_out = _held_out(lab)
    looks = math.ceil(steps / min(point.integer("evaluate_every"), steps))
    return of_training(
        step.model,
        step.loss,
        layers=step.layers,
        batch=point.integer("batch"),
        at_once=step.at_once,
        tokens=point.integer("context"),
        steps=steps,
        evaluations=() if held_out is None else [evaluation(one) for one in readings(Lengths(*held_out, looks))],
        device=lab.device,
    )


def _words(model: Decoder, *of: int) -> Tensor:
    """Zipf's words where the model is."""
    return zipf_words(model.shape.vocabulary, *of).to(next(model.parameters()).device)


def _held_out(lab: Lab) -> tuple[int, int] | None:
    """Tokens of the test part and of the validation part, where they are known."""
    point = lab.case.point
    hub = data_set(point.text("data")).hub
    if hub is not None and hub.words is not None and point.text("tokeniser") == "words":
        _, validation, test = hub.words
        return test, validation
    if not is_cached(point.text("data"), lab.cache):
        return None
    text = text_of(lab)
    return text.test.tokens, text.validation.tokens


def _remembered(model: Decoder, first: Tensor, tokens: int, draws: Sequence[Tensor | None]) -> Memories | None:
    """A memory of so many tokens, all like the `first` [B,1]; None where the memory does not grow, as its size costs nothing more."""
    if not tokens or model.variant.keep is None:
        return None
    with torch.no_grad():
        _, memories = model(first, None, draws)
    return [{name: one.expand(-1, tokens, *one.shape[2:]) for name, one in memory.items()} for memory in memories]
