"""A layer before and after its norm: what it computes, what it drops, and what it is started with."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, relu

from attnbench.harness.models import Shape
from attnbench.harness.models.layers import Block, FeedForward, attentions, dropped
from attnbench.harness.seeds import generator
from attnbench.variants import find

SHAPE = Shape(vocabulary=50, width=16, layers=2, heads=2, feed_forward=32)
PUBLISHED = replace(SHAPE, norm="post", activation="relu")


class Doubles(nn.Module):
    """Stands for attention: twice what comes in."""

    def forward(self, x: Tensor, memory: object, draws: object) -> tuple[Tensor, dict[str, Tensor]]:
        return 2 * x, {"x": x}


def inputs() -> Tensor:
    return torch.randn(2, 3, 16, generator=generator("x"), dtype=torch.float64)


def test_a_post_norm_layer_normalises_what_it_has_added() -> None:
    block = Block(Doubles(), PUBLISHED, generator("init")).double()
    x = inputs()
    after_attention = layer_norm(3 * x, (16,))
    inner = relu(after_attention @ block.feed_forward.up) @ block.feed_forward.down
    torch.testing.assert_close(block(x, None, None)[0], layer_norm(after_attention + inner, (16,)))


def test_a_pre_norm_layer_adds_what_it_made_of_the_normalised() -> None:
    block = Block(Doubles(), replace(SHAPE, activation="relu"), generator("init")).double()
    x = inputs()
    after_attention = x + 2 * layer_norm(x, (16,))
    inner = relu(layer_norm(after_attention, (16,)) @ block.feed_forward.up) @ block.feed_forward.down
    torch.testing.assert_close(block(x, None, None)[0], after_attention + inner)


def test_the_biases_of_a_post_norm_feed_forward_count() -> None:
    layer = FeedForward(PUBLISHED, generator("init")).double()
    before = layer(inputs())
    with torch.no_grad():
        layer.down_bias += 1  # type: ignore[operator]
    torch.testing.assert_close(layer(inputs()), before + 1)


def test_dropout_drops_its_share_in_training_alone() -> None:
    module = FeedForward(replace(SHAPE, dropout=0.25), generator("init"))
    ones = torch.ones(10_000)
    torch.manual_seed(0)
    kept = dropped(ones, module)
    assert 0.73 < (kept > 0).double().mean().item() < 0.77
    assert kept.max().item() == pytest.approx(4 / 3)
    assert torch.equal(dropped(ones, module.eval()), ones)
    assert torch.equal(dropped(ones, FeedForward(SHAPE, generator("init"))), ones)


def test_weights_of_a_post_norm_model_have_the_published_deviation() -> None:
    wide = replace(PUBLISHED, width=128, heads=8, feed_forward=256)
    (attention,) = attentions(find("linear"), "chunkwise", wide, 1, generator("init"))
    block = Block(attention, wide, generator("init"))
    for parameter in (block.attention.into, block.attention.out, block.feed_forward.up, block.feed_forward.down):
        assert parameter.std().item() == pytest.approx(0.02, rel=0.05)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["delta", "linear"])
def test_bfloat16_around_a_layer_leaves_its_state_in_float32(name: str) -> None:
    (attention,) = attentions(find(name), "chunkwise", SHAPE, 1, generator("init"))
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        if name == "delta":
            attention.strength = nn.Parameter(torch.zeros(16, 2))  # type: ignore[assignment]
        found, memory = attention(inputs().float(), None, None)
    assert found.dtype == torch.bfloat16
    assert all(tensor.dtype == torch.float32 for tensor in memory.values())
