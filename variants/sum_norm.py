"""Sum normalisation: features of queries and keys sum to one.

    phi'(x) = phi(x) / (sum_j phi(x)_j + 1e-6)

With it a delta write removes as much as it adds, and 0 <= |phi'|^2 <= 1 keeps the recurrence stable.

Source: arXiv:2102.11174, section 4.2.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnbench.variants.contract import EPSILON, Normalisation


def features(phi: Tensor) -> Tensor:
    """phi / sum phi, [..., D]."""
    return _Shares.apply(phi)  # type: ignore[no-untyped-call]


class _Shares(torch.autograd.Function):
    """p = phi / s, with dL/dphi = (dL/dp - dL/dp . p) / s."""

    @staticmethod
    def forward(ctx: Any, phi: Tensor) -> Tensor:
        # phi can be all zero (dpfp, odd K, alternating signs)
        inverse = phi.sum(-1, keepdim=True).add_(EPSILON).reciprocal_()
        shares = phi * inverse
        ctx.save_for_backward(shares, inverse)
        return shares

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        shares, inverse = ctx.saved_tensors
        return (gradient - (gradient * shares).sum(-1, keepdim=True)).mul_(inverse)


NORMALISATION = Normalisation(
    name="sum",
    modifier="sumnorm",
    formula="phi / sum phi",
    source="arXiv:2102.11174, section 4.2",
    features=features,
)
