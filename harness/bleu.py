"""BLEU from what each sentence adds to it, and its bootstrap: alone, or of two systems on the same sentences.

    BLEU = 100 min(1, e^(1 - r / c)) (p_1 p_2 p_3 p_4)^(1/4)        p_n = matches_n / ngrams_n

c and r are the tokens of all translations and references. Where nothing matches, p_n is 1 / (2^k ngrams_n), k = 1, 2, ...
for each such n, as sacreBLEU smooths. Counting matches is for sacreBLEU. Sources: doi:10.3115/1073083.1073135; arXiv:1804.08771;
the bootstrap: Koehn, "Statistical Significance Tests for Machine Translation Evaluation" (2004), W04-3250.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Statistics = NDArray[np.int64]
    Scores = NDArray[np.float64]

ORDERS = 4
# tokens of the translation, tokens of the reference, matches of each order, n-grams of each order
COLUMNS = 2 + 2 * ORDERS
RESAMPLES, RESAMPLE_SEED = 1000, 12345
STATISTICS = "bleu_statistics"
HYPOTHESES = "hypotheses"
SAMPLES = "sample_translations"
SIGNATURES = "signatures"


def bleu_of(statistics: "Statistics") -> float:
    """BLEU of a corpus, from the statistics [N,10] of its sentences."""
    return float(bleus(statistics.sum(0)))


def bleus(sums: "Statistics") -> "Scores":
    """BLEU of each corpus, from sums [...,10] of the statistics of its sentences."""
    import numpy as np

    candidates, references = sums[..., 0].astype(float), sums[..., 1].astype(float)
    matches, ngrams = (sums[..., begin : begin + ORDERS].astype(float) for begin in (2, 2 + ORDERS))
    missed = np.cumsum(matches == 0, axis=-1)
    # without n-grams of an order, or without any match, there is no BLEU
    is_empty = (ngrams == 0).any(-1) | (matches == 0).all(-1)
    smoothed = np.where(matches == 0, 0.5**missed, matches) / np.maximum(ngrams, 1)
    with np.errstate(divide="ignore"):
        brevity = np.where(candidates < references, np.exp(1 - references / np.maximum(candidates, 1e-9)), 1.0)
    return np.where(is_empty, 0.0, 100 * brevity * np.exp(np.log(smoothed).mean(-1)))


def resampled(sentences: int, resamples: int = RESAMPLES) -> "Statistics":
    """Which sentences are drawn, [resamples, sentences]: the same for every system."""
    import numpy as np

    return np.random.default_rng(RESAMPLE_SEED).integers(sentences, size=(resamples, sentences))


def interval(statistics: "Statistics") -> tuple[float, float]:
    """95 % of the bootstrap of BLEU over sentences."""
    import numpy as np

    low, high = np.quantile(_resampled_bleus(statistics), (0.025, 0.975))
    return float(low), float(high)


def paired(a: "Statistics", b: "Statistics") -> tuple[float, float, float, float]:
    """BLEU of b less that of a, 95 % of its paired bootstrap, and p, the share of resamples in which the sign is another, doubled.

    Raises ValueError where they are not of equally many sentences.
    """
    import numpy as np

    if len(a) != len(b):
        raise ValueError(f"two systems translate the same sentences, got {len(a)} and {len(b)}")
    differences = _resampled_bleus(b) - _resampled_bleus(a)
    low, high = np.quantile(differences, (0.025, 0.975))
    difference = bleu_of(b) - bleu_of(a)
    against = float(np.mean(differences <= 0 if difference > 0 else differences >= 0))
    return difference, float(low), float(high), min(1.0, 2 * against)


def _resampled_bleus(statistics: "Statistics") -> "Scores":
    import numpy as np

    # a resample is told by how often each sentence is in it
    counts = np.stack([np.bincount(one, minlength=len(statistics)) for one in resampled(len(statistics))])
    return bleus(counts @ statistics)


def to_json(statistics: "Statistics") -> str:
    """The text that `from_json` reads."""
    return json.dumps(statistics.tolist(), separators=(",", ":"))


def from_json(text: str) -> "Statistics":
    """What `to_json` wrote. Raises ValueError for anything else."""
    import numpy as np

    rows: Sequence[Sequence[int]] = json.loads(text)
    statistics = np.array(rows, dtype=np.int64)
    if statistics.ndim != 2 or statistics.shape[1] != COLUMNS:
        raise ValueError(f"statistics of BLEU are rows of {COLUMNS} numbers, got an array of shape {statistics.shape}")
    return statistics
