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
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnbench.variants.contract import FeatureMap, Letter
from attnbench.variants.shapes import cache_blocks


def features(x: Tensor, draws: Tensor | None = None, *, m: int) -> Tensor:
    """phi(x) > 0, [B,T,H,2m]. `draws` is R, [H,m,K]."""
    assert draws is not None
    return _Exponentials.apply(x, draws.to(x.dtype))  # type: ignore[no-untyped-call]


def log_features(x: Tensor, draws: Tensor | None = None, *, m: int) -> Tensor:
    """ln phi(x), [B,T,H,2m]: one exponent, so that no factor overflows on its own."""
    assert draws is not None
    x = x.transpose(1, 2)  # B H T K
    return _logarithms(x, draws.to(x.dtype)).transpose(1, 2)


def _logarithms(x: Tensor, R: Tensor) -> Tensor:
    """ln phi(x) [B,H,T,2m] of x [B,H,T,K]."""
    projected = x @ R.mT
    offset = 0.5 * (x * x).sum(-1, keepdim=True) + 0.5 * math.log(2 * R.shape[1])
    return torch.cat([projected - offset, -projected - offset], dim=-1)


class _Exponentials(torch.autograd.Function):
    """phi(x) [B,T,H,2m], which is all that is kept for the backward beside x: with g = dL/dphi phi = [g+; g-],

    dL/dx = (g+ - g-) R - x sum g
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, R: Tensor) -> Tensor:
        x = x.transpose(1, 2)  # B H T K
        phi = _logarithms(x, R).clamp_(min=_smallest(x.dtype)).exp_()
        ctx.save_for_backward(x, R, phi)
        return phi.transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        x, R, phi = ctx.saved_tensors
        weighted = gradient.transpose(1, 2) * phi
        rising, falling = weighted.chunk(2, dim=-1)
        to_x = (rising - falling) @ R - x * weighted.sum(-1, keepdim=True)
        return to_x.transpose(1, 2), None


def kernel(q: Tensor, k: Tensor, draws: Tensor | None = None, *, m: int) -> Tensor:
    """phi(q) . phi(k) [B,N,H,T] of queries [B,N,H,K] and keys [B,T,H,K], without building phi when N = 1."""
    assert draws is not None
    if q.shape[1] != 1:
        return torch.einsum("b n h d, b t h d -> b n h t", features(q, draws, m=m), features(k, draws, m=m))
    return _SumOfExponentials.apply(q, k, draws.to(k.dtype)).unsqueeze(1)  # type: ignore[no-untyped-call]


class _SumOfExponentials(torch.autograd.Function):
    """phi(q) . phi(k) = exp(-(|q|^2 + |k|^2) / 2) / 2m sum_i [exp(R_i (q + k)) + exp(-R_i (q + k))], [B,H,T].

    Block by block, so that the T x m exponents of a sequence stay in the processor's cache.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, R: Tensor) -> Tensor:
        smallest = _smallest(k.dtype)
        both = (q + k).transpose(1, 2)  # B H T K
        offset = 0.5 * ((q * q).sum(-1) + (k * k).sum(-1)).transpose(1, 2).unsqueeze(-1) + math.log(2 * R.shape[1])
        products = k.new_empty(both.shape[:3])
        slopes = k.new_empty(*both.shape[:3], R.shape[1])
        for block in cache_blocks(len(k), slopes[0].numel(), k.device):
            projected = both[block] @ R.mT  # B H T m
            falling = (-projected).sub_(offset[block]).clamp_(min=smallest).exp_()
            rising = projected.sub_(offset[block]).clamp_(min=smallest).exp_()
            torch.sub(rising, falling, out=slopes[block])
            torch.sum(rising.add_(falling), dim=-1, out=products[block])
        ctx.save_for_backward(q, k, R, products, slopes)
        return products

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        q, k, R, products, slopes = ctx.saved_tensors
        from_length = (gradient * products).transpose(1, 2).unsqueeze(-1)  # B T H 1
        gradient = gradient.unsqueeze(-1)  # B H T 1
        blocks = cache_blocks(len(k), slopes[0].numel(), k.device)
        from_sum = torch.cat([(slopes[block] * gradient[block]) @ R for block in blocks]).transpose(1, 2)
        return (
            from_sum.sum(1, keepdim=True) - q * from_length.sum(1, keepdim=True),
            from_sum - k * from_length,
            None,
        )


def _smallest(dtype: torch.dtype) -> float:
    """The smallest exponent that is taken: what is below counts for nothing, and a processor takes 10 to 30 times as long for it."""
    return math.log(torch.finfo(dtype).tiny) + 1


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
    kernel=kernel,
    options=("scaled", "fixeddraws"),
)
