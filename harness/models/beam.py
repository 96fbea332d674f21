"""Beam search: the likeliest texts that a model goes on with, several sources at once.

    score = log P(y | x) / |y|^penalty        |y| counts the end

Of all continuations of a source's hypotheses the best stay: as many as the beam is wide. One that ends among these is
done; a source is done when so many are, or at its last token, where only the end may follow. Beam 1 is the greedy search.

Source: arXiv:1609.08144, section 7, with the penalty that is common since.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch import Tensor

State = TypeVar("State")


@dataclass(frozen=True)
class Hypothesis:
    """Tokens without the end, and the logarithm of the probability of them and of the end."""

    tokens: tuple[int, ...]
    log_probability: float

    def score(self, penalty: float) -> float:
        """What hypotheses are ranked by."""
        return self.log_probability / (len(self.tokens) + 1) ** penalty


@dataclass(frozen=True)
class Going(Generic[State]):
    """A model that can be gone on with.

    `step(tokens, state, place)` takes the tokens [R] at `place` 0, 1, ... and gives log-probabilities [R,V] of what follows,
    and the state after. `kept(state, rows, sources)` is the state of those rows, in that order and maybe more than once;
    `sources` are those of the sources that are still there, None where none has gone.
    """

    step: Callable[[Tensor, State, int], tuple[Tensor, State]]
    kept: Callable[[State, Tensor, Tensor | None], State]


@dataclass
class _Beams:
    """Rows of the sources that are not done, `width` a source side by side."""

    sources: list[int]
    width: int
    totals: Tensor
    tokens: Tensor
    done: list[list[Hypothesis]] = field(default_factory=list)


def search(
    going: Going[State],
    state: State,
    count: int,
    *,
    begin: int,
    end: int,
    longest: int,
    beam: int = 1,
    penalty: float = 1.0,
    device: torch.device | None = None,
) -> list[list[Hypothesis]]:
    """For each of `count` sources the hypotheses that were done, the best first; at most `longest` tokens and the end.

    `state` has a row a source. `begin` stands before the first token.
    """
    beams = _Beams(
        list(range(count)),
        1,
        torch.zeros(count, 1, device=device),
        torch.full((count, 1), begin, device=device),
        [[] for _ in range(count)],
    )
    for place in range(longest + 1):
        log_probabilities, state = going.step(beams.tokens[:, -1], state, place)
        if place == longest:
            only = torch.full_like(log_probabilities, -torch.inf)
            only[:, end] = log_probabilities[:, end]
            log_probabilities = only
        rows, sources = _advance(beams, log_probabilities, end, beam)
        if not beams.sources:
            break
        state = going.kept(state, rows, sources)
    return [sorted(done, key=lambda one: -one.score(penalty)) for done in beams.done]


def _advance(beams: _Beams, log_probabilities: Tensor, end: int, beam: int) -> tuple[Tensor, Tensor | None]:
    """Put the best continuations in place; gives the rows that they go on from, and the sources that stay if some have gone."""
    count, vocabulary = len(beams.sources), log_probabilities.shape[1]
    totals = beams.totals.unsqueeze(-1) + log_probabilities.view(count, beams.width, vocabulary)
    best, places = totals.flatten(1).topk(min(beam, beams.width * vocabulary))
    ended = (places % vocabulary == end) & best.isfinite()
    for source, candidate in ended.nonzero().tolist():
        row = source * beams.width + int(places[source, candidate]) // vocabulary
        tokens = tuple(beams.tokens[row, 1:].tolist())
        beams.done[beams.sources[source]].append(Hypothesis(tokens, float(best[source, candidate])))
    totals[:, :, end] = -torch.inf
    best, places = totals.flatten(1).topk(min(beam, beams.width * vocabulary))
    is_open = [
        len(beams.done[source]) < beam and bool(finite)
        for source, finite in zip(beams.sources, best.isfinite().any(1).tolist(), strict=True)
    ]
    staying = torch.tensor(
        [place for place, stays in enumerate(is_open) if stays], device=best.device, dtype=torch.long
    )
    parents = (staying.unsqueeze(1) * beams.width + places[staying] // vocabulary).flatten()
    chosen = (places[staying] % vocabulary).flatten()
    beams.tokens = torch.cat([beams.tokens[parents], chosen.unsqueeze(1)], dim=1)
    beams.totals, beams.width = best[staying], best.shape[1]
    beams.sources = [source for source, stays in zip(beams.sources, is_open, strict=True) if stays]
    return parents, None if all(is_open) else staying
