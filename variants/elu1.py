"""ELU + 1: positive features, one per key component.

    phi(x) = x + 1 for x > 0, exp(x) otherwise        D = K

Source: arXiv:2006.16236, eq. (7); arXiv:2102.11174, section 5.1.
"""

import torch
from torch import Tensor

from attnbench.variants.contract import FeatureMap


def features(x: Tensor, draws: Tensor | None = None) -> Tensor:
    """phi(x) > 0, [..., K]."""
    # x + 1 above 0 and exp(x) below, with nothing subtracted: elu(x) + 1 would round to 0 below -6.3 in bfloat16
    return torch.relu(x) + torch.exp(x.clamp(max=0))


FEATURE_MAP = FeatureMap(
    name="elu1",
    base="linear",
    formula="phi(x) = elu(x) + 1",
    source="arXiv:2006.16236, eq. (7)",
    features=features,
    width=lambda K: K,
    is_nonnegative=True,
)
