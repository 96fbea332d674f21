"""Deterministic parameter-free projection: products of rectified components, nu of them per component.

    r = relu([x; -x])                                  2K numbers
    phi(x) = [r * roll(r, 1); ...; r * roll(r, nu)]    D = 2 K nu

K = 2, nu = 1 gives one feature per quadrant: x = (1, 2) -> r = (1, 2, 0, 0) -> phi = (0, 2, 0, 0).

The shift j = K is zero throughout (relu(x) relu(-x)), and shifts j and 2K - j give the same products, so nu beyond
K - 1 adds nothing. With odd K, alternating signs give the zero vector.

Source: arXiv:2102.11174, section 5.3, eq. (37).
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnbench.variants.contract import FeatureMap, Letter


def features(x: Tensor, draws: Tensor | None = None, *, nu: int) -> Tensor:
    """phi(x) >= 0, [..., 2 K nu]."""
    return _Products.apply(x, nu)  # type: ignore[no-untyped-call]


class _Products(torch.autograd.Function):
    """phi(x), with dL/dr = sum_j (g_j roll(r, j) + roll(g_j r, -j)): r is all that is kept for the backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, nu: int) -> Tensor:
        r = torch.cat([x, -x], dim=-1).relu_()
        ctx.save_for_backward(r)
        return torch.cat([r * torch.roll(r, shift, dims=-1) for shift in range(1, nu + 1)], dim=-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (r,) = ctx.saved_tensors
        to_r = torch.zeros_like(r)
        for shift, part in enumerate(torch.split(gradient, r.shape[-1], dim=-1), start=1):
            to_r.addcmul_(part, torch.roll(r, shift, dims=-1)).add_(torch.roll(part * r, -shift, dims=-1))
        rising, falling = to_r.mul_(r > 0).chunk(2, dim=-1)
        return rising - falling, None


def kernel(q: Tensor, k: Tensor, draws: Tensor | None = None, *, nu: int) -> Tensor:
    """phi(q) . phi(k) [B,N,H,T] of queries [B,N,H,K] and keys [B,T,H,K], without building phi when N = 1."""
    if q.shape[1] != 1:
        return torch.einsum("b n h d, b t h d -> b n h t", features(q, nu=nu), features(k, nu=nu))
    return _QuadraticForm.apply(q, k, nu).unsqueeze(1)  # type: ignore[no-untyped-call]


class _QuadraticForm(torch.autograd.Function):
    """phi(q) . phi(k) [B,H,T] of one query, as p^T M p / 2 with p = relu(q * k), K numbers a key, and M [K,K] from q's signs.

    With u = r(q) * r(k), phi(q) . phi(k) = sum_j <u, roll(u, j)>. One half of u is p where q is positive, the other p where
    it is not, so M_ij counts the shifts that bring i upon j: inside a half where q_i and q_j have one sign, else across.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, nu: int) -> Tensor:
        width = k.shape[-1]
        unit = torch.eye(2 * width, dtype=k.dtype, device=k.device)
        shifts = torch.stack([unit.roll(by, 0) for shift in range(1, nu + 1) for by in (shift, -shift)]).sum(0)
        positive = q[:, 0] > 0  # B H K
        is_inside = positive.unsqueeze(-1) == positive.unsqueeze(-2)
        M = torch.where(is_inside, shifts[:width, :width], shifts[:width, width:])
        p = torch.mul(q, k).relu_()
        slopes = (p.transpose(1, 2) @ M).transpose(1, 2)  # B T H K
        products = 0.5 * torch.linalg.vecdot(p, slopes).transpose(1, 2)
        ctx.save_for_backward(q, k, slopes.mul_(p > 0))
        return products

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        q, k, slopes = ctx.saved_tensors
        slopes = slopes * gradient.transpose(1, 2).unsqueeze(-1)
        return (slopes * k).sum(1, keepdim=True), slopes * q, None


FEATURE_MAP = FeatureMap(
    name="dpfp",
    base="dpfp",
    formula="phi(x) = [r * roll(r, 1); ...; r * roll(r, nu)], r = relu([x; -x])",
    source="arXiv:2102.11174, section 5.3",
    features=features,
    width=lambda K, nu: 2 * K * nu,
    is_nonnegative=True,
    letters=(Letter("nu", "products per component", limit=lambda K: K - 1, reason="beyond K - 1 its features repeat"),),
    kernel=kernel,
)
