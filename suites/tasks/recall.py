"""Multi-query associative recall: pairs are written first, then the keys come again between fillers, each to be answered.

    tokens    k1 v1 k2 v2  .  .  k2  .  .  .  k1  .        . filler, N pairs, T tokens
    targets                      v2           v1           only there is a loss

Keys are from the lower half of the vocabulary without token 0, values from the upper half, each at most once in a
sequence. A key comes again at an even distance 2g from the end of the pairs, and no two at the same one:

    P(g) ~ (g + 1)^(power - 1)        g = 0 ... (T - 2N)/2 - 1, drawn one after the other without replacement

Source: arXiv:2312.04927; details and model from its released code. There random filler comes from the global generator
and may be a key of the sequence, whose value would then be in doubt; here it comes from the case's own generator and is
any token but those keys.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnbench.harness.models import Shape, add_strengths, attentions, normal, positions
from attnbench.variants.contract import Variant

BLANK = 0
FILLERS = ("blank", "random")
FIRST_LAYERS = ("convolution", "attention")
LAYERS = 2
CONVOLUTION_TOKENS = 3


@dataclass(frozen=True)
class Recalls:
    """Tokens [B,T], and where in them [B,N] an answer is due and which one [B,N]."""

    tokens: Tensor
    positions: Tensor
    targets: Tensor

    def to(self, device: torch.device) -> "Recalls":
        """The same sequences on a device."""
        return Recalls(*(part.to(device) for part in (self.tokens, self.positions, self.targets)))


@dataclass(frozen=True)
class Sampler:
    """Draws sequences: `sampler(generator, batch)`. `filler` is one of FILLERS."""

    vocabulary: int
    length: int
    pairs: int
    power: float
    filler: str

    def __call__(self, generator: torch.Generator, batch: int) -> Recalls:
        """`batch` sequences; only `generator` decides which."""
        half = self.vocabulary // 2
        keys = 1 + _without_replacement(torch.ones(half - 1), batch, self.pairs, generator)
        values = half + _without_replacement(torch.ones(self.vocabulary - half), batch, self.pairs, generator)
        written = 2 * self.pairs
        gaps = _without_replacement(self.gap_weights(), batch, self.pairs, generator)
        asked = written + 2 * gaps
        tokens = self._filler(generator, keys)
        tokens[:, 0:written:2] = keys
        tokens[:, 1:written:2] = values
        return Recalls(tokens.scatter(1, asked, keys), asked, values)

    def gap_weights(self) -> Tensor:
        """The unnormalised probability of each gap."""
        return torch.arange(1, (self.length - 2 * self.pairs) // 2 + 1, dtype=torch.float64) ** (self.power - 1)

    def _filler(self, generator: torch.Generator, keys: Tensor) -> Tensor:
        """Tokens [B,T] that are no key of their sequence."""
        batch = len(keys)
        if self.filler == "blank":
            return torch.full((batch, self.length), BLANK)
        drawn = torch.randint(self.vocabulary - self.pairs, (batch, self.length), generator=generator)
        # the n-th token that is no key: n, and one more for each key that is not above it
        ranks = keys.sort(1).values - torch.arange(self.pairs)
        return drawn + torch.searchsorted(ranks, drawn, right=True)


def _without_replacement(weights: Tensor, batch: int, count: int, generator: torch.Generator) -> Tensor:
    """Indices [B,count], drawn one after the other in proportion to the weights that are left."""
    # an exponential race: the order of arrival at these rates is the order of such draws
    arrival = torch.empty(batch, len(weights), dtype=weights.dtype).exponential_(generator=generator) / weights
    return arrival.topk(count, dim=1, largest=False).indices


class Convolution(nn.Module):
    """A short causal convolution of each channel with a multiplicative gate: [B,T,width] -> [B,T,width].

    x -> x + (conv(x) * (x W + b)), over three tokens. Source: arXiv:2312.04927, "BaseConv".
    """

    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.kernel = normal(width, 1, CONVOLUTION_TOKENS, deviation=CONVOLUTION_TOKENS**-0.5, generator=generator)
        self.kernel_bias = nn.Parameter(torch.zeros(width))
        self.gate = normal(width, width, deviation=width**-0.5, generator=generator)
        self.gate_bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """x [B,T,width] -> [B,T,width]."""
        before = functional.pad(x.transpose(1, 2), (CONVOLUTION_TOKENS - 1, 0))  # B width T
        shifted = functional.conv1d(before, self.kernel, self.kernel_bias, groups=x.shape[2]).transpose(1, 2)
        return x + shifted * (x @ self.gate + self.gate_bias)


class Recaller(nn.Module):
    """Two layers, x -> x + layer(norm(x)), without feed-forward; one embedding in and out, sinusoidal positions.

    The first layer is a short convolution or attention, the second attention.
    """

    def __init__(self, variant: Variant, form: str, shape: Shape, first_layer: str, generator: torch.Generator) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = normal(shape.vocabulary, shape.width, deviation=shape.width**-0.5, generator=generator)
        self.convolution = Convolution(shape.width, generator) if first_layer == "convolution" else None
        count = LAYERS if self.convolution is None else LAYERS - 1
        self.attentions = nn.ModuleList(attentions(variant, form, shape, count, generator))
        self.norms = nn.ModuleList(nn.LayerNorm(shape.width) for _ in range(LAYERS))
        self.last_norm = nn.LayerNorm(shape.width)
        self.has_positions = variant.has_positions
        add_strengths(self.attentions, shape, generator)

    def forward(self, tokens: Tensor, draws: Sequence[Tensor | None]) -> Tensor:
        """Tokens [B,T] -> hidden states [B,T,width]. `draws` holds one entry for each attention."""
        x = functional.embedding(tokens, self.embedding) * math.sqrt(self.shape.width)
        if not self.has_positions:
            x = x + positions(tokens.shape[1], self.shape.width).to(x)
        norms = iter(self.norms)
        if self.convolution is not None:
            x = x + self.convolution(next(norms)(x))
        for attention, norm, draw in zip(self.attentions, norms, draws, strict=True):
            x = x + attention(norm(x), None, draw)[0]
        return self.last_norm(x)

    def answers(self, asked: Recalls, draws: Sequence[Tensor | None]) -> Tensor:
        """Scores of every token as the answer to each query, [B,N,vocabulary]."""
        hidden = self(asked.tokens, draws)
        due = asked.positions.unsqueeze(2).expand(-1, -1, self.shape.width)
        return hidden.gather(1, due) @ self.embedding.T
