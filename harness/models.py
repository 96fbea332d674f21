"""The models around an attention layer: a decoder-only Transformer with the mechanism swapped.

    x -> x + attention(norm(x)) -> x + feed-forward(norm(x))        pre-norm, one embedding in and out

One bias-free projection gives each head's q, k, v and, where the variant has one, the logit of beta.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnbench.variants.contract import Memory, Variant

Memories = Sequence[Memory]


@dataclass(frozen=True)
class Shape:
    """The size of a decoder. Head width is width / heads, for keys and values alike."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    feed_forward: int

    @property
    def head_width(self) -> int:
        """K and V of each head."""
        return self.width // self.heads


class Attention(nn.Module):
    """Projections around a form of a variant. No bias, no scale of its own. `strength` gives the logits of beta."""

    strength: nn.Parameter

    def __init__(self, variant: Variant, form: str, shape: Shape, generator: torch.Generator) -> None:
        super().__init__()
        self.variant, self.form, self.shape = variant, form, shape
        width = shape.width
        self.into = normal(width, 3 * width, deviation=width**-0.5, generator=generator)
        self.out = normal(width, width, deviation=(2 * width * shape.layers) ** -0.5, generator=generator)

    def forward(self, x: Tensor, memory: Memory | None, draws: Tensor | None) -> tuple[Tensor, Memory]:
        """x [B,T,width] -> [B,T,width], and the memory of every head after the last token."""
        heads = (*x.shape[:2], self.shape.heads, self.shape.head_width)
        q, k, v = (part.reshape(heads) for part in (x @ self.into).chunk(3, dim=-1))
        beta = torch.sigmoid(x @ self.strength) if "beta" in self.variant.inputs else None
        read, memory = self.variant.apply(self.form, q, k, v, beta, memory, draws)
        return read.reshape(x.shape) @ self.out, memory


class Block(nn.Module):
    """Attention and feed-forward, each on normalised input and added to the stream."""

    def __init__(self, variant: Variant, form: str, shape: Shape, generator: torch.Generator) -> None:
        super().__init__()
        self.attention = Attention(variant, form, shape, generator)
        self.before_attention = nn.LayerNorm(shape.width)
        self.before_feed_forward = nn.LayerNorm(shape.width)
        self.up = normal(shape.width, shape.feed_forward, deviation=shape.width**-0.5, generator=generator)
        self.down = normal(
            shape.feed_forward,
            shape.width,
            deviation=(2 * shape.feed_forward * shape.layers) ** -0.5,
            generator=generator,
        )

    def forward(self, x: Tensor, memory: Memory | None, draws: Tensor | None) -> tuple[Tensor, Memory]:
        """x [B,T,width] -> [B,T,width], and the memory."""
        attended, memory = self.attention(self.before_attention(x), memory, draws)
        x = x + attended
        return x + functional.gelu(self.before_feed_forward(x) @ self.up) @ self.down, memory


class Decoder(nn.Module):
    """Tokens [B,T] -> hidden states, logits, and the memories of all layers."""

    def __init__(self, variant: Variant, form: str, shape: Shape, generator: torch.Generator) -> None:
        super().__init__()
        self.shape = shape
        # sqrt(width) on the way in makes the embeddings unit size there and small logits on the way out
        self.embedding = normal(shape.vocabulary, shape.width, deviation=shape.width**-0.5, generator=generator)
        self.blocks = nn.ModuleList(Block(variant, form, shape, generator) for _ in range(shape.layers))
        self.last_norm = nn.LayerNorm(shape.width)
        # drawn after all that every variant has, so that those start alike
        if "beta" in variant.inputs:
            for block in self.blocks:
                assert isinstance(block, Block)
                block.attention.strength = normal(
                    shape.width, shape.heads, deviation=shape.width**-0.5, generator=generator
                )

    def forward(
        self,
        tokens: Tensor,
        memories: Memories | None = None,
        draws: Sequence[Tensor | None] | None = None,
        first_position: int = 0,
    ) -> tuple[Tensor, list[Memory]]:
        """Hidden states [B,T,width] after the last norm, and the memory of each layer.

        `draws` holds one entry a layer. `first_position` is the position of the first token.
        """
        x = functional.embedding(tokens, self.embedding) * math.sqrt(self.shape.width)
        x = x + positions(tokens.shape[1], self.shape.width, first_position).to(x)
        carried: list[Memory] = []
        for number, block in enumerate(self.blocks):
            memory = None if memories is None else memories[number]
            x, memory = block(x, memory, None if draws is None else draws[number])
            carried.append(memory)
        return self.last_norm(x), carried

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of the next token, [..., vocabulary]."""
        return hidden @ self.embedding.T

    def loss(self, tokens: Tensor, targets: Tensor, draws: Sequence[Tensor | None] | None = None) -> Tensor:
        """Mean cross-entropy in nats of the targets [B,T]."""
        hidden, _ = self(tokens, draws=draws)
        return functional.cross_entropy(self.logits(hidden).flatten(0, 1), targets.flatten())


def positions(tokens: int, width: int, first: int = 0) -> Tensor:
    """Sinusoidal positions [T,width]: sines, then cosines. Source: arXiv:1706.03762, section 3.5."""
    frequency = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
    angle = torch.arange(first, first + tokens).unsqueeze(1) * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1)[:, :width]


def normal(*shape: int, deviation: float, generator: torch.Generator) -> nn.Parameter:
    """A normally distributed parameter, from the generator alone."""
    return nn.Parameter(torch.randn(*shape, generator=generator) * deviation)


def count_parameters(model: nn.Module) -> int:
    """Trained numbers of a model."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def detached(memories: Memories) -> list[Memory]:
    """The memories cut off from their history."""
    return [{name: tensor.detach() for name, tensor in memory.items()} for memory in memories]
