"""The one training loop: steps, evaluations, early stopping, and a loss that is not finite."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbench.harness.errors import Diverged


@dataclass(frozen=True)
class Stopping:
    """When training ends: at `max_steps`, at an evaluation of `target` or less, or after `patience` evaluations in a row
    without a new best. An evaluation follows every `evaluate_every` steps and the last one.
    """

    max_steps: int
    evaluate_every: int
    patience: int | None = None
    target: float | None = None


@dataclass(frozen=True)
class Training:
    """What training came to. `curve` has the evaluations as (step, loss); seconds are wall time."""

    best_loss: float
    best_step: int
    last_loss: float
    steps: int
    ending: str
    curve: tuple[tuple[int, float], ...]
    training_losses: tuple[float, ...]
    training_seconds: float
    evaluation_seconds: float


def train(
    loss_of_step: Callable[[int], Tensor],
    evaluate: Callable[[int], float],
    optimiser: torch.optim.Optimizer,
    stopping: Stopping,
    *,
    learning_rate: Callable[[int], float] | None = None,
    clip: float | None = None,
    progress: Callable[[float, str], None] = lambda fraction, note: None,
    on_best: Callable[[int], None] = lambda step: None,
) -> Training:
    """Train until `stopping` says so.

    `loss_of_step(step)` gives the loss of step 1, 2, ... on fresh data; `evaluate(step)` the evaluation loss.
    `learning_rate(step)` sets the rate before each step; `clip` bounds the gradient norm. `on_best(step)` is called after
    each evaluation that is the best so far. Raises Diverged at the first loss that is not finite.
    """
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    curve: list[tuple[int, float]] = []
    losses: list[float] = []
    best_loss, best_step, since_best = math.inf, 0, 0
    last_finite: float | None = None
    training_seconds = evaluation_seconds = 0.0
    step, ending = 0, "steps"
    for step in range(1, stopping.max_steps + 1):
        started = time.perf_counter()
        if learning_rate is not None:
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(step)
        optimiser.zero_grad(set_to_none=True)
        loss = loss_of_step(step)
        value = loss.item()
        if not math.isfinite(value):
            raise Diverged(step, last_finite)
        last_finite = value
        losses.append(value)
        loss.backward()  # type: ignore[no-untyped-call]
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, clip)
        optimiser.step()
        training_seconds += time.perf_counter() - started
        progress(step / stopping.max_steps, f"step {step}, loss {value:.4g}")
        if step % stopping.evaluate_every and step != stopping.max_steps:
            continue
        started = time.perf_counter()
        with torch.no_grad():
            evaluated = evaluate(step)
        evaluation_seconds += time.perf_counter() - started
        if not math.isfinite(evaluated):
            raise Diverged(step, last_finite)
        curve.append((step, evaluated))
        if evaluated < best_loss:
            best_loss, best_step, since_best = evaluated, step, 0
            on_best(step)
        else:
            since_best += 1
        if stopping.target is not None and evaluated <= stopping.target:
            ending = "target"
            break
        if stopping.patience is not None and since_best >= stopping.patience:
            ending = "patience"
            break
    return Training(
        best_loss,
        best_step,
        curve[-1][1],
        step,
        ending,
        tuple(curve),
        tuple(losses),
        training_seconds,
        evaluation_seconds,
    )
