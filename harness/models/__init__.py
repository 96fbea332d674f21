"""The models around an attention layer: what is around it (`layers`), words in and out (`vocabulary`), the whole (`decoder`)."""

from attnbench.harness.models.decoder import Decoder, Memories, detached, kept, positions
from attnbench.harness.models.layers import Attention, Shape, add_strengths, attentions, count_parameters, normal
from attnbench.harness.models.vocabulary import Adaptive, Tied

__all__ = [
    "Adaptive",
    "Attention",
    "Decoder",
    "Memories",
    "Shape",
    "Tied",
    "add_strengths",
    "attentions",
    "count_parameters",
    "detached",
    "kept",
    "normal",
    "positions",
]
