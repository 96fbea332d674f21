"""Sum normalisation: features of queries and keys sum to one.

    phi'(x) = phi(x) / (sum_j phi(x)_j + 1e-6)

With it a delta write removes as much as it adds, and 0 <= |phi'|^2 <= 1 keeps the recurrence stable.

Source: arXiv:2102.11174, section 4.2.
"""

from torch import Tensor

from attnbench.variants.contract import EPSILON, Normalisation


def features(phi: Tensor) -> Tensor:
    """phi / sum phi, [..., D]."""
    # phi can be all zero (dpfp, odd K, alternating signs)
    return phi / (phi.sum(-1, keepdim=True) + EPSILON)


NORMALISATION = Normalisation(
    name="sum",
    modifier="sumnorm",
    formula="phi / sum phi",
    source="arXiv:2102.11174, section 4.2",
    features=features,
)
