"""L2 normalisation: features of queries and keys have length one.

    phi'(x) = phi(x) / sqrt(|phi(x)|^2 + 1e-6)

With it a delta write with beta = 1 replaces what the key held altogether.

Source: arXiv:2406.06484.
"""

import torch
from torch import Tensor

from attnbench.variants.contract import EPSILON, Normalisation


def features(phi: Tensor) -> Tensor:
    """phi / |phi|, [..., D]."""
    return phi * torch.rsqrt((phi * phi).sum(-1, keepdim=True) + EPSILON)


NORMALISATION = Normalisation(
    name="l2",
    modifier="l2norm",
    formula="phi / |phi|",
    source="arXiv:2406.06484",
    features=features,
    needs_nonnegative=False,
)
