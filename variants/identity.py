"""Identity: the features are the key itself.

    phi(x) = x        D = K

Source: the fast weight programmer of 1991 (doi:10.1162/neco.1992.4.1.131); also what softmax attention works on.
"""

from torch import Tensor

from attnbench.variants.contract import FeatureMap


def features(x: Tensor, draws: Tensor | None = None) -> Tensor:
    """phi(x) = x, [..., K]."""
    return x


FEATURE_MAP = FeatureMap(
    name="identity",
    base="",
    formula="phi(x) = x",
    source="doi:10.1162/neco.1992.4.1.131",
    features=features,
    width=lambda K: K,
    is_nonnegative=False,
)
