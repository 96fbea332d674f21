"""Rules in chunks: any chunk size gives what the recurrent form gives, and what is kept for the backward is what it says."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attnbench.harness.checks import TOLERANCES
from attnbench.harness.predicted import predicted_peak_bytes
from attnbench.variants import in_chunks
from attnbench.variants.contract import Memory
from attnbench.variants.registry import find

EXACT = TOLERANCES[torch.float64]


def inputs(tokens: int, *, heads: int = 2, width: int = 4, batch: int = 2) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    given = {
        name: torch.randn(batch, tokens, heads, width, dtype=torch.float64, generator=generator)
        for name in ("q", "k", "v")
    }
    beta = torch.rand(batch, tokens, heads, dtype=torch.float64, generator=generator)
    return {name: one.requires_grad_() for name, one in {**given, "beta": beta}.items()}


def results(o: Tensor, memory: Memory, leaves: dict[str, Tensor]) -> list[Tensor]:
    total = (o * torch.linspace(-1, 1, o.numel(), dtype=o.dtype).view_as(o)).sum()
    total = total + sum(one.square().sum() for one in memory.values())
    return [o, *memory.values(), *torch.autograd.grad(total, list(leaves.values()))]


@pytest.mark.parametrize("name", ["linear", "linear+noattnnorm", "delta", "dpfp-nu1+delta", "delta+nosumnorm"])
@settings(max_examples=12)
@given(tokens=st.integers(1, 24), chunk=st.integers(1, 30))
def test_every_chunk_size_gives_what_the_recurrent_form_gives(name: str, tokens: int, chunk: int) -> None:
    variant, leaves = find(name), inputs(tokens)
    taken = {one: leaves[one] for one in variant.inputs}
    _, past = variant.apply("recurrent", **inputs(7))
    past = {part: one.detach().requires_grad_() for part, one in past.items()}
    leaves_and_past = {**taken, **{f"past {part}": one for part, one in past.items()}}

    def phi(x: Tensor) -> Tensor:
        assert variant.features is not None
        return variant.features(x)

    given = [leaves[one] for one in ("q", "k", "v")]
    if name.startswith("linear"):
        found = in_chunks.sum_rule(phi, *given, past, attention="z" in past, chunk=chunk)
    else:
        found = in_chunks.delta_rule(phi, *given, leaves["beta"], past, chunk=chunk)
    expected = variant.apply("recurrent", **leaves, memory=past)
    for ours, theirs in zip(results(*found, leaves_and_past), results(*expected, leaves_and_past), strict=True):
        torch.testing.assert_close(ours, theirs, atol=EXACT.absolute, rtol=EXACT.relative)


@given(matrices=st.integers(1, 10_000), width=st.integers(1, 512), value_width=st.integers(1, 512))
def test_states_kept_take_no_more_than_keys_and_values_unless_a_chunk_has_64_tokens(
    matrices: int, width: int, value_width: int
) -> None:
    tokens = in_chunks.tokens_of_chunk(matrices, width, value_width)
    assert tokens in (16, 32, 64)
    assert tokens == 64 or width * value_width / tokens <= width + value_width


def test_a_chunk_is_larger_where_a_token_has_fewer_numbers() -> None:
    # 16 memories of 64 x 64: 16 (128 + 64) = 3,072 numbers a token; 128 of 16 x 16: 6,144; 768 of 16 x 16: 36,864
    assert [in_chunks.tokens_of_chunk(*one) for one in ((16, 64, 64), (128, 16, 16), (768, 16, 16))] == [64, 32, 16]


@pytest.mark.parametrize("name", ["linear", "delta"])
def test_without_gradients_nothing_of_a_chunk_is_kept(name: str) -> None:
    variant = find(name)

    def peak(tokens: int) -> int:
        leaves = {one: value.detach() for one, value in inputs(tokens, width=16).items()}
        output = 2 * tokens * 2 * 16 * 8
        return predicted_peak_bytes(lambda: variant.apply("chunkwise", **leaves)) - output

    # beyond the values that come out
    assert peak(512) == peak(256)


@pytest.mark.parametrize("name", ["linear", "delta"])
def test_training_keeps_a_state_a_chunk_and_not_one_a_token(name: str) -> None:
    variant, width = find(name), 32

    def peak(tokens: int) -> int:
        leaves = inputs(tokens, width=width)
        taken = [leaves[one] for one in variant.inputs]

        def train() -> None:
            torch.autograd.grad(variant.apply("chunkwise", **leaves)[0].sum(), taken)

        return predicted_peak_bytes(train)

    numbers_a_token = (peak(1024) - peak(512)) / 512 / (2 * 2 * 8)
    # of a state there are 32 x 32 = 1,024 numbers
    assert numbers_a_token < 8 * width
