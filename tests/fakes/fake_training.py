"""A suite that trains: a small model with dropout and a memory that is carried along, checkpointed every five steps.

Its case says what happens on the way; what it came to is in its curves, to the bit.
"""

import math
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from attnbench.harness.spec import Grid, Point, Suite

if TYPE_CHECKING:
    from attnbench.harness.lab import Lab

# a file that holds up all processes of a case at step HELD_AT while it is there; beside it each leaves one with its number
GATE = "FAKE_TRAINING_GATE"
HELD_AT = 13
EVERY_STEPS = 5
STEPS = 24
ROWS, WIDTH = 8, 4

FAKE_TRAINING = Suite(
    name="fake_training",
    title="Fake training",
    question="Where does a training go on that was killed?",
    source="none",
    module="fake_training",
    axis="stride",
    metrics=("training_loss",),
    scales={"smoke": Grid(variants=(), points=(Point(does="dropout", stride=1),), timeout_seconds=600)},
    forms=("none",),
    references=("nobody",),
    evaluation=("stride",),
    spreads=True,
)


def measure(lab: "Lab") -> None:
    """Train, and keep all losses, evaluations and weights as curves."""
    import torch
    from torch import Tensor, nn

    from attnbench.harness.training import Kept, Stopping, train

    does = lab.training_point.text("does")
    _begin(does, lab.processes.rank)
    model = nn.ParameterDict({name: nn.Parameter(torch.zeros(WIDTH, WIDTH)) for name in ("write", "carry", "read")})
    for parameter in model.values():
        nn.init.normal_(parameter, generator=lab.generator("init"))
    # some parameters get no gradient
    model["unused"] = nn.Parameter(torch.ones(2))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    carried = {"memory": lab.processes.share(torch.zeros(ROWS, WIDTH))}
    best: dict[str, Tensor] = {}
    taken: list[int] = []

    def losses_of_step(step: int) -> "list[Tensor]":
        taken.append(step)
        if step == HELD_AT:
            _wait_at_the_gate(lab.processes.rank)
        data = torch.randn(ROWS, WIDTH, generator=lab.generator("data", step))
        x = lab.processes.share(data)
        hidden = torch.tanh(x @ model["write"] + carried["memory"] @ model["carry"])
        carried["memory"] = hidden.detach()
        read = nn.functional.dropout(hidden, 0.2, training=does == "dropout") @ model["read"]
        return [(read - x.sum(1, keepdim=True)).square().mean()]

    def evaluate(step: int) -> float:
        data = torch.randn(ROWS, WIDTH, generator=lab.generator("data", "evaluation"))
        return (torch.tanh(data @ model["write"]) @ model["read"] - 1).square().mean().item()

    def restore(state: dict[str, dict[str, Tensor]]) -> None:
        model.load_state_dict(state["model"])
        carried.update(state["carried"])
        best.update(state["best"])

    training = train(
        losses_of_step,
        evaluate,
        optimiser,
        Stopping(STEPS, evaluate_every=4),
        learning_rate=lambda step: 0.01 * (1 + math.cos(math.pi * step / STEPS)),
        clip=1.0,
        progress=lab.progress,
        on_best=lambda step: best.update({name: one.detach().clone() for name, one in model.items()}),
        seed_of_step=lambda step: lab.seed("dropout", step),
        kept=Kept(
            lab.checkpoint(every_steps=EVERY_STEPS),
            lambda: {"model": model.state_dict(), "carried": carried, "best": best},
            restore,
            own=("carried",),
        ),
        processes=lab.processes,
    )
    lab.record("training_loss", training.training_losses[-1])
    lab.curve("losses", "step", list(range(1, STEPS + 1)), list(training.training_losses))
    lab.curve("evaluations", "step", [step for step, _ in training.curve], [loss for _, loss in training.curve])
    for name, weights in (("weights", dict(model)), ("best", best)):
        numbers = torch.cat([weights[one].detach().flatten() for one in sorted(weights)]).tolist()
        lab.curve(name, "number", list(range(len(numbers))), numbers)
    lab.curve("taken", "number", list(range(len(taken))), [float(step) for step in taken])


def _begin(does: str, rank: int) -> None:
    """What befalls the second process on its way."""
    if does == "peer is killed" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def _wait_at_the_gate(rank: int) -> None:
    if GATE in os.environ:
        gate = Path(os.environ[GATE])
        gate.with_name(f"held-{rank}-{os.getpid()}").touch()
        deadline = time.monotonic() + 600
        while gate.exists() and time.monotonic() < deadline:
            time.sleep(0.005)
