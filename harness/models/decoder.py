"""A decoder-only Transformer with the attention swapped: words in, the next word out, memories from call to call."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from attnbench.harness.models.layers import Block, Shape, add_strengths, attentions, dropped
from attnbench.harness.models.vocabulary import Adaptive, Tied
from attnbench.variants.contract import Memory, Variant

Memories = Sequence[Memory]


class Decoder(nn.Module):
    """Tokens [B,T] -> hidden states, negative log-likelihoods, and the memories of all layers.

    A post-norm model is the published one: embeddings times sqrt(width), sinusoidal positions, dropout, no norm at the
    end. Source: arXiv:2102.11174, section 6.3 and appendix D.3, and its released code.
    """

    def __init__(self, variant: Variant, form: str, shape: Shape, generator: torch.Generator) -> None:
        super().__init__()
        self.variant, self.shape = variant, shape
        # sqrt(width) on the way in makes the embeddings of a pre-norm model unit size there and small logits on the way out
        self.words: Tied | Adaptive = (
            Adaptive(shape.vocabulary, shape.width, shape.cutoffs, generator=generator)
            if shape.cutoffs
            else Tied(shape.vocabulary, shape.width, deviation=shape.deviation(shape.width), generator=generator)
        )
        layers = attentions(variant, form, shape, shape.layers, generator)
        blocks = [Block(attention, shape, generator) for attention in layers]
        self.blocks = nn.ModuleList(blocks)
        self.last_norm = nn.LayerNorm(shape.width) if shape.norm == "pre" else nn.Identity()
        add_strengths((block.attention for block in blocks), shape, generator)

    def forward(
        self,
        tokens: Tensor,
        memories: Memories | None = None,
        draws: Sequence[Tensor | None] | None = None,
        first_position: int = 0,
    ) -> tuple[Tensor, list[Memory]]:
        """Hidden states [B,T,width] of the last layer, and the memory of each layer.

        `draws` holds one entry a layer. `first_position` is the position of the first token.
        """
        x = self.words.embed(tokens) * math.sqrt(self.shape.width)
        if self.shape.positions == "sinusoidal" and not self.variant.has_positions:
            x = x + positions(tokens.shape[1], self.shape.width, first_position).to(x)
        x = dropped(x, self)
        carried: list[Memory] = []
        for number, block in enumerate(self.blocks):
            memory = None if memories is None else memories[number]
            x, memory = block(x, memory, None if draws is None else draws[number])
            carried.append(memory)
        return dropped(self.last_norm(x), self), carried

    def nll(
        self,
        tokens: Tensor,
        targets: Tensor,
        memories: Memories | None = None,
        draws: Sequence[Tensor | None] | None = None,
    ) -> tuple[Tensor, list[Memory]]:
        """Negative log-likelihood in nats of each target [B,T], and the memory of each layer."""
        hidden, carried = self(tokens, memories, draws)
        return self.words.nll(hidden, targets), carried


def positions(tokens: int, width: int, first: int = 0) -> Tensor:
    """Sinusoidal positions [T,width]: sines, then cosines. Source: arXiv:1706.03762, section 3.5."""
    frequency = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
    angle = torch.arange(first, first + tokens).unsqueeze(1) * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1)[:, :width]


def detached(memories: Memories) -> list[Memory]:
    """The memories cut off from their history."""
    return [{name: tensor.detach() for name, tensor in memory.items()} for memory in memories]


def kept(variant: Variant, memories: Memories, tokens: int) -> list[Memory]:
    """The memories as they are, or their last `tokens` tokens where they grow with the text."""
    return list(memories) if variant.keep is None else [variant.keep(memory, tokens) for memory in memories]
