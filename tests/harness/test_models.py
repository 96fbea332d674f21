"""The decoder: causal, resumable, its size counted by hand, its weights from its own generator alone."""

import pytest
import torch

from attnbench.harness.models import Decoder, Shape, count_parameters, detached, positions
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
    loss = decoder("linear").loss(tokens[:, :-1], tokens[:, 1:])
    assert loss.item() == pytest.approx(torch.tensor(50.0).log().item(), abs=1.0)


def test_positions_are_sines_and_cosines_that_go_on_where_they_left_off() -> None:
    whole = positions(6, 4)
    # frequencies 1 and 1/100 at position 2
    expected = torch.tensor([2.0, 0.02])
    torch.testing.assert_close(whole[2], torch.cat([expected.sin(), expected.cos()]))
    torch.testing.assert_close(positions(2, 4, first=4), whole[4:])
