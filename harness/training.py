"""The one training loop: steps, evaluations, early stopping, a loss that is not finite, and going on after a kill."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from attnbench.harness.checkpoints import Checkpoint, State
from attnbench.harness.errors import Diverged
from attnbench.harness.processes import ALONE, Processes


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
    """What training came to. `curve` has the evaluations as (step, loss); seconds are wall time, those before a kill included.

    `resumed_at` is the step from which this process went on: 0 from the beginning, `steps` where all had been done before.
    """

    best_loss: float
    best_step: int
    last_loss: float
    steps: int
    ending: str
    curve: tuple[tuple[int, float], ...]
    training_losses: tuple[float, ...]
    training_seconds: float
    evaluation_seconds: float
    resumed_at: int = 0


@dataclass(frozen=True)
class Kept:
    """What a training is gone on from: its checkpoint (None: nothing is kept), and the caller's part of what is in it.

    `state()` gives what the caller owns (model weights, carried memories, the best weights so far) in plain dicts, lists,
    numbers and tensors; `restore(state)` puts it back. Of several processes each has its own of the entries that `own`
    names; the rest is that of the first.
    """

    checkpoint: Checkpoint | None
    state: Callable[[], State]
    restore: Callable[[State], None]
    own: tuple[str, ...] = ()


@dataclass
class _Course:
    """How far a training has come. `ending` is empty while it goes on."""

    step: int = 0
    ending: str = ""
    curve: list[tuple[int, float]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    best_loss: float = math.inf
    best_step: int = 0
    since_best: int = 0
    training_seconds: float = 0.0
    evaluation_seconds: float = 0.0

    def state(self) -> State:
        return {**vars(self), "losses": torch.tensor(self.losses, dtype=torch.float64)}

    @classmethod
    def of(cls, state: State) -> "_Course":
        return cls(**{**state, "losses": state["losses"].tolist()})


def train(
    loss_of_step: Callable[[int], Tensor | Iterable[Tensor]],
    evaluate: Callable[[int], float],
    optimiser: torch.optim.Optimizer,
    stopping: Stopping,
    *,
    learning_rate: Callable[[int], float] | None = None,
    clip: float | None = None,
    progress: Callable[[float, str], None] = lambda fraction, note: None,
    said: Callable[[float], str] = lambda loss: "",
    on_best: Callable[[int], None] = lambda step: None,
    seed_of_step: Callable[[int], int] | None = None,
    kept: Kept | None = None,
    processes: Processes = ALONE,
) -> Training:
    """Train until `stopping` says so.

    `loss_of_step(step)` gives the loss of step 1, 2, ... on fresh data, or its parts one after the other: each is
    backpropagated before the next is asked for, and the loss is their sum. `evaluate(step)` gives the evaluation loss.
    `learning_rate(step)` sets the rate before each step; `clip` bounds the gradient norm. `on_best(step)` is called after
    each evaluation that is the best so far. `progress` is told the step, its loss, what `said(loss)` adds, and the time left.

    With `kept`, a training that was killed goes on from its last checkpoint as if nothing had been: on a CPU to the same
    bits, provided that what is random in a step hangs on the step alone. Hence `seed_of_step(step)`, which torch's global
    generator (dropout) is seeded with before each step.

    Several `processes` take the same steps: gradients and losses are means over all of them.

    Raises Diverged at the first loss that is not finite; nothing is kept then. Raises PeerLost when a process is gone.
    """
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    checkpoint = None if kept is None else kept.checkpoint
    course = _Course()
    if kept is not None and checkpoint is not None:
        course = _restored(kept, checkpoint, optimiser, processes) or course
    resumed_at, started = course.step, time.monotonic()

    def take_step(step: int) -> bool:
        """One step; whether a checkpoint is due after it."""
        if learning_rate is not None:
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(step)
        if seed_of_step is not None:
            torch.manual_seed(seed_of_step(step))
        optimiser.zero_grad(set_to_none=True)
        value = _backpropagated(loss_of_step(step))
        # all stop at a loss that only one of them finds not finite, and all save when the first has the time for it
        is_due = checkpoint is not None and processes.is_first and checkpoint.is_due(step)
        total, due = processes.totals(value, float(is_due))
        loss = total / processes.count
        if not math.isfinite(loss):
            raise Diverged(step, course.losses[-1] if course.losses else None)
        processes.average_gradients(parameters)
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, clip)
        optimiser.step()
        course.step = step
        course.losses.append(loss)
        return due > 0

    def look(step: int) -> str:
        """One evaluation; why training ends with it, empty where it goes on."""
        with torch.no_grad():
            loss = processes.from_first(evaluate(step))
        if not math.isfinite(loss):
            raise Diverged(step, course.losses[-1])
        course.curve.append((step, loss))
        if loss < course.best_loss:
            course.best_loss, course.best_step, course.since_best = loss, step, 0
            on_best(step)
        else:
            course.since_best += 1
        if stopping.target is not None and loss <= stopping.target:
            return "target"
        if stopping.patience is not None and course.since_best >= stopping.patience:
            return "patience"
        return "steps" if step >= stopping.max_steps else ""

    def note(step: int) -> str:
        """What is told of a step."""
        each = (time.monotonic() - started) / (step - resumed_at)
        loss, left = course.losses[-1], _left(each * (stopping.max_steps - step))
        return ", ".join(filter(None, (f"step {step}", f"loss {loss:.4g}", said(loss), left)))

    try:
        while not course.ending:
            step = course.step + 1
            before = time.perf_counter()
            is_due = take_step(step)
            course.training_seconds += time.perf_counter() - before
            progress(step / stopping.max_steps, note(step))
            if step % stopping.evaluate_every == 0 or step >= stopping.max_steps:
                before = time.perf_counter()
                course.ending = look(step)
                course.evaluation_seconds += time.perf_counter() - before
            if kept is not None and checkpoint is not None:
                if course.ending:
                    seconds = course.training_seconds + course.evaluation_seconds
                    is_due = processes.from_first(checkpoint.keeps(step, seconds))
                if is_due:
                    _save(kept, checkpoint, course, optimiser, processes)
    except Diverged:
        if checkpoint is not None and processes.is_first:
            checkpoint.remove()
        raise
    return Training(
        course.best_loss,
        course.best_step,
        course.curve[-1][1],
        course.step,
        course.ending,
        tuple(course.curve),
        tuple(course.losses),
        course.training_seconds,
        course.evaluation_seconds,
        resumed_at,
    )


def _backpropagated(parts: Tensor | Iterable[Tensor]) -> float:
    """The sum of the parts of a loss, each backpropagated before the next is made, up to the first that is not finite."""
    total = 0.0
    for part in (parts,) if isinstance(parts, Tensor) else parts:
        total += part.item()
        if not math.isfinite(total):
            break
        part.backward()
    return total


def _save(
    kept: Kept, checkpoint: Checkpoint, course: _Course, optimiser: torch.optim.Optimizer, processes: Processes
) -> None:
    """Write how far all processes have come. Of a training that has ended, what only training needs is left out."""
    state = dict(kept.state())
    own = processes.gathered({name: state.pop(name) for name in kept.own})
    if not processes.is_first:
        return
    whole: State = {"course": course.state(), "caller": state, "own": own}
    if not course.ending:
        whole["optimiser"] = optimiser.state_dict()
    checkpoint.save(course.step, whole, is_finished=bool(course.ending))


def _restored(
    kept: Kept, checkpoint: Checkpoint, optimiser: torch.optim.Optimizer, processes: Processes
) -> _Course | None:
    """How far an earlier process has come, with the caller and the optimiser put there. One process reads for all."""
    saved = processes.from_first(checkpoint.load() if processes.is_first else None)
    if saved is None:
        return None
    kept.restore({**saved.state["caller"], **saved.state["own"][processes.rank]})
    if not saved.is_finished:
        optimiser.load_state_dict(saved.state["optimiser"])
    checkpoint.resumed_at = saved.step
    return _Course.of(saved.state["course"])


def _left(seconds: float) -> str:
    """The time left in words; none for less than a second."""
    if seconds < 1:
        return ""
    if seconds < 90:
        return f"{seconds:.0f} s left"
    return f"{seconds / 60:.0f} min left" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h left"
