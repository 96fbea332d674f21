"""Every token is scored once, with the context that the way of scoring gives it."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from attnbench.harness.models import Decoder, Shape
from attnbench.harness.seeds import generator
from attnbench.suites.tasks.language.scoring import Scored, carried, segments, sliding
from attnbench.variants import find

SHAPE = Shape(20, 8, 1, 2, 16)
TEXT = torch.randint(20, (38,), generator=generator("text"))


def model(name: str = "linear", form: str = "recurrent", positions: str = "sinusoidal") -> Decoder:
    shape = Shape(20, 8, 2, 2, 16, positions=positions)  # type: ignore[arg-type]
    return Decoder(find(name), form, shape, generator("init")).double()


def cost(decoder: Decoder, before: Tensor, token: int) -> float:
    """What a token costs after those before it, alone in the model."""
    hidden, _ = decoder(before[None])
    return -decoder.words.log_probabilities(hidden)[0, -1, token].item()


def expected(decoder: Decoder, contexts: list[int]) -> Tensor:
    """The cost of each token with so many tokens before it."""
    return torch.tensor(
        [
            cost(decoder, TEXT[position - length : position], int(TEXT[position]))
            for position, length in enumerate(contexts, start=1)
        ],
        dtype=torch.float64,
    )


@pytest.mark.parametrize(("context", "stride"), [(40, 1), (8, 8), (8, 3), (8, 1), (1, 1), (36, 5), (100, 50), (37, 3)])
def test_sliding_windows_give_every_token_its_context(context: int, stride: int) -> None:
    count = len(TEXT) - 1
    contexts = list(range(1, min(context, count) + 1))
    while len(contexts) < count:
        end = min(len(contexts) + stride, count)
        contexts += [context - (end - position) for position in range(len(contexts) + 1, end + 1)]
    decoder = model()
    found = sliding(decoder, TEXT, context, stride, [None, None])
    torch.testing.assert_close(found.nats, expected(decoder, contexts))


@pytest.mark.parametrize("context", [1, 8, 36, 37, 100])
def test_segments_give_every_token_what_came_before_it_in_its_segment(context: int) -> None:
    decoder = model()
    contexts = [(position - 1) % context + 1 for position in range(1, len(TEXT))]
    torch.testing.assert_close(segments(decoder, TEXT, context, [None, None]).nats, expected(decoder, contexts))


def test_a_stride_of_the_context_is_segments_where_these_fit() -> None:
    decoder, text = model(), TEXT[:33]
    found = sliding(decoder, text, 8, 8, [None, None])
    torch.testing.assert_close(found.nats, segments(decoder, text, 8, [None, None]).nats)


@pytest.mark.parametrize("name", ["linear", "delta", "delta+attnnorm", "dpfp-nu1+delta", "gated", "linear+noattnnorm"])
@pytest.mark.parametrize("context", [1, 5, 37, 50])
def test_carried_segments_cost_what_the_text_costs_in_one_piece(name: str, context: int) -> None:
    decoder = model(name, "chunkwise", positions="none")
    with torch.no_grad():
        whole, _ = decoder.nll(TEXT[None, :-1], TEXT[None, 1:])
    found = carried(decoder, TEXT, context, 0, [None, None])
    assert math.exp(found.mean) == pytest.approx(math.exp(whole.mean().item()), rel=1e-6)
    torch.testing.assert_close(found.nats, whole[0], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", ["softmax", "xl"])
def test_a_growing_memory_that_is_long_enough_gives_the_text_in_one_piece(name: str) -> None:
    decoder = model(name, "parallel", positions="none")
    with torch.no_grad():
        whole, _ = decoder.nll(TEXT[None, :-1], TEXT[None, 1:])
    torch.testing.assert_close(carried(decoder, TEXT, 5, 100, [None, None]).nats, whole[0], rtol=1e-9, atol=1e-10)


def test_a_growing_memory_is_cut_and_what_is_carried_is_counted() -> None:
    decoder = model("softmax", "parallel", positions="none")
    # two layers of keys and values, 8 wide, of 6 tokens
    assert carried(decoder, TEXT, 5, 6, [None, None]).floats == 2 * 2 * 8 * 6
    forgotten = carried(decoder, TEXT, 5, 0, [None, None])
    torch.testing.assert_close(forgotten.nats, segments(decoder, TEXT, 5, [None, None]).nats)


def test_a_memory_of_fixed_size_is_counted_for_one_sequence() -> None:
    # two layers of two heads: S [4,4] and z [4]
    assert carried(model(), TEXT, 5, 0, [None, None]).floats == 2 * 2 * (16 + 4)


def test_scoring_leaves_the_model_training_and_drops_nothing() -> None:
    decoder = Decoder(find("linear"), "chunkwise", Shape(20, 8, 1, 2, 16, dropout=0.5), generator("init")).train()
    first, second = (sliding(decoder, TEXT, 8, 4, [None]) for _ in range(2))
    assert torch.equal(first.nats, second.nats)
    assert decoder.training


@given(st.lists(st.floats(0, 10), min_size=1, max_size=40), st.integers(1, 50), st.integers(1, 60))
def test_means_by_position_and_along_the_text_come_to_the_whole(nats: list[float], context: int, pieces: int) -> None:
    scored = Scored(torch.tensor(nats, dtype=torch.float64))
    by_position = scored.by_position(context)
    counts = torch.bincount(torch.arange(len(nats)) % context)
    assert float(by_position @ counts.double()) == pytest.approx(sum(nats), abs=1e-9)
    ends, means = scored.along(pieces)
    assert ends[-1] == len(nats)
    lengths = torch.tensor([0.0, *ends]).diff().tolist()
    assert sum(length * mean for length, mean in zip(lengths, means, strict=True)) == pytest.approx(sum(nats), abs=1e-4)
