"""Deterministic parameter-free projection: products of rectified components, nu of them per component.

    r = relu([x; -x])                                  2K numbers
    phi(x) = [r * roll(r, 1); ...; r * roll(r, nu)]    D = 2 K nu

K = 2, nu = 1 gives one feature per quadrant: x = (1, 2) -> r = (1, 2, 0, 0) -> phi = (0, 2, 0, 0).

The shift j = K is zero throughout (relu(x) relu(-x)), and shifts j and 2K - j give the same products, so nu beyond
K - 1 adds nothing. With odd K, alternating signs give the zero vector.

Source: arXiv:2102.11174, section 5.3, eq. (37).
"""

import torch
from torch import Tensor

from attnbench.variants.contract import FeatureMap, Letter


def features(x: Tensor, draws: Tensor | None = None, *, nu: int) -> Tensor:
    """phi(x) >= 0, [..., 2 K nu]."""
    r = torch.cat([torch.relu(x), torch.relu(-x)], dim=-1)
    return torch.cat([r * torch.roll(r, shift, dims=-1) for shift in range(1, nu + 1)], dim=-1)


def kernel(q: Tensor, k: Tensor, draws: Tensor | None = None, *, nu: int) -> Tensor:
    """phi(q) . phi(k) [B,N,H,T] of queries [B,N,H,K] and keys [B,T,H,K], without building phi when N = 1.

    With u = r(q) * r(k), phi(q) . phi(k) = sum_j <u, roll(u, j)>.
    """
    if q.shape[1] != 1:
        return torch.einsum("b n h d, b t h d -> b n h t", features(q, nu=nu), features(k, nu=nu))
    # relu(q_i) relu(k_i) and relu(-q_i) relu(-k_i) are the two halves of relu(q_i k_i), split by the sign of q_i
    product = torch.relu(q * k)  # B T H K
    positive = (q > 0).to(q.dtype)
    u = torch.cat([product * positive, product * (1 - positive)], dim=-1)
    # roll(u, j) is a window of u extended by its own start: a view, where torch.roll would copy
    extended = torch.cat([u, u[..., :nu]], dim=-1)
    width = u.shape[-1]
    rolled = extended[..., 1 : 1 + width]
    for shift in range(2, nu + 1):
        rolled = rolled + extended[..., shift : shift + width]
    return (u * rolled).sum(-1).transpose(1, 2).unsqueeze(1)  # B 1 H T


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
