"""The floors that a language model has to get under: what its tokens cost by their counts alone, in nats.

    unigram, add-one       P(w)     = (c(w) + 1) / (N + V)
    bigram, interpolated   P(w | v) = max(c(v w) - D, 0) / c(v)  +  D m(v) / c(v) * Q(w)
    Kneser-Ney             Q(w)     = max(n(w) - E, 0) / n       +  E k / n * 1 / V

c counts tokens and pairs in the training text (c(v): pairs that start with v), N its tokens, V the vocabulary; m(v) is
the number of different tokens seen after v, n(w) that of different tokens seen before w, n their sum, k how many w have
one. The discounts D and E are n1 / (n1 + 2 n2) of the counts they are taken from, n1 of which are one and n2 two, so
nothing is tuned on the held-out text. After a v never seen, P(w | v) is Q(w).

Source: Kneser and Ney, "Improved backing-off for m-gram language modeling", ICASSP 1995; interpolated as in Chen and
Goodman, "An empirical study of smoothing techniques for language modeling", Computer Speech and Language 13 (1999).
"""

import numpy as np
from numpy.typing import NDArray

from attnbench.harness.errors import BadParameter

Tokens = NDArray[np.integer]
Counts = NDArray[np.int64]
Probabilities = NDArray[np.float64]


def unigram_nll(train: Tokens, held_out: Tokens, vocabulary: int) -> float:
    """Total negative log-likelihood of `held_out`, in nats, each token by itself. Raises BadParameter."""
    _check(train, held_out, vocabulary)
    counts = np.bincount(train, minlength=vocabulary)
    return -float(np.log((counts[held_out] + 1) / (len(train) + vocabulary)).sum())


def bigram_nll(train: Tokens, held_out: Tokens, vocabulary: int) -> float:
    """Total negative log-likelihood of `held_out`, in nats, each token after the one before it. Raises BadParameter.

    The first token has none before it and costs what the unigram says.
    """
    _check(train, held_out, vocabulary)
    pairs, counts = np.unique(_pairs(train, vocabulary), return_counts=True)
    before, after = np.divmod(pairs, vocabulary)
    discount = _discount(counts)
    total = np.bincount(before, weights=counts, minlength=vocabulary)
    followers = np.bincount(before, minlength=vocabulary)
    by_itself = _continuation(np.bincount(after, minlength=vocabulary))

    asked = _pairs(held_out, vocabulary)
    v, w = held_out[:-1], held_out[1:]
    seen = _looked_up(asked, pairs, counts)
    kept = np.maximum(seen - discount, 0) + discount * followers[v] * by_itself[w]
    probability = np.where(total[v] > 0, kept / np.maximum(total[v], 1), by_itself[w])
    return unigram_nll(train, held_out[:1], vocabulary) - float(np.log(probability).sum())


def _check(train: Tokens, held_out: Tokens, vocabulary: int) -> None:
    """Raises BadParameter unless every token lies in the vocabulary."""
    for tokens in (train, held_out):
        if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocabulary:
            raise BadParameter(
                f"an n-gram model over {vocabulary} tokens needs tokens from 0 to {vocabulary - 1}, got {int(tokens.min())} "
                f"to {int(tokens.max())}. Give the vocabulary that the text was encoded with."
            )


def _pairs(tokens: Tokens, vocabulary: int) -> Counts:
    """Each token and the next, as one number."""
    wide = tokens.astype(np.int64)
    return wide[:-1] * vocabulary + wide[1:]


def _looked_up(asked: Counts, pairs: Counts, counts: Counts) -> Counts:
    """The count of each pair asked for; `pairs` are sorted."""
    if not len(pairs):
        return np.zeros_like(asked)
    place = np.minimum(np.searchsorted(pairs, asked), len(pairs) - 1)
    return np.where(pairs[place] == asked, counts[place], 0)


def _discount(counts: Counts) -> float:
    """n1 / (n1 + 2 n2), or a half where no count is one and it would leave nothing for what was never seen."""
    ones, twos = int((counts == 1).sum()), int((counts == 2).sum())
    return ones / (ones + 2 * twos) if ones else 0.5


def _continuation(neighbours: Counts) -> Probabilities:
    """Q: how likely each token is by the number of different tokens it was seen after."""
    total = int(neighbours.sum())
    if total == 0:
        return np.full(len(neighbours), 1 / len(neighbours))
    discount = _discount(neighbours[neighbours > 0])
    freed = discount * int((neighbours > 0).sum())
    return (np.maximum(neighbours - discount, 0) + freed / len(neighbours)) / total
