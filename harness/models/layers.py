"""One layer of a Transformer with the attention swapped.

    pre     x -> x + attention(norm(x)) -> x + feed-forward(norm(x))
    post    x -> norm(x + attention(x)) -> norm(x + feed-forward(x))       as published: biases in the feed-forward

One bias-free projection gives each head's q, k, v and, where the variant has one, the logit of beta.
"""

from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnbench.variants.contract import Memory, Variant
from attnbench.variants.errors import Unsupported

# of all weights of the published model (arXiv:2102.11174, released language-modelling code)
PUBLISHED_DEVIATION = 0.02


@dataclass(frozen=True)
class Shape:
    """The size of a decoder. Head width is width / heads, for keys and values alike.

    `norm` and `activation` are those of each layer; `dropout` is the share of activations dropped in training, attention
    weights never. `cutoffs` are the numbers of words at which an adaptive softmax goes on to rarer ones; none: a plain one.
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    feed_forward: int
    _: KW_ONLY
    norm: Literal["pre", "post"] = "pre"
    activation: Literal["gelu", "relu"] = "gelu"
    dropout: float = 0.0
    positions: Literal["sinusoidal", "none"] = "sinusoidal"
    cutoffs: tuple[int, ...] = ()

    @property
    def head_width(self) -> int:
        """K and V of each head."""
        return self.width // self.heads

    def deviation(self, inputs: int, *, into_stream: bool = False) -> float:
        """The standard deviation of a weight with so many inputs; smaller where its output joins the stream of a pre-norm model."""
        if self.norm == "post":
            return PUBLISHED_DEVIATION
        return (2 * inputs * self.layers if into_stream else inputs) ** -0.5


class Attention(nn.Module):
    """Projections around a form of a variant. No bias, no scale of its own. `strength` gives the logits of beta."""

    strength: nn.Parameter

    def __init__(self, variant: Variant, form: str, shape: Shape, generator: torch.Generator) -> None:
        super().__init__()
        self.variant, self.form, self.shape = variant, form, shape
        width = shape.width
        self.into = normal(width, 3 * width, deviation=shape.deviation(width), generator=generator)
        self.out = normal(width, width, deviation=shape.deviation(width, into_stream=True), generator=generator)

    def forward(
        self, x: Tensor, memory: Memory | None, draws: Tensor | None, form: str | None = None
    ) -> tuple[Tensor, Memory]:
        """x [B,T,width] -> [B,T,width], and the memory of every head after the last token; in another form where one is named."""
        heads = (*x.shape[:2], self.shape.heads, self.shape.head_width)
        q, k, v = (part.reshape(heads) for part in (x @ self.into).chunk(3, dim=-1))
        beta = torch.sigmoid(x @ self.strength) if "beta" in self.variant.inputs else None
        # a form decides for itself what it computes in float32
        with torch.autocast(x.device.type, enabled=False):
            read, memory = self.variant.apply(form or self.form, q, k, v, beta, memory, draws)
        return read.reshape(x.shape) @ self.out, memory


class Bidirectional(nn.Module):
    """Projections around a variant without causality: a text is written whole, and then asked. `strength` as in `Attention`.

    Both are linear in the text where the variant's memory has a fixed size. A rule that corrects what it holds (delta)
    writes in the order of the text, so that what comes last is held best. Raises Unsupported for a variant that cannot.
    """

    strength: nn.Parameter

    def __init__(self, variant: Variant, shape: Shape, generator: torch.Generator) -> None:
        super().__init__()
        if variant.write is None or variant.read is None:
            raise Unsupported(
                f"{variant.name} has no way to write a whole text and then read it, which attention without causality needs."
            )
        self.variant, self.shape = variant, shape
        width = shape.width
        self.ask = normal(width, width, deviation=shape.deviation(width), generator=generator)
        self.into = normal(width, 2 * width, deviation=shape.deviation(width), generator=generator)
        self.out = normal(width, width, deviation=shape.deviation(width, into_stream=True), generator=generator)

    def write(self, x: Tensor, draws: Tensor | None) -> Memory:
        """The memory of every head after the whole text [B,S,width]."""
        heads = (*x.shape[:2], self.shape.heads, self.shape.head_width)
        k, v = (part.reshape(heads) for part in (x @ self.into).chunk(2, dim=-1))
        beta = torch.sigmoid(x @ self.strength) if "beta" in self.variant.inputs else None
        with torch.autocast(x.device.type, enabled=False):
            return self.variant.written(k, v, beta, draws)

    def read(self, x: Tensor, memory: Memory, draws: Tensor | None) -> Tensor:
        """x [R,T,width] -> [R,T,width]; a memory of B rows, a divisor of R, serves R / B rows each, side by side."""
        rows = len(next(iter(memory.values())))
        q = (x @ self.ask).reshape(rows, -1, self.shape.heads, self.shape.head_width)
        with torch.autocast(x.device.type, enabled=False):
            read = self.variant.asked(q, memory, draws)
        return read.reshape(x.shape) @ self.out


class WholeLayer(nn.Module):
    """A layer that a variant brings itself, called as `Attention` is."""

    def __init__(self, variant: Variant, form: str, layer: nn.Module) -> None:
        super().__init__()
        self.variant, self.form, self.layer = variant, form, layer

    def forward(
        self, x: Tensor, memory: Memory | None, draws: Tensor | None, form: str | None = None
    ) -> tuple[Tensor, Memory]:
        """x [B,T,width] -> [B,T,width], and the layer's memory after the last token; in another form where one is named."""
        return self.variant.apply_layer(form or self.form, self.layer, x, memory)


