"""A translator trained as its point says: smoothed labels, the inverse square root of the step, the best weights kept.

Best is the validation text's loss, or its BLEU by greedy search. With `average` above one, the weights are in the end the
mean of those at as many last evaluations.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attnbench.harness.checkpoints import State
from attnbench.harness.data.pairs import PairSplit, ParallelCorpus
from attnbench.harness.lab import Lab
from attnbench.harness.models import Mechanisms, Translator, TranslatorDraws
from attnbench.harness.spec import Point
from attnbench.harness.training import Kept, Stopping, Training, train
from attnbench.suites.tasks.language.training import autocast
from attnbench.suites.tasks.translation.batches import Numbers, Updates, batch_of, cut
from attnbench.suites.tasks.translation.decoding import translate
from attnbench.suites.tasks.translation.points import shape_of
from attnbench.suites.tasks.translation.scores import bleu
from attnbench.suites.tasks.translation.softmax import SOFTMAX
from attnbench.variants.contract import Variant


@dataclass(frozen=True)
class Trained:
    """A translator with its final weights, how it came to them, and the validation losses on the way, in nats a token."""

    model: Translator
    training: Training
    draws: TranslatorDraws
    losses: tuple[tuple[int, float], ...]


def mechanisms_of(point: Point, variant: Variant, form: str) -> Mechanisms:
    """The attention of each place: what a point calls `same` is the variant's, anything else softmax."""
    encoder, cross = (variant if point.text(name) == "same" else SOFTMAX for name in ("encoder", "cross"))
    return Mechanisms(variant, form, encoder, cross)


def draws_of(lab: Lab, *of: str | int) -> TranslatorDraws:
    """What is random in each layer, drawn for `of`."""
    shape, mechanisms = shape_of(lab.case.point), mechanisms_of(lab.case.point, lab.mechanism(), lab.case.form)

    def layers(place: str, variant: Variant) -> list[Tensor | None]:
        if variant is SOFTMAX:
            return [None] * shape.layers
        return [lab.draws(shape.heads, shape.head_width, *of, place, layer=layer) for layer in range(shape.layers)]

    return TranslatorDraws(
        layers("encoder", mechanisms.encoder),
        layers("decoder", mechanisms.decoder),
        layers("cross", mechanisms.cross),
    )


def train_model(lab: Lab, text: ParallelCorpus) -> Trained:
    """Train the model of a case."""
    point = lab.training_point
    model = Translator(mechanisms_of(point, lab.mechanism(), lab.case.form), shape_of(point), lab.generator("init")).to(
        lab.device
    )
    optimiser = torch.optim.AdamW(
        model.parameters(),
        lr=point.number("learning_rate"),
        betas=(0.9, point.number("beta2")),
        weight_decay=point.number("weight_decay"),
    )

    def order(what: str, epoch: int, count: int) -> Numbers:
        return torch.randperm(count, generator=lab.generator("data", what, epoch)).numpy()

    updates = Updates(
        text.train,
        point.integer("tokens_at_once"),
        point.integer("tokens_per_update"),
        point.integer("longest"),
        order,
    )
    steps, average = point.integer("steps"), point.integer("average")
    best: dict[str, Tensor] = {}
    last: list[dict[str, Tensor]] = []
    losses: list[tuple[int, float]] = []
    evaluation = draws_of(lab, "evaluation")

    def losses_of_step(step: int) -> Iterator[Tensor]:
        batches, draws = updates.at(step), draws_of(lab, "training", step)
        tokens = sum(int(text.train.target.lengths[numbers].sum()) for numbers in batches)
        for numbers in batches[lab.processes.rank :: lab.processes.count]:
            batch = batch_of(text.train, numbers, lab.device)
            with autocast(lab.device, point):
                nats = model.nll(batch.source, batch.target, batch.follows, draws, point.number("smoothing"))
            # the training loop takes the mean over processes, each of which has a part of the sum
            yield (nats * batch.counts).sum() * (lab.processes.count / tokens)

    def evaluate(step: int) -> float:
        with autocast(lab.device, point):
            loss = loss_of(model, text.validation, evaluation, point.integer("tokens_at_once"))
            losses.append((step, loss))
            if average > 1:
                last.append(_weights(model))
                del last[:-average]
            return loss if point.text("choose") == "loss" else 100.0 - _validation_bleu(model, text, evaluation)

    def on_best(step: int) -> None:
        best.clear()
        # the last weights need no copy
        if step < steps:
            best.update(_weights(model))

    def state() -> State:
        return {"model": model.state_dict(), "best": best, "last": last, "losses": losses}

    def restore(saved: State) -> None:
        model.load_state_dict(saved["model"])
        best.update(saved["best"])
        last[:] = saved["last"]
        losses[:] = [(int(step), float(loss)) for step, loss in saved["losses"]]

    training = train(
        losses_of_step,
        evaluate,
        optimiser,
        Stopping(
            steps,
            evaluate_every=min(point.integer("evaluate_every"), steps),
            patience=point.integer("patience") or None,
        ),
        learning_rate=lambda step: (
            point.number("learning_rate") * warm_up_then_inverse_root(step, point.integer("warm_up"))
        ),
        clip=point.number("clip") or None,
        progress=lab.progress,
        on_best=on_best,
        seed_of_step=lambda step: lab.seed("dropout", step, lab.processes.rank),
        kept=Kept(lab.checkpoint(), state, restore),
        processes=lab.processes,
    )
    if average > 1:
        model.load_state_dict({name: torch.stack([one[name] for one in last]).mean(0) for name in last[0]})
    elif best:
        model.load_state_dict(best)
    return Trained(model, training, evaluation, tuple(losses))


def loss_of(model: Translator, pairs: PairSplit, draws: TranslatorDraws, at_once: int) -> float:
    """The mean negative log-likelihood of a target token, in nats, ends counted, without smoothing."""
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    nats, tokens = 0.0, 0
    with torch.no_grad():
        for numbers in cut(pairs, np.arange(len(pairs)), at_once):
            batch = batch_of(pairs, numbers, device)
            found = model.nll(batch.source, batch.target, batch.follows, draws)
            nats += float((found * batch.counts).sum(dtype=torch.float64))
            tokens += batch.tokens
    model.train(was_training)
    return nats / tokens


def _validation_bleu(model: Translator, text: ParallelCorpus, draws: TranslatorDraws) -> float:
    found = translate(model, text.validation.source, draws)
    return bleu([text.decode(one.tokens) for one in found.hypotheses], text.validation.references).value


def _weights(model: Translator) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def warm_up_then_inverse_root(step: int, warm_up: int) -> float:
    """Share of the full learning rate at step 1, 2, ...: a linear rise, then as one over the root of the step."""
    return step / warm_up if step <= warm_up else (warm_up / step) ** 0.5
