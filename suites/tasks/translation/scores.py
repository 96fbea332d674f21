"""Scores of translations: sacreBLEU on detokenised cased text, chrF, and BLEU on split compounds under a name of its own.

The last is what arXiv:1706.03762 reports: Moses' tokens, a hyphen inside a word split off (`##AT##-##AT##`), no smoothing;
it is 0.7 to 1.0 higher for German, and comparable with nothing else.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnbench.harness import bleu as counted

if TYPE_CHECKING:
    from attnbench.harness.bleu import Statistics


@dataclass(frozen=True)
class Score:
    """A score with the signature that says how it was counted."""

    value: float
    signature: str


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """sacreBLEU with its defaults: cased, its own tokens (13a), smoothed."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU()
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score(float(value), str(metric.get_signature()))


def bleu_statistics(hypotheses: Sequence[str], references: Sequence[str]) -> "Statistics":
    """What each sentence adds to BLEU, [N,10]; see `harness/bleu.py`."""
    from sacrebleu.metrics.bleu import BLEU

    # the counts are those of the corpus score; this only keeps a sentence's own score from being smoothed
    metric = BLEU(effective_order=True)
    rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        one = metric.sentence_score(hypothesis, [reference])
        rows.append([one.sys_len, one.ref_len, *one.counts, *one.totals])
    return np.array(rows, dtype=np.int64).reshape(-1, counted.COLUMNS)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """sacreBLEU's chrF."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score(float(value), str(metric.get_signature()))


def compound_split_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """BLEU on German of Moses' tokens with split compounds, as older papers report."""
    from sacrebleu.metrics.bleu import BLEU
    from sacremoses import MosesTokenizer

    tokeniser = MosesTokenizer(lang="de")

    def split(text: str) -> str:
        return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", tokeniser.tokenize(text, return_str=True))

    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    value = metric.corpus_score([*map(split, hypotheses)], [[*map(split, references)]]).score
    return Score(float(value), f"{metric.get_signature()}|moses:de|hyphens:split")
