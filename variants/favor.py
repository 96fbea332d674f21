"""FAVOR+: positive random features whose products estimate exp(q . k).

    phi(x) = exp(-|x|^2 / 2) / sqrt(2m) [exp(R x); exp(-R x)]        D = 2m

The rows of R [m, K] are Gaussian directions made orthogonal in blocks of K, with the lengths of independent Gaussian
vectors. This is the published form: inputs are not scaled, so with long keys phi is tiny, and the epsilon of the
attention normalisation can outweigh what it stands beside.

`+scaled` takes inputs times K^-1/4 (which estimates exp(q . k / sqrt(K)), as softmax attention has it) and subtracts a
maximum from the exponent: a query its own, a key the largest met so far, which the memory carries and is rescaled by.
`+fixeddraws` keeps one R; the default draws it anew at each training step.

Source: arXiv:2009.14794, section 2; arXiv:2102.11174, section 5.2.
"""

import math

import torch
from torch import Tensor

from attnbench.variants.contract import FeatureMap, Letter


def features(x: Tensor, draws: Tensor | None = None, *, m: int) -> Tensor:
    """phi(x) >= 0, [B,T,H,2m]. `draws` is R, [H,m,K]."""
    return torch.exp(log_features(x, draws, m=m))


def log_features(x: Tensor, draws: Tensor | None = None, *, m: int) -> Tensor:
    """ln phi(x), [B,T,H,2m]: one exponent, so that no factor overflows on its own."""
    assert draws is not None
    projected = torch.einsum("b t h k, h m k -> b t h m", x, draws.to(x.dtype))
    offset = 0.5 * (x * x).sum(-1, keepdim=True) + 0.5 * math.log(2 * m)
    return torch.cat([projected - offset, -projected - offset], dim=-1)


def sample(generator: torch.Generator, heads: int, key_width: int, *, m: int) -> Tensor:
    """R [H,m,K], float32, on the generator's device."""
    blocks = []
    for start in range(0, m, key_width):
        gaussian = torch.randn(heads, key_width, key_width, generator=generator, device=generator.device)
        directions, triangle = torch.linalg.qr(gaussian)
        # without the signs of R's diagonal, Q is not uniformly distributed
        signs = torch.sign(torch.diagonal(triangle, dim1=-2, dim2=-1))
        blocks.append((directions * signs.unsqueeze(-2)).transpose(-1, -2)[:, : min(key_width, m - start)])
    lengths = torch.randn(heads, m, key_width, generator=generator, device=generator.device).norm(dim=-1, keepdim=True)
    return torch.cat(blocks, dim=1) * lengths


FEATURE_MAP = FeatureMap(
    name="favor",
    base="performer",
    formula="phi(x) = exp(-|x|^2/2) / sqrt(2m) [exp(Rx); exp(-Rx)]",
    source="arXiv:2009.14794, section 2",
    features=features,
    width=lambda K, m: 2 * m,
    is_nonnegative=True,
    letters=(Letter("m", "random directions", example=64),),
    sample=sample,
    log_features=log_features,
    options=("scaled", "fixeddraws"),
)
