"""Negative log-likelihood of a text that a model has not seen, each token counted once, in three ways.

    sliding     windows of the context move by `stride`; the first counts whole, later ones at their last `stride` tokens
    segments    windows side by side: what comes first in one has seen little (the same as a stride of the context)
    carried     one segment after the other at batch 1, the memory of the one before at hand; every token counts

An end of line stands before the first token, as it does before every other line.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbench.harness.models import Decoder, Memories, kept

Draws = Sequence[Tensor | None]
# in one call, where rows are independent
TOKENS_AT_ONCE = {"cpu": 2048, "cuda": 65_536}


@dataclass(frozen=True)
class Scored:
    """What each token [N] of a text cost, in nats: float64, on the CPU. `floats` are the numbers that the memory held, of a
    whole context or at the end.
    """

    nats: Tensor
    floats: int = 0

    @property
    def nll(self) -> float:
        """The cost of the whole text."""
        return float(self.nats.sum())

    @property
    def mean(self) -> float:
        """The cost of a token."""
        return self.nll / len(self.nats)

    def by_position(self, context: int) -> Tensor:
        """The mean cost at each position [context] of segments that begin every `context` tokens."""
        places = torch.arange(len(self.nats)) % context
        total = torch.zeros(min(context, len(self.nats)), dtype=self.nats.dtype).index_add(0, places, self.nats)
        return total / torch.bincount(places)

    def along(self, pieces: int) -> tuple[list[float], list[float]]:
        """Where each of at most so many equal pieces of the text ends, and the mean cost in it."""
        parts = self.nats.tensor_split(min(pieces, len(self.nats)))
        ends = torch.tensor([len(part) for part in parts]).cumsum(0)
        return ends.double().tolist(), [float(part.mean()) for part in parts]


def sliding(model: Decoder, text: Tensor, context: int, stride: int, draws: Draws) -> Scored:
    """The cost of text[1:], every token with between context - stride + 1 and context tokens before it, but for the first window's."""
    count = len(text) - 1
    context = min(context, count)
    stride = min(stride, context)
    with _evaluation(model) as device:
        first, memories = model.nll(
            text[None, :context].to(device), text[None, 1 : context + 1].to(device), draws=draws
        )
        nats = [first[0]]
        # windows after the first, by where their last token stands; the last of all may move by less
        ends = torch.arange(context + stride, count + stride, stride).clamp(max=count)
        for group in _groups(ends, device, context):
            rows = text[(group - context).unsqueeze(1) + torch.arange(context + 1)].to(device)
            hidden, _ = model(rows[:, :-1], draws=draws)
            nats.append(model.words.nll(hidden[:, -stride:], rows[:, -stride:]).flatten())
    costs = torch.cat([one.double().cpu() for one in nats])
    # where the last window moved by less than the stride, what it shares with the one before counts there
    shared = len(costs) - count
    if shared:
        costs = torch.cat([costs[: count - (stride - shared)], costs[len(costs) - (stride - shared) :]])
    return Scored(costs, floats_of(memories))


def segments(model: Decoder, text: Tensor, context: int, draws: Draws) -> Scored:
    """The cost of text[1:] in segments that know nothing of one another."""
    count = len(text) - 1
    whole = count // context
    nats = []
    with _evaluation(model) as device:
        for group in _groups(torch.arange(whole) * context, device, context):
            rows = text[group.unsqueeze(1) + torch.arange(context + 1)].to(device)
            found, _ = model.nll(rows[:, :-1], rows[:, 1:], draws=draws)
            nats.append(found.flatten())
        if whole * context < count:
            rest = text[None, whole * context :].to(device)
            found, _ = model.nll(rest[:, :-1], rest[:, 1:], draws=draws)
            nats.append(found.flatten())
    return Scored(torch.cat([one.double().cpu() for one in nats]))


def carried(
    model: Decoder,
    text: Tensor,
    context: int,
    memory: int,
    draws: Draws,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Scored:
    """The cost of text[1:] in segments, each with the memory of those before; one that grows is cut to `memory` tokens."""
    count = len(text) - 1
    nats, memories = [], None
    with _evaluation(model) as device:
        for begin in range(0, count, context):
            end = min(begin + context, count)
            row = text[None, begin : end + 1].to(device)
            found, memories = model.nll(row[:, :-1], row[:, 1:], memories, draws)
            nats.append(found[0])
            memories = kept(model.variant, memories, memory)
            progress(end / count)
    return Scored(torch.cat([one.double().cpu() for one in nats]), floats_of(memories or ()))


def floats_of(memories: Memories) -> int:
    """How many numbers the memories of one sequence hold."""
    return sum(tensor[0].numel() for memory in memories for tensor in memory.values())


@contextlib.contextmanager
def _evaluation(model: Decoder) -> Iterator[torch.device]:
    """Without gradients and dropout; gives the model's device."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield next(model.parameters()).device
    finally:
        model.train(was_training)


def _groups(places: Tensor, device: torch.device, context: int) -> Iterator[Tensor]:
    """The places, as many at a time as one call takes."""
    at_once = max(1, TOKENS_AT_ONCE[device.type] // context)
    yield from (group for group in torch.split(places, at_once) if len(group))
