"""The training loop: it follows the published update, stops when it should, and tells a loss that is not finite."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from attnbench.harness.errors import Diverged
from attnbench.harness.training import Stopping, Training, train


class Slope:
    """The loss w x target on one number w, whose gradient is the target; evaluations are given."""

    def __init__(self, evaluations: list[float] | None = None, start: float = 1.0) -> None:
        self.w = nn.Parameter(torch.tensor(start))
        self.optimiser = torch.optim.SGD([self.w], lr=0.1)
        self.evaluations = evaluations
        self.evaluated_at: list[int] = []
        self.best_at: list[int] = []

    def loss(self, step: int) -> Tensor:
        return self.w

    def evaluate(self, step: int) -> float:
        assert not torch.is_grad_enabled()
        self.evaluated_at.append(step)
        return self.w.item() if self.evaluations is None else self.evaluations[len(self.evaluated_at) - 1]

    def train(self, stopping: Stopping, **more: object) -> Training:
        return train(self.loss, self.evaluate, self.optimiser, stopping, on_best=self.best_at.append, **more)  # type: ignore[arg-type]


def test_training_takes_every_step_and_evaluates_at_intervals_and_at_the_end() -> None:
    slope = Slope()
    trained = slope.train(Stopping(max_steps=7, evaluate_every=3))
    # each step takes 0.1 off: the loss before the step, the evaluation after it
    assert trained.training_losses == pytest.approx([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    assert slope.evaluated_at == [3, 6, 7]
    assert [step for step, _ in trained.curve] == [3, 6, 7]
    assert [loss for _, loss in trained.curve] == pytest.approx([0.7, 0.4, 0.3])
    assert (trained.steps, trained.ending, trained.best_step) == (7, "steps", 7)
    assert (trained.best_loss, trained.last_loss) == pytest.approx((0.3, 0.3))
    assert trained.training_seconds > 0
    assert trained.evaluation_seconds > 0


def test_training_ends_at_the_first_evaluation_that_reaches_the_target() -> None:
    slope = Slope([0.5, 0.01, 0.001])
    trained = slope.train(Stopping(max_steps=100, evaluate_every=10, target=0.01))
    assert (trained.steps, trained.ending, trained.best_loss) == (20, "target", 0.01)


def test_training_ends_after_as_many_evaluations_as_its_patience_without_a_new_best() -> None:
    # the best is the second; with a patience of 3 the third in a row that is not better is the last
    slope = Slope([0.5, 0.4, 0.4, 0.45, 0.41, 0.1])
    trained = slope.train(Stopping(max_steps=100, evaluate_every=1, patience=3))
    assert (trained.steps, trained.ending, trained.best_step) == (5, "patience", 2)
    assert (trained.best_loss, trained.last_loss) == (0.4, 0.41)


def test_a_new_best_restores_patience() -> None:
    slope = Slope([0.5, 0.6, 0.4, 0.6, 0.3, 0.6, 0.7])
    assert slope.train(Stopping(max_steps=7, evaluate_every=1, patience=2)).steps == 7


def test_every_new_best_is_told() -> None:
    slope = Slope([0.5, 0.6, 0.4])
    slope.train(Stopping(max_steps=6, evaluate_every=2))
    assert slope.best_at == [2, 6]


def test_the_learning_rate_is_set_before_each_step() -> None:
    slope = Slope()
    trained = slope.train(Stopping(max_steps=3, evaluate_every=3), learning_rate=lambda step: step / 10)
    assert trained.training_losses == pytest.approx([1.0, 0.9, 0.7])


def test_gradients_are_clipped_to_the_bound() -> None:
    slope = Slope()
    trained = slope.train(Stopping(max_steps=2, evaluate_every=2), clip=0.5)
    assert trained.training_losses == pytest.approx([1.0, 0.95])


def test_progress_is_told_after_each_step() -> None:
    told: list[tuple[float, str]] = []
    Slope().train(
        Stopping(max_steps=2, evaluate_every=2), progress=lambda fraction, note: told.append((fraction, note))
    )
    assert told == [(0.5, "step 1, loss 1"), (1.0, "step 2, loss 0.9")]


def diverges(at: int, value: float) -> Callable[[int], Tensor]:
    w = nn.Parameter(torch.tensor(1.0))
    return lambda step: w * (value if step == at else 0.5)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_told_with_its_step_and_the_last_that_was(value: float) -> None:
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.0)
    with pytest.raises(Diverged, match=r"the loss was not finite at step 3 \(last finite loss 0\.5\)") as problem:
        train(diverges(3, value), lambda step: 0.0, optimiser, Stopping(10, 10))
    assert (problem.value.step, problem.value.last_finite_loss) == (3, 0.5)


def test_a_first_loss_that_is_not_finite_has_none_before_it() -> None:
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.0)
    with pytest.raises(Diverged, match=r"the loss was not finite at step 1 \(none was finite\)"):
        train(diverges(1, math.nan), lambda step: 0.0, optimiser, Stopping(10, 10))


def test_an_evaluation_that_is_not_finite_has_diverged_too() -> None:
    with pytest.raises(Diverged, match=r"at step 4 \(last finite loss 0\.7\)"):
        Slope([0.5, math.nan]).train(Stopping(max_steps=10, evaluate_every=2))


def test_training_twice_gives_the_same_bits() -> None:
    def once() -> Training:
        generator = torch.Generator().manual_seed(1)
        model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / 4)
        optimiser = torch.optim.Adam(model.parameters())

        def loss(step: int) -> Tensor:
            x = torch.randn(16, 8, generator=generator)
            return (model(x) - x.sum(1, keepdim=True)).square().mean()

        return train(loss, lambda step: loss(step).item(), optimiser, Stopping(30, 10), clip=1.0)

    first, second = once(), once()
    assert first.training_losses == second.training_losses
    assert first.curve == second.curve
    # and it learns
    assert first.training_losses[-1] < first.training_losses[0]
