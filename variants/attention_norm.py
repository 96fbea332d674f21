"""Attention normalisation: what is read is divided by the sum of the weights.

    z_t = z_{t-1} + phi(k_t)        o_t = S_t phi(q_t) / (z_t . phi(q_t) + 1e-6)

Source: arXiv:2006.16236, section 3.2; arXiv:2102.11174, section 3.2.
"""

from attnbench.variants.contract import Normalisation

NORMALISATION = Normalisation(
    name="attention",
    modifier="attnnorm",
    formula="o = S phi(q) / (z . phi(q))",
    source="arXiv:2102.11174, section 3.2",
)
