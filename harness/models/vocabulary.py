"""Words in and out with one matrix: as an embedding on the way in, as the weights of a softmax on the way out.

    Tied        P(w | h) = softmax(E h)_w
    Adaptive    P(w | h) = P(w | h, frequent words and one entry for each cluster of rarer ones), times P(w | h, its cluster)

The adaptive softmax takes words in the order of their frequency and looks at rare ones only where they are due. All
words have full-sized embeddings here; source: arXiv:1609.04309, tied as in arXiv:1809.10853 without its reduced sizes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnbench.harness.models.layers import PUBLISHED_DEVIATION, normal


class Tied(nn.Module):
    """One matrix [vocabulary, width], and a softmax over all words."""

    def __init__(self, words: int, width: int, *, deviation: float, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = normal(words, width, deviation=deviation, generator=generator)

    def embed(self, words: Tensor) -> Tensor:
        """Words [...] -> [..., width]."""
        return functional.embedding(words, self.weight)

    def log_probabilities(self, hidden: Tensor) -> Tensor:
        """[..., width] -> [..., vocabulary]."""
        return (hidden @ self.weight.T).log_softmax(-1)

    def nll(self, hidden: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Negative log-likelihood in nats of each target [...], from hidden states [..., width].

        With `smoothing` the target is this share of the time a word drawn evenly. Source: arXiv:1512.00567, section 7.
        """
        scores = hidden @ self.weight.T
        return functional.cross_entropy(
            scores.flatten(0, -2), targets.flatten(), reduction="none", label_smoothing=smoothing
        ).view_as(targets)


class Adaptive(nn.Module):
    """One matrix [vocabulary, width] for words in the order of their frequency, a bias a word, and an entry a cluster.

    `cutoffs` are the words at which the clusters begin, rising.
    """

    def __init__(self, words: int, width: int, cutoffs: Sequence[int], *, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = normal(words, width, deviation=PUBLISHED_DEVIATION, generator=generator)
        self.bias = nn.Parameter(torch.zeros(words))
        self.cluster_weight = normal(len(cutoffs), width, deviation=PUBLISHED_DEVIATION, generator=generator)
        self.cluster_bias = nn.Parameter(torch.zeros(len(cutoffs)))
        self.frequent = cutoffs[0]
        self.clusters = list(zip(cutoffs, (*cutoffs[1:], words), strict=True))

    def embed(self, words: Tensor) -> Tensor:
        """Words [...] -> [..., width]."""
        return functional.embedding(words, self.weight)

    def log_probabilities(self, hidden: Tensor) -> Tensor:
        """[..., width] -> [..., vocabulary]: every word, however rare."""
        head = self._head(hidden)
        within = [
            head[..., self.frequent + number, None] + self._within(hidden, begin, end)
            for number, (begin, end) in enumerate(self.clusters)
        ]
        return torch.cat([head[..., : self.frequent], *within], dim=-1)

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Negative log-likelihood in nats of each target [...], from hidden states [..., width]."""
        states, words = hidden.flatten(0, -2), targets.flatten()
        entry = words.clone()
        for number, (begin, end) in enumerate(self.clusters):
            entry = torch.where((words >= begin) & (words < end), self.frequent + number, entry)
        found = self._head(states).gather(1, entry.unsqueeze(1)).squeeze(1)
        for begin, end in self.clusters:
            at = torch.nonzero((words >= begin) & (words < end)).squeeze(1)
            if len(at):
                within = self._within(states[at], begin, end).gather(1, (words[at] - begin).unsqueeze(1)).squeeze(1)
                found = found.index_add(0, at, within.to(found.dtype))
        return -found.view_as(targets)

    def _head(self, hidden: Tensor) -> Tensor:
        """Log-probabilities of the frequent words and of each cluster."""
        weight = torch.cat([self.weight[: self.frequent], self.cluster_weight])
        bias = torch.cat([self.bias[: self.frequent], self.cluster_bias])
        return functional.linear(hidden, weight, bias).log_softmax(-1)

    def _within(self, hidden: Tensor, begin: int, end: int) -> Tensor:
        """Log-probabilities of the words of a cluster among themselves."""
        return functional.linear(hidden, self.weight[begin:end], self.bias[begin:end]).log_softmax(-1)