def attentions(
    variant: Variant, form: str, shape: Shape, count: int, generator: torch.Generator
) -> Iterator[nn.Module]:
    """The attention of `count` layers, each drawn when it is asked for; `add_strengths` adds what only some variants have."""
    if variant.build is not None:
        layers = variant.build(shape.width, shape.heads, count, generator)
        yield from (WholeLayer(variant, form, layer) for layer in layers)
        return
    for _ in range(count):
        yield Attention(variant, form, shape, generator)


def add_strengths(layers: Iterable[nn.Module], shape: Shape, generator: torch.Generator) -> None:
    """Give those that use a beta the weights for its logits: last of all, so that what every variant has starts alike."""
    for layer in layers:
        if isinstance(layer, Attention | Bidirectional) and "beta" in layer.variant.inputs:
            layer.strength = normal(
                shape.width, shape.heads, deviation=shape.deviation(shape.width), generator=generator
            )


class FeedForward(nn.Module):
    """Two projections with an activation between them; with biases in a post-norm model."""

    def __init__(self, shape: Shape, generator: torch.Generator) -> None:
        super().__init__()
        self.shape = shape
        width, inner = shape.width, shape.feed_forward
        self.up = normal(width, inner, deviation=shape.deviation(width), generator=generator)
        self.down = normal(inner, width, deviation=shape.deviation(inner, into_stream=True), generator=generator)
        has_bias = shape.norm == "post"
        self.up_bias = nn.Parameter(torch.zeros(inner)) if has_bias else None
        self.down_bias = nn.Parameter(torch.zeros(width)) if has_bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x [B,T,width] -> [B,T,width]."""
        inner = functional.linear(x, self.up.mT, self.up_bias)
        inner = functional.gelu(inner) if self.shape.activation == "gelu" else functional.relu(inner)
        return functional.linear(dropped(inner, self), self.down.mT, self.down_bias)


class Block(nn.Module):
    """Attention and feed-forward, each with its norm, added to the stream."""

    def __init__(self, attention: nn.Module, shape: Shape, generator: torch.Generator) -> None:
        super().__init__()
        self.shape = shape
        self.attention = attention
        self.attention_norm = nn.LayerNorm(shape.width)
        self.feed_forward_norm = nn.LayerNorm(shape.width)
        self.feed_forward = FeedForward(shape, generator)

    def forward(self, x: Tensor, memory: Memory | None, draws: Tensor | None) -> tuple[Tensor, Memory]:
        """x [B,T,width] -> [B,T,width], and the memory."""
        if self.shape.norm == "pre":
            attended, memory = self.attention(self.attention_norm(x), memory, draws)
            x = x + dropped(attended, self)
            return x + dropped(self.feed_forward(self.feed_forward_norm(x)), self), memory
        attended, memory = self.attention(x, memory, draws)
        x = self.attention_norm(x + dropped(attended, self))
        return self.feed_forward_norm(x + dropped(self.feed_forward(x), self)), memory


class _Shaped(Protocol):
    training: bool

    @property
    def shape(self) -> Shape: ...


def dropped(x: Tensor, module: _Shaped) -> Tensor:
    """x with the share of its shape's dropout left out, while the module is trained.

    What is left out is kept in a byte a number on every device; `functional.dropout` keeps a float on the CPU.
    """
    share = module.shape.dropout
    return torch.native_dropout(x, share, train=True)[0] if module.training and share else x


def normal(*shape: int, deviation: float, generator: torch.Generator) -> nn.Parameter:
    """A normally distributed parameter, from the generator alone."""
    return nn.Parameter(torch.randn(*shape, generator=generator) * deviation)


def count_parameters(model: nn.Module) -> int:
    """Trained numbers of a model."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
