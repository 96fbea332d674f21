"""Memory predicted on tensors without contents: what the allocator reports of real ones."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from tower import Tower

from attnbench.harness.costs import training_bytes
from attnbench.harness.peak import peak_bytes
from attnbench.harness.predicted import predicted_peak_bytes
from attnbench.variants import find

CPU = torch.device("cpu")
COUNT = 1 << 16
BYTES = 4 * COUNT


def operation(name: str, form: str, tokens: int, *, is_training: bool) -> Callable[[], object]:
    variant = find(name)
    heads, width = 2, 16
    inputs = {one: torch.ones(1, tokens, heads, width) for one in "qkv"} | {"beta": torch.ones(1, tokens, heads)}
    draws = None if variant.draws is None else variant.draws.sample(torch.Generator().manual_seed(0), heads, width)
    leaves = [inputs[one].requires_grad_(is_training) for one in variant.inputs]
    direction = torch.ones(1, tokens, heads, width)

    def train() -> None:
        values, _ = variant.apply(form, **inputs, draws=draws)
        torch.autograd.grad(values, leaves, direction)

    def read() -> None:
        with torch.no_grad():
            variant.apply(form, **inputs, draws=draws)

    return train if is_training else read


@pytest.mark.parametrize("is_training", [True, False], ids=["training", "prefill"])
@pytest.mark.parametrize("tokens", [20, 200, 800])
@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("softmax", "sdpa"),
        ("softmax", "parallel"),
        ("linear", "chunkwise"),
        ("delta", "chunkwise"),
        ("dpfp-nu2+delta", "chunkwise"),
        ("performer-m16", "chunkwise"),
    ],
)
def test_a_prediction_is_what_the_allocator_reports(name: str, form: str, tokens: int, is_training: bool) -> None:
    real = operation(name, form, tokens, is_training=is_training)
    real()
    with FakeTensorMode():
        predicted = predicted_peak_bytes(operation(name, form, tokens, is_training=is_training))
    # autograd adds a gradient to another in place only where nobody looks on, and a product copies factors that lie badly
    assert predicted == pytest.approx(peak_bytes(real, CPU), rel=0.09)


def test_what_was_there_before_does_not_count_even_where_it_is_handed_back() -> None:
    before = torch.zeros(COUNT)
    assert predicted_peak_bytes(lambda: before.add_(1)) < 64
    assert predicted_peak_bytes(lambda: before.view(2, -1).T) == 0


def test_what_is_released_before_does_not_count_twice() -> None:
    def call() -> None:
        first = torch.zeros(COUNT)
        second = first + 1
        del first
        second * 2

    assert 2 * BYTES <= predicted_peak_bytes(call) < 2 * BYTES + 64


@given(sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=5))
@settings(max_examples=30)
def test_on_cuda_each_tensor_takes_whole_blocks(sizes: list[int]) -> None:
    def call() -> list[Tensor]:
        return [torch.empty(size, dtype=torch.uint8) for size in sizes]

    assert predicted_peak_bytes(call) == sum(sizes)
    assert predicted_peak_bytes(call, "cuda") == sum(512 * -(-size // 512) for size in sizes)


def of_tower(layers: int, sequences: int, kind: str = "cpu") -> int:
    return training_bytes(
        lambda count: Tower(64, count),
        lambda model, rows: model(torch.ones(rows, 64)).square().sum(),
        layers,
        sequences,
        kind,
    )


def test_a_step_holds_weights_gradients_and_two_moments_and_what_comes_between() -> None:
    weights = 64 * 64 * 4
    assert 4 * weights < of_tower(1, 1) <= 6 * weights
    # Adam's own intermediate results are of the size of all weights on CUDA, of one matrix on the CPU
    assert of_tower(8, 1, "cuda") > of_tower(8, 1) > 4 * 8 * weights
    # activations grow with the sequences
    assert of_tower(3, 4096) - of_tower(3, 2048) >= 3 * 2048 * 64 * 4


@pytest.mark.parametrize("sequences", [1, 4096])
def test_many_layers_hold_what_they_would_if_each_were_counted(sequences: int) -> None:
    third, fourth, tenth = (of_tower(layers, sequences) for layers in (3, 4, 10))
    assert tenth - third == 7 * (fourth - third)


def test_a_real_training_step_holds_what_was_predicted() -> None:
    rows = torch.ones(512, 64)
    model = Tower(64, 3)
    optimiser = torch.optim.AdamW(model.parameters(), foreach=False)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        model(rows).square().sum().backward()
        optimiser.step()

    def twice() -> None:
        step()
        step()

    weights = sum(4 * one.numel() for one in model.parameters())
    # the prediction makes its rows within the step
    real = weights + 4 * rows.numel() + peak_bytes(twice, CPU)
    assert of_tower(3, 512) == pytest.approx(real, rel=0.09)
