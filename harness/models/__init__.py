"""The models around an attention layer: what is around it (`layers`), words in and out (`vocabulary`), the whole: a language model (`decoder`), an encoder-decoder (`translator`) and its search (`beam`)."""

from attnbench.harness.models.decoder import Decoder, Memories, detached, kept, positions
from attnbench.harness.models.layers import (
    Attention,
    Bidirectional,
    Shape,
    add_strengths,
    attentions,
    count_parameters,
    normal,
)
from attnbench.harness.models.translator import Mechanisms, Translator, TranslatorDraws, TranslatorShape
from attnbench.harness.models.vocabulary import Adaptive, Tied

__all__ = [
    "Adaptive",
    "Attention",
    "Bidirectional",
    "Decoder",
    "Mechanisms",
    "Memories",
    "Shape",
    "Tied",
    "Translator",
    "TranslatorDraws",
    "TranslatorShape",
    "add_strengths",
    "attentions",
    "count_parameters",
    "detached",
    "kept",
    "normal",
    "positions",
]
