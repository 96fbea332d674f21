"""The decoder: causal, resumable, its size counted by hand, its weights from its own generator alone."""

from dataclasses import replace

import pytest
import torch

from attnbench.harness.models import Decoder, Shape, count_parameters, detached, kept, positions
from attnbench.harness.seeds import generator
from attnbench.variants import find

SHAPE = Shape(vocabulary=50, width=16, layers=2, heads=2, feed_forward=32)


def decoder(name: str, form: str = "recurrent") -> Decoder:
    return Decoder(find(name), form, SHAPE, generator("init")).double()


def draws_for(name: str) -> list[torch.Tensor | None]:
    random = find(name).draws
    if random is None:
        return [None] * SHAPE.layers
    return [random.sample(generator("draws", layer), SHAPE.heads, SHAPE.head_width) for layer in range(SHAPE.layers)]


@pytest.mark.parametrize("name", ["softmax", "linear", "delta", "performer-m8+scaled", "gated"])
def test_text_read_in_two_pieces_with_memory_gives_the_same_states_as_read_at_once(name: str) -> None:
    model, draws = decoder(name), draws_for(name)
    tokens = torch.randint(50, (2, 11), generator=generator("tokens"))
    whole, _ = model(tokens, draws=draws)
    first, memories = model(tokens[:, :4], draws=draws)
    second, _ = model(tokens[:, 4:], detached(memories), draws, first_position=4)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", ["softmax", "linear", "delta"])
def test_a_later_token_does_not_change_earlier_states(name: str) -> None:
    model = decoder(name)
    tokens = torch.randint(50, (1, 9), generator=generator("tokens"))
    changed = tokens.clone()
    changed[0, 6] = (changed[0, 6] + 1) % 50
    before, after = model(tokens)[0], model(changed)[0]
    torch.testing.assert_close(before[:, :6], after[:, :6], rtol=1e-9, atol=1e-10)
    assert not torch.allclose(before[:, 6:], after[:, 6:])


@pytest.mark.parametrize("name", ["softmax", "xl"])
def test_a_memory_that_grows_is_cut_to_its_last_tokens(name: str) -> None:
    model = Decoder(find(name), "parallel", replace(SHAPE, positions="none"), generator("init")).double()
    tokens = torch.randint(50, (2, 11), generator=generator("tokens"))
    _, memories = model(tokens)
    cut = kept(find(name), memories, 4)
    for whole, last in zip(memories, cut, strict=True):
        for tensor, part in zip(whole.values(), last.values(), strict=True):
            assert torch.equal(part, tensor[:, -4:])
    assert all(tensor.shape[1] == 0 for memory in kept(find(name), memories, 0) for tensor in memory.values())


def test_a_memory_of_fixed_size_is_kept_whole() -> None:
    _, memories = decoder("linear")(torch.zeros(1, 5, dtype=torch.long))
    assert kept(find("linear"), memories, 1) == memories


@pytest.mark.parametrize(("positions", "differs"), [("sinusoidal", True), ("none", False)])
def test_without_positions_a_word_repeated_alone_is_the_same_everywhere(positions: str, differs: bool) -> None:
    shape = replace(SHAPE, positions=positions)
    model = Decoder(find("softmax"), "sdpa", shape, generator("init")).double()
    hidden, _ = model(torch.full((1, 6), 7))
    assert torch.allclose(hidden[:, :1], hidden[:, 5:]) is not differs


def test_a_variant_that_tells_positions_apart_gets_none_from_the_model() -> None:
    models = [
        Decoder(find("xl"), "parallel", replace(SHAPE, positions=positions), generator("init")).double()
        for positions in ("sinusoidal", "none")
    ]
    tokens = torch.randint(50, (1, 6), generator=generator("tokens"))
    assert torch.equal(models[0](tokens)[0], models[1](tokens)[0])


SMALL = Shape(267_735, 128, 16, 8, 2048, norm="post", activation="relu", cutoffs=(20_000, 40_000, 200_000))
MEDIUM = replace(SMALL, width=256)


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        # words: 267,735 x (128 + 1) and 3 x (128 + 1); a layer: 4 x 128^2, feed-forward 2 x 128 x 2048 + 2048 + 128, norms 4 x 128
        ("softmax", SMALL, 44_018_394),
        # beta: 16 x 128 x 8
        ("delta", SMALL, 44_018_394 + 16_384),
        ("linear", MEDIUM, 89_833_434),
        ("delta", MEDIUM, 89_833_434 + 32_768),
        # distances: 16 x 256^2, and two biases of 8 x 32 that all layers share
        ("xl", MEDIUM, 89_833_434 + 1_048_576 + 512),
    ],
)
def test_published_models_have_the_published_sizes(name: str, shape: Shape, parameters: int) -> None:
    with torch.device("meta"):
        model = Decoder(find(name), "recurrent", shape, generator("init"))
    assert count_parameters(model) == parameters


def test_parameters_are_those_counted_by_hand() -> None:
    # embedding 50 x 16; a layer: q k v 16 x 48, out 16 x 16, feed-forward 2 x 16 x 32, two norms of 2 x 16; last norm 2 x 16
    layer = 16 * 48 + 16 * 16 + 2 * 16 * 32 + 2 * 2 * 16
    assert count_parameters(decoder("linear")) == 50 * 16 + 2 * layer + 2 * 16
    # beta: one row of 16 a head and layer
    assert count_parameters(decoder("delta")) == count_parameters(decoder("linear")) + 2 * 16 * 2


def test_the_same_generator_gives_the_same_weights_whatever_the_global_one_has_drawn() -> None:
    first = decoder("delta")
    torch.rand(17)
    second = decoder("delta")
    for mine, theirs in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_the_loss_of_an_untrained_model_is_near_that_of_a_guess() -> None:
    tokens = torch.randint(50, (4, 20), generator=generator("tokens"))
    nll, _ = decoder("linear").nll(tokens[:, :-1], tokens[:, 1:])
    assert nll.shape == (4, 19)
    assert nll.mean().item() == pytest.approx(torch.tensor(50.0).log().item(), abs=1.0)


def test_positions_are_sines_and_cosines_that_go_on_where_they_left_off() -> None:
    whole = positions(6, 4)
    # frequencies 1 and 1/100 at position 2
    expected = torch.tensor([2.0, 0.02])
    torch.testing.assert_close(whole[2], torch.cat([expected.sin(), expected.cos()]))
    torch.testing.assert_close(positions(2, 4, first=4), whole[4:])
