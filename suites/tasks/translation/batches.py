"""Which pairs an update reads. It hangs on the step alone, so that a training that was broken off goes on as it would have.

    epoch    all pairs of at most `longest` tokens a side, by source length, then by target length, equals in a random order
    batch    pairs of one source length, as many as `at_once` tokens hold: rows times the longer of both sides
    update   batches in a random order, as many as `per_update` tokens hold: what follows for the accumulation

Sources of one length need no padding, so no variant has to know of it. Targets are filled up behind their end, where
nothing that counts comes after. What is left of an epoch and fills less than half an update is not read.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnbench.harness.data.pairs import Lines, PairSplit
from attnbench.harness.data.tokenisers import END_OF_LINE
from attnbench.harness.errors import BadParameter

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Pairs of one source length: source [B,S], target [B,T] that begins with the end of a line before, and what follows it
    [B,T], of which `counts` [B,T] says what is no filling.
    """

    source: Tensor
    target: Tensor
    follows: Tensor
    counts: Tensor

    @property
    def tokens(self) -> int:
        """Target tokens, ends counted."""
        return int(self.counts.sum())


@dataclass
class Updates:
    """The updates of a training; `order(epoch, count)` is a random order of so many things."""

    pairs: PairSplit
    at_once: int
    per_update: int
    longest: int
    order: Callable[[str, int, int], Numbers]
    _epochs: list[list[list[Numbers]]] = field(default_factory=list)
    _before: list[int] = field(default_factory=lambda: [0])

    def __post_init__(self) -> None:
        """Raises BadParameter where no pair is short enough."""
        sides = self.pairs.source.lengths, self.pairs.target.lengths
        self.fitting = np.flatnonzero(np.maximum(*sides) <= self.longest)
        if not len(self.fitting):
            raise BadParameter(f"no training pair has at most {self.longest} tokens a side. Use a larger longest.")

    def at(self, step: int) -> list[Numbers]:
        """The batches of step 1, 2, ...: numbers of pairs."""
        while self._before[-1] < step:
            # only the epoch that is read is held
            self._epochs = [*([[]] * len(self._epochs)), self._epoch(len(self._epochs))]
            self._before.append(self._before[-1] + len(self._epochs[-1]))
        epoch = int(np.searchsorted(self._before, step, side="left")) - 1
        updates = self._epochs[epoch] or self._epoch(epoch)
        return updates[step - 1 - self._before[epoch]]

    def _epoch(self, epoch: int) -> list[list[Numbers]]:
        """All updates of an epoch."""
        shuffled = self.fitting[self.order("pairs", epoch, len(self.fitting))]
        batches = cut(self.pairs, shuffled, self.at_once)
        updates: list[list[Numbers]] = [[]]
        held = 0
        for place in self.order("batches", epoch, len(batches)):
            tokens = padded_tokens(self.pairs, batches[place])
            if updates[-1] and held + tokens > self.per_update:
                updates.append([])
                held = 0
            updates[-1].append(batches[place])
            held += tokens
        if len(updates) > 1 and held < self.per_update / 2:
            updates.pop()
        return updates


def cut(pairs: PairSplit, numbers: Numbers, at_once: int) -> list[Numbers]:
    """The pairs in batches of one source length, those with alike targets together, equals in the order given."""
    sources, targets = pairs.source.lengths[numbers], pairs.target.lengths[numbers]
    by_length = np.lexsort((targets, sources))
    batches: list[Numbers] = []
    begin = 0
    for place, number in enumerate(by_length):
        rows = place - begin + 1
        # targets rise, so that the last is the longest
        longer = max(sources[number], targets[number])
        if rows > 1 and (sources[number] != sources[by_length[begin]] or rows * longer > at_once):
            batches.append(numbers[by_length[begin:place]])
            begin = place
    batches.append(numbers[by_length[begin:]])
    return batches


def padded_tokens(pairs: PairSplit, numbers: Numbers) -> int:
    """Rows times the longer of both sides."""
    return len(numbers) * int(max(pairs.source.lengths[numbers[0]], pairs.target.lengths[numbers].max()))


def batch_of(pairs: PairSplit, numbers: Numbers, device: torch.device) -> Batch:
    """The tokens of these pairs, whose sources have one length."""
    follows, counts = filled(pairs.target, numbers)
    target = torch.cat([torch.full((len(numbers), 1), END_OF_LINE), follows[:, :-1]], dim=1)
    source, _ = filled(pairs.source, numbers)
    return Batch(*(one.to(device) for one in (source, target, follows, counts)))


def filled(lines: Lines, numbers: Numbers) -> tuple[Tensor, Tensor]:
    """Lines as rows [B,T], filled up with ends, and which of their tokens are their own [B,T]."""
    lengths = torch.from_numpy(lines.lengths[numbers])
    rows = torch.full((len(numbers), int(lengths.max())), END_OF_LINE)
    for row, number in zip(rows, numbers.tolist(), strict=True):
        line = lines.line(number)
        row[: len(line)] = torch.from_numpy(line.astype(np.int64))
    return rows, torch.arange(rows.shape[1]) < lengths.unsqueeze(1)
