"""An encoder-decoder Transformer with the attention swapped: a source text in, a target text out, word by word.

    encoder   every layer writes its whole text, in its order, and then reads what that left: both ways, in linear time
    decoder   causal attention over the target, its memory handed on from call to call
    cross     every layer writes the encoded source once; each target token reads that

The rows of a batch have sources of one length, so no variant meets a token that is none. Source: arXiv:1706.03762, section 3.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnbench.harness.models.decoder import Memories, positions
from attnbench.harness.models.layers import (
    Bidirectional,
    FeedForward,
    Shape,
    add_strengths,
    attentions,
    dropped,
)
from attnbench.harness.models.vocabulary import Tied
from attnbench.variants.contract import Memory, Variant


class TranslatorShape(Shape):
    """The size of a translator: so many layers in the encoder, and as many in the decoder.

    The weights of a post-norm model are as large as their inputs are many, since published ones are (Xavier).
    """

    def deviation(self, inputs: int, *, into_stream: bool = False) -> float:
        """The standard deviation of a weight with so many inputs."""
        return inputs**-0.5 if self.norm == "post" else super().deviation(inputs, into_stream=into_stream)


@dataclass(frozen=True)
class Mechanisms:
    """The attention of the decoder with the form that it is trained in, that of the encoder, and that between both."""

    decoder: Variant
    form: str
    encoder: Variant
    cross: Variant


@dataclass(frozen=True)
class TranslatorDraws:
    """What is random in the attention of each layer; None where nothing is."""

    encoder: Sequence[Tensor | None]
    decoder: Sequence[Tensor | None]
    cross: Sequence[Tensor | None]


class Translator(nn.Module):
    """Source tokens [B,S] and target tokens [B,T] -> hidden states of the decoder, and its memories.

    Source and target share one vocabulary, and one matrix on the way in and out.
    """

    def __init__(self, mechanisms: Mechanisms, shape: TranslatorShape, generator: torch.Generator) -> None:
        super().__init__()
        self.mechanisms, self.shape = mechanisms, shape
        self.words = Tied(shape.vocabulary, shape.width, deviation=shape.width**-0.5, generator=generator)
        self.encoder = nn.ModuleList(
            EncoderBlock(Bidirectional(mechanisms.encoder, shape, generator), shape, generator)
            for _ in range(shape.layers)
        )
        causal = attentions(mechanisms.decoder, mechanisms.form, shape, shape.layers, generator)
        self.decoder_blocks = [
            DecoderBlock(attention, Bidirectional(mechanisms.cross, shape, generator), shape, generator)
            for attention in causal
        ]
        self.decoder = nn.ModuleList(self.decoder_blocks)
        self.encoder_norm, self.decoder_norm = (
            nn.LayerNorm(shape.width) if shape.norm == "pre" else nn.Identity() for _ in range(2)
        )
        add_strengths((one for block in [*self.encoder, *self.decoder] for one in block.attentions()), shape, generator)

    def remember(self, source: Tensor, draws: TranslatorDraws) -> list[Memory]:
        """What each layer of the decoder reads of the source [B,S]."""
        x = self._embedded(source, 0, are_told_apart=False)
        for number, block in enumerate(self.encoder):
            x = block(x, draws.encoder[number])
        x = self.encoder_norm(x)
        return [block.remember(x, draws.cross[number]) for number, block in enumerate(self.decoder_blocks)]

    def read_on(
        self,
        target: Tensor,
        source: Memories,
        draws: TranslatorDraws,
        memories: Memories | None = None,
        first_position: int = 0,
        form: str | None = None,
    ) -> tuple[Tensor, list[Memory]]:
        """Hidden states [R,T,width] after target tokens [R,T], and the decoder's memory of each layer.

        `source` is what `remember` gave, for R rows or for a divisor of R: then each row of it serves as many rows, side by
        side. `form` is another than that of training, `step` for one token.
        """
        x = self._embedded(target, first_position, are_told_apart=self.mechanisms.decoder.has_positions)
        carried: list[Memory] = []
        for number, block in enumerate(self.decoder_blocks):
            memory = None if memories is None else memories[number]
            x, memory = block(x, memory, source[number], draws.decoder[number], draws.cross[number], form)
            carried.append(memory)
        return dropped(self.decoder_norm(x), self), carried

    def nll(
        self, source: Tensor, target: Tensor, targets: Tensor, draws: TranslatorDraws, smoothing: float = 0.0
    ) -> Tensor:
        """Negative log-likelihood in nats of each of `targets` [B,T], what follows `target` [B,T]; with `smoothing` of
        labels that are this share of the time any word.
        """
        hidden, _ = self.read_on(target, self.remember(source, draws), draws)
        return self.words.nll(hidden, targets, smoothing)

    def _embedded(self, tokens: Tensor, first_position: int, *, are_told_apart: bool) -> Tensor:
        x = self.words.embed(tokens) * math.sqrt(self.shape.width)
        if self.shape.positions == "sinusoidal" and not are_told_apart:
            x = x + positions(tokens.shape[1], self.shape.width, first_position).to(x)
        return dropped(x, self)


class EncoderBlock(nn.Module):
    """Attention both ways and feed-forward, each with its norm, added to the stream."""

    def __init__(self, attention: Bidirectional, shape: Shape, generator: torch.Generator) -> None:
        super().__init__()
        self.shape, self.attention = shape, attention
        self.norms = nn.ModuleList(nn.LayerNorm(shape.width) for _ in range(2))
        self.feed_forward = FeedForward(shape, generator)

    def forward(self, x: Tensor, draws: Tensor | None) -> Tensor:
        """x [B,S,width] -> [B,S,width]."""
        x = _added(x, self.norms[0], lambda y: self.attention.read(y, self.attention.write(y, draws), draws), self)
        return _added(x, self.norms[1], self.feed_forward, self)

    def attentions(self) -> list[nn.Module]:
        """Every attention in it."""
        return [self.attention]


class DecoderBlock(nn.Module):
    """Causal attention, attention to the source, and feed-forward, each with its norm, added to the stream."""

    def __init__(self, attention: nn.Module, cross: Bidirectional, shape: Shape, generator: torch.Generator) -> None:
        super().__init__()
        self.shape, self.attention, self.cross = shape, attention, cross
        self.norms = nn.ModuleList(nn.LayerNorm(shape.width) for _ in range(3))
        self.feed_forward = FeedForward(shape, generator)

    def remember(self, encoded: Tensor, draws: Tensor | None) -> Memory:
        """What this layer reads of the encoded source [B,S,width]."""
        return self.cross.write(encoded, draws)

    def forward(
        self,
        x: Tensor,
        memory: Memory | None,
        source: Memory,
        draws: Tensor | None,
        cross_draws: Tensor | None,
        form: str | None,
    ) -> tuple[Tensor, Memory]:
        """x [R,T,width] -> [R,T,width], and the memory of the target."""
        carried: list[Memory] = []

        def attended(y: Tensor) -> Tensor:
            read, after = self.attention(y, memory, draws, form)
            carried.append(after)
            return read

        x = _added(x, self.norms[0], attended, self)
        x = _added(x, self.norms[1], lambda y: self.cross.read(y, source, cross_draws), self)
        return _added(x, self.norms[2], self.feed_forward, self), carried[0]

    def attentions(self) -> list[nn.Module]:
        """Every attention in it."""
        return [self.attention, self.cross]


def _added(x: Tensor, norm: nn.Module, call: Callable[[Tensor], Tensor], block: EncoderBlock | DecoderBlock) -> Tensor:
    """The stream with what `call` makes of it, its norm before or after."""
    if block.shape.norm == "pre":
        return x + dropped(call(norm(x)), block)
    return norm(x + dropped(call(x), block))
