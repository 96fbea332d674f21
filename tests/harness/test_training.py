"""The training loop: it follows the published update, stops when it should, and tells a loss that is not finite."""

import math
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from attnbench.harness import training
from attnbench.harness.errors import Diverged
from attnbench.harness.processes import Processes, Value
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


# A step in parts, and by several processes.


def test_each_part_of_a_step_is_backpropagated_before_the_next_is_made() -> None:
    w = nn.Parameter(torch.tensor(2.0))
    seen: list[float] = []

    def parts(step: int) -> Iterator[Tensor]:
        for weight in (0.25, 0.75):
            seen.append(0.0 if w.grad is None else w.grad.item())
            yield weight * w

    trained = train(parts, lambda step: 0.0, torch.optim.SGD([w], lr=0.5), Stopping(2, 2))
    # the first part's gradient is there when the second is made, and none of the step before; 2 - 0.5 x (0.25 + 0.75) = 1.5
    assert seen == [0.0, 0.25, 0.0, 0.25]
    assert trained.training_losses == (2.0, 1.5)
    assert w.item() == 1.0


def test_a_step_in_parts_takes_the_whole_step() -> None:
    data = torch.randn(8, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def weights(parts: int) -> list[float]:
        w = nn.Parameter(torch.zeros(3, dtype=torch.float64))

        def losses(step: int) -> Iterator[Tensor]:
            for rows in data.chunk(parts):
                yield (rows @ w - rows.sum(1)).square().mean() / parts

        train(losses, lambda step: 0.0, torch.optim.Adam([w], lr=0.1), Stopping(5, 5), clip=0.5)
        return w.tolist()

    assert weights(4) == pytest.approx(weights(1), rel=1e-12)


def test_a_part_that_is_not_finite_is_not_backpropagated() -> None:
    w = nn.Parameter(torch.tensor(1.0))

    def parts(step: int) -> Iterator[Tensor]:
        yield w
        yield w * math.nan
        raise AssertionError("a third part was asked for")

    with pytest.raises(Diverged, match=r"at step 1 \(none was finite\)"):
        train(parts, lambda step: 0.0, torch.optim.SGD([w], lr=0.1), Stopping(1, 1))
    assert w.grad is not None
    assert w.grad.item() == 1.0


def test_what_torch_draws_in_a_step_hangs_on_the_seed_of_that_step_alone() -> None:
    w = nn.Parameter(torch.zeros(1))
    drawn: dict[int, float] = {}

    def loss(step: int) -> Tensor:
        drawn[step] = torch.rand(1).item()
        return w.sum()

    def draws(**more: object) -> dict[int, float]:
        drawn.clear()
        train(loss, lambda step: torch.rand(step).sum().item(), torch.optim.SGD([w], lr=0.0), Stopping(4, 2), **more)  # type: ignore[arg-type]
        return dict(drawn)

    expected = {step: torch.rand(1, generator=torch.Generator().manual_seed(5 * step)).item() for step in range(1, 5)}
    assert draws(seed_of_step=lambda step: 5 * step) == expected
    assert draws() != expected


class OneOfTwo(Processes):
    """The first of two processes; the other's loss is `others`, and its gradient three times ours."""

    others = 3.0

    def totals(self, *numbers: float) -> tuple[float, ...]:
        loss, *rest = numbers
        return (loss + self.others, *rest)

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad *= 2

    def from_first(self, value: Value) -> Value:
        return value


def test_losses_and_gradients_are_means_over_the_processes_before_gradients_are_clipped() -> None:
    # ours 1, the other's 3: 2; the gradient's mean 2, clipped to 1.5, times 0.1
    slope = Slope()
    trained = slope.train(Stopping(1, 1), processes=OneOfTwo(0, 2), clip=1.5)
    assert trained.training_losses == (2.0,)
    assert slope.w.item() == pytest.approx(0.85)


def test_a_loss_that_is_not_finite_in_another_process_ends_this_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OneOfTwo, "others", math.nan)
    with pytest.raises(Diverged, match="at step 1"):
        Slope().train(Stopping(1, 1), processes=OneOfTwo(0, 2))


# What is told.


def test_progress_tells_what_the_loss_means_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    # steps of 10, 30, 200 and 4000 seconds
    moments = iter([0.0, 10.0, 40.0, 240.0, 4240.0])
    monkeypatch.setattr(training, "time", SimpleNamespace(monotonic=lambda: next(moments), perf_counter=lambda: 0.0))
    told: list[str] = []
    Slope(start=math.log(100)).train(
        Stopping(max_steps=4, evaluate_every=4),
        progress=lambda fraction, note: told.append(note),
        said=lambda loss: f"perplexity {math.exp(loss):.3g}",
        learning_rate=lambda step: 0.0,
    )
    # what is left at the mean of the steps so far: 3 x 10, 2 x 20, 1 x 80 seconds
    assert told == [
        "step 1, loss 4.605, perplexity 100, 30 s left",
        "step 2, loss 4.605, perplexity 100, 40 s left",
        "step 3, loss 4.605, perplexity 100, 80 s left",
        "step 4, loss 4.605, perplexity 100",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.9, ""), (1, "1 s left"), (89, "89 s left"), (180, "3 min left"), (5399, "90 min left"), (9000, "2.5 h left")],
)
def test_the_time_left_is_told_in_the_unit_that_fits(seconds: float, words: str) -> None:
    assert training._left(seconds) == words
