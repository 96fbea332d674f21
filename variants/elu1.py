"""ELU + 1: positive features, one per key component.

    phi(x) = x + 1 for x > 0, exp(x) otherwise        D = K

Source: arXiv:2006.16236, eq. (7); arXiv:2102.11174, section 5.1.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnbench.variants.contract import FeatureMap


def features(x: Tensor, draws: Tensor | None = None) -> Tensor:
    """phi(x) > 0, [..., K]."""
    return _Features.apply(x)  # type: ignore[no-untyped-call]


class _Features(torch.autograd.Function):
    """phi(x), with phi' = min(phi, 1)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        # x + 1 above 0 and exp(x) below, with nothing subtracted: elu(x) + 1 would round to 0 below -6.3 in bfloat16
        phi = x.clamp(max=0).exp_().add_(torch.relu(x))
        ctx.save_for_backward(phi)
        return phi

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (phi,) = ctx.saved_tensors
        return phi.clamp(max=1).mul_(gradient)


def kernel(q: Tensor, k: Tensor, draws: Tensor | None = None) -> Tensor:
    """phi(q) . phi(k) [B,N,H,T] of queries [B,N,H,K] and keys [B,T,H,K]."""
    if q.shape[1] != 1:
        return torch.einsum("b n h k, b t h k -> b n h t", features(q), features(k))
    return _Product.apply(q, k).unsqueeze(1)  # type: ignore[no-untyped-call]


class _Product(torch.autograd.Function):
    """phi(q) . phi(k) [B,H,T] of one query, with phi' = min(phi, 1): phi(k) is all that is kept for the backward."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor) -> Tensor:
        phi_q, phi_k = features(q), features(k)
        ctx.save_for_backward(phi_q, phi_k)
        return torch.linalg.vecdot(phi_k, phi_q).transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        phi_q, phi_k = ctx.saved_tensors
        gradient = gradient.transpose(1, 2).unsqueeze(-1)  # B T H 1
        to_phi_q = (phi_k * gradient).sum(1, keepdim=True)
        return to_phi_q.mul_(phi_q.clamp(max=1)), phi_k.clamp(max=1).mul_(phi_q).mul_(gradient)


FEATURE_MAP = FeatureMap(
    name="elu1",
    base="linear",
    formula="phi(x) = elu(x) + 1",
    source="arXiv:2006.16236, eq. (7)",
    features=features,
    width=lambda K: K,
    is_nonnegative=True,
    kernel=kernel,
)
