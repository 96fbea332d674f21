"""Tanh: bounded, signed features.

    phi(x) = tanh(x)        D = K

Source: fast weight memory, arXiv:2011.07831, section 3.
"""

import torch
from torch import Tensor

from attnbench.variants.contract import FeatureMap


def features(x: Tensor, draws: Tensor | None = None) -> Tensor:
    """phi(x), [..., K]."""
    return torch.tanh(x)


FEATURE_MAP = FeatureMap(
    name="tanh",
    base="",
    formula="phi(x) = tanh(x)",
    source="arXiv:2011.07831, section 3",
    features=features,
    width=lambda K: K,
    is_nonnegative=False,
)
