"""What a case would cost: FLOPs that can be added up by hand, counted without contents."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from tower import Tower

from attnbench.harness.costs import Cost, Evaluation, Trial, counted_flops, of_training, zipf_words


def tower_cost(width: int, *, layers: int = 1, batch: int = 4, **more: object) -> Cost:
    return of_training(
        lambda count: Tower(width, count),
        lambda model, sequences: model(torch.ones(sequences, width)).sum(),
        layers=layers,
        batch=batch,
        tokens=1,
        steps=1,
        **more,  # type: ignore[arg-type]
    )


def test_a_product_counts_two_for_each_of_its_multiplications() -> None:
    # [2,3] @ [3,4]: 2 * 2 * 3 * 4
    assert counted_flops(lambda: torch.ones(2, 3) @ torch.ones(3, 4)) == 48


def test_attention_on_the_cpu_counts_forwards_and_backwards_and_a_causal_mask_halves_nothing() -> None:
    q, k, v = (torch.ones(1, 1, 2, 4, requires_grad=True) for _ in "qkv")
    # q k^T and weights v: 2 products of 2 * 2 * 2 * 4 = 32
    assert counted_flops(lambda: scaled_dot_product_attention(q, k, v, is_causal=True)) == 64
    # and backwards 5 of them: the scores again, then the gradients of weights, values, queries and keys
    assert counted_flops(lambda: scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()) == 64 + 160


def test_a_triangular_solve_counts_n_squared_for_each_right_hand_side() -> None:
    system, right = torch.eye(3).expand(5, 3, 3), torch.ones(5, 3, 2)
    # 5 systems with 2 right-hand sides of 3^2
    assert counted_flops(lambda: torch.linalg.solve_triangular(system, right, upper=False)) == 90


def test_elementwise_operations_count_nothing() -> None:
    assert counted_flops(lambda: torch.ones(2, 3).exp() + 1) == 0


def test_training_costs_the_steps_of_the_whole_batch() -> None:
    cost = of_training(
        lambda layers: nn.Linear(3, 5, bias=False),
        lambda model, sequences: model(torch.ones(sequences, 7, 3)).sum(),
        batch=4,
        tokens=7,
        steps=10,
    )
    # forwards 2 * (4 * 7) * 3 * 5 = 840, backwards as many for the weights; the inputs need no gradient
    assert replace(cost, training_bytes=0) == Cost(parameters=15, tokens=280, steps=10, flops=10 * 1680)
    # 15 weights, their gradients and two moments, and 28 results of 5 numbers
    assert cost.training_bytes > 4 * (4 * 15 + 28 * 5)


def test_evaluation_costs_its_forward_passes_alone() -> None:
    # 3 times 2 * 6 * 2 * 2 = 48
    cost = tower_cost(2, evaluations=[Evaluation(lambda model: model(torch.ones(6, 2)), calls=3, tokens=18)])
    assert (cost.evaluation_flops, cost.evaluation_tokens) == (144, 18)
    assert (tower_cost(2).evaluation_flops, tower_cost(2).evaluation_tokens) == (0, 0)


def test_evaluation_finds_the_model_without_gradients_and_out_of_training() -> None:
    seen: list[tuple[bool, bool]] = []

    def evaluate(model: nn.Module) -> None:
        seen.append((model.training, torch.is_grad_enabled()))

    tower_cost(2, evaluations=[Evaluation(evaluate, calls=1, tokens=6)])
    assert seen == [(False, False)]


@settings(max_examples=8)
@given(width=st.integers(1, 5), layers=st.integers(1, 6), batch=st.integers(1, 4))
def test_many_layers_cost_what_they_would_if_each_were_counted(width: int, layers: int, batch: int) -> None:
    product = 2 * batch * width * width
    # forwards and the weights' gradients in each layer, the input's gradient in all but the first
    assert tower_cost(width, layers=layers, batch=batch).flops == product * (3 * layers - 1)
    assert tower_cost(width, layers=layers, batch=batch).parameters == layers * width * width


def test_weights_that_fit_into_no_memory_are_counted() -> None:
    # 4 terabytes of them
    assert tower_cost(10**6, batch=1).flops == 2 * 2 * 10**12


def test_tokens_are_real_so_that_what_hangs_on_them_has_its_size() -> None:
    def loss(model: nn.Module, sequences: int) -> Tensor:
        words = torch.arange(6).expand(sequences, 6)
        rare = torch.nonzero(words.flatten() >= 4).squeeze(1)
        return model(torch.ones(sequences * 6, 2)[rare]).sum()

    cost = of_training(lambda layers: Tower(2, layers), loss, batch=5, tokens=6, steps=1)
    # 2 of 6 words in 5 sequences, forwards and the weights' gradients: 2 * (2 * 10 * 2 * 2)
    assert cost.flops == 160


def test_what_is_not_trained_is_no_parameter() -> None:
    def model(layers: int) -> nn.Module:
        built = nn.Linear(3, 5)
        built.bias.requires_grad_(False)
        return built

    cost = of_training(
        model, lambda built, sequences: built(torch.ones(sequences, 3)).sum(), batch=1, tokens=1, steps=1
    )
    assert cost.parameters == 15


def test_a_trial_is_a_real_step_of_any_number_of_sequences() -> None:
    built: list[Tower] = []

    def model(layers: int) -> Tower:
        built.append(Tower(2, layers))
        return built[-1]

    def loss(model: nn.Module, sequences: int) -> Tensor:
        return model(torch.ones(sequences, 2)).sum()

    trial = of_training(model, loss, batch=6, tokens=1, steps=1, layers=3).trial
    assert isinstance(trial, Trial)
    step = trial.call(2)
    step()
    gradient = built[-1].layers[-1].weight.grad
    assert gradient is not None
    once = gradient.clone()
    step()
    # a second step begins with no gradient
    assert torch.equal(once, built[-1].layers[-1].weight.grad)
    assert bool(once.isfinite().all())
    # 2 * 2 * 2 * 2 = 16 a product: 3 layers forwards, 3 of weights, 2 of inputs
    assert (trial.batch, len(built[-1].layers), trial.flops(2)) == (6, 3, 16 * 8)


def test_a_mistake_in_a_model_is_raised_and_written_nowhere_else(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RuntimeError, match=r"got \[1, 3\] X \[2, 2\]"):
        of_training(lambda layers: Tower(2, 1), lambda m, n: m(torch.ones(n, 3)).sum(), batch=1, tokens=1, steps=1)
    assert caplog.records == []


def test_words_come_in_the_shares_of_zipfs_law() -> None:
    # two words: shares 1 / 1.5 and 0.5 / 1.5, so 4 and 2 of 6
    assert zipf_words(2, 2, 3).tolist() == [[0, 0, 0], [0, 1, 1]]
    # three: 1, 1/2 and 1/3 of 11/6, so 6, 3 and 2 of 11
    assert torch.bincount(zipf_words(3, 11)).tolist() == [6, 3, 2]


@given(words=st.integers(1, 1000), shape=st.tuples(st.integers(1, 5), st.integers(1, 50)))
def test_words_have_the_shape_asked_for_and_are_words(words: int, shape: tuple[int, int]) -> None:
    found = zipf_words(words, *shape)
    assert found.shape == shape
    assert int(found.min()) >= 0
    assert int(found.max()) < words
