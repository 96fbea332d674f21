"""Softmax attention for the places that a point gives to it beside a variant: imported by name, so that it is part of the code hash."""

from attnbench.variants import identity, softmax
from attnbench.variants.compose import Parts, compose
from attnbench.variants.contract import Composition

SOFTMAX = compose(
    "softmax", Composition("identity", "softmax"), Parts(identity.FEATURE_MAP, softmax.WRITE_RULE, (), {}, frozenset())
)
