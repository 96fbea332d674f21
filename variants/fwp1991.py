"""The fast weight programmer of 1991, with a query: linear attention with neither feature map nor normalisation.

    S_t = S_{t-1} + v_t k_t^T        o_t = S_t q_t

A composition: identity features, sum rule, no normalisation.

Source: doi:10.1162/neco.1992.4.1.131; arXiv:2102.11174, section 3.1.
"""

from attnbench.variants.contract import Composition, Named

VARIANT = Named(
    name="fwp1991",
    composition=Composition(feature_map="identity", write_rule="sum"),
    formula="S_t = S_{t-1} + v_t k_t^T",
    source="doi:10.1162/neco.1992.4.1.131",
)
