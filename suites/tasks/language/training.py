"""A language model trained as its point says, its memory carried from segment to segment where the suite wants that.

Gradients reach as far back as a segment; the memory that is carried is cut off from its history and is empty at the
beginning of each pass through the text.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbench.harness.checkpoints import State
from attnbench.harness.data.corpus import Corpus, Split
from attnbench.harness.errors import BadParameter
from attnbench.harness.lab import Lab
from attnbench.harness.models import Decoder, detached, kept
from attnbench.harness.spec import Point
from attnbench.harness.training import Kept, Stopping, Training, train
from attnbench.suites.tasks.language.batches import batches
from attnbench.suites.tasks.language.points import shape_of
from attnbench.suites.tasks.language.scoring import Draws, Scored
from attnbench.variants.contract import Memory

# how a trained model is scored on a text
Scorer = Callable[[Decoder, Tensor, Draws], Scored]


@dataclass(frozen=True)
class Trained:
    """A model with the weights that did best on the validation text, and how it came to them."""

    model: Decoder
    training: Training
    draws: Draws


def train_model(lab: Lab, text: Corpus, score: Scorer, *, carries: bool) -> Trained:
    """Train the model of a case; `score` is what the validation text is scored by."""
    point, variant = lab.training_point, lab.mechanism()
    shape = shape_of(point)
    model = Decoder(variant, lab.case.form, shape, lab.generator("init")).to(lab.device)
    optimiser = torch.optim.AdamW(
        model.parameters(),
        lr=point.number("learning_rate"),
        betas=(0.9, point.number("beta2")),
        weight_decay=point.number("weight_decay"),
    )
    read = batches(
        point.text("order"),
        torch.from_numpy(text.train.stream.copy()),
        point.integer("batch"),
        point.integer("context"),
        lambda step: lab.generator("data", "windows", step),
    )
    validation = preceded(text, text.validation)
    steps, parts = point.integer("steps"), point.integer("accumulation")
    if point.integer("batch") % (parts * lab.processes.count):
        raise BadParameter(
            f"a batch of {point.integer('batch')} cannot be cut evenly into {parts} parts for each of "
            f"{lab.processes.count} processes. Change batch, accumulation or the number of processes."
        )
    memories: list[list[Memory] | None] = [None] * parts
    best: dict[str, Tensor] = {}

    def draws(*of: str | int) -> Draws:
        return [lab.draws(shape.heads, shape.head_width, *of, layer=layer) for layer in range(shape.layers)]

    def losses_of_step(step: int) -> Iterator[Tensor]:
        batch, drawn = read.at(step), draws("training", step)
        for part, rows in enumerate(lab.processes.share(batch.rows).to(lab.device).chunk(parts)):
            past = memories[part] if carries and not batch.begins else None
            with autocast(lab.device, point):
                nats, carried = model.nll(rows[:, :-1], rows[:, 1:], past, drawn)
            if carries:
                memories[part] = kept(variant, detached(carried), point.integer("memory"))
            yield nats.mean() / parts

    def evaluate(step: int) -> float:
        with autocast(lab.device, point):
            return score(model, validation, draws("evaluation")).mean

    def on_best(step: int) -> None:
        if step < steps:
            best.update({name: tensor.detach().clone() for name, tensor in model.state_dict().items()})
        else:
            best.clear()

    def state() -> State:
        return {"model": model.state_dict(), "memories": memories, "best": best}

    def restore(saved: State) -> None:
        model.load_state_dict(saved["model"])
        memories[:] = [_on_device(memory, lab.device) for memory in saved["memories"]]
        best.update(saved["best"])

    training = train(
        losses_of_step,
        evaluate,
        optimiser,
        Stopping(steps, evaluate_every=min(point.integer("evaluate_every"), steps)),
        learning_rate=lambda step: (
            point.number("learning_rate") * warm_up_then_cosine(step, steps, point.integer("warm_up"))
        ),
        clip=point.number("clip"),
        progress=lab.progress,
        on_best=on_best,
        said=lambda loss: f"perplexity {math.exp(min(loss, 700)):.4g}",
        seed_of_step=lambda step: lab.seed("dropout", step, lab.processes.rank),
        kept=Kept(lab.checkpoint(), state, restore, own=("memories",)),
        processes=lab.processes,
    )
    if best:
        model.load_state_dict(best)
    return Trained(model, training, draws("evaluation"))


def _on_device(memories: list[Memory] | None, device: torch.device) -> list[Memory] | None:
    if memories is None:
        return None
    return [{name: tensor.to(device) for name, tensor in memory.items()} for memory in memories]


def preceded(text: Corpus, split: Split) -> Tensor:
    """The tokens of a part with an end of line before the first, [N+1]."""
    return torch.cat([torch.tensor([text.end_of_line]), torch.from_numpy(split.stream.copy()).long()])


def autocast(device: torch.device, point: Point) -> AbstractContextManager[object]:
    """Matrix products in bfloat16 where the point says so; attention keeps its state in float32."""
    if point.text("precision") == "bfloat16":
        return torch.autocast(device.type, torch.bfloat16)
    return contextlib.nullcontext()


def warm_up_then_cosine(step: int, steps: int, warm_up: int) -> float:
    """Share of the full learning rate at step 1 ... steps: a linear rise, then a cosine to zero."""
    if step <= warm_up:
        return step / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))
