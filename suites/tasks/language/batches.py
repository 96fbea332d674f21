"""Which tokens a training step reads. It hangs on the step alone, so that a training that was broken off goes on as it would have.

    windows    B places drawn anew at each step
    streams    the text cut into B streams; each step takes the next segment of each, and after the last begins anew

Targets are the tokens one place later, so a row holds context + 1 tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbench.harness.errors import BadParameter


@dataclass(frozen=True)
class Batch:
    """Rows [B,context+1]. `begins` says that no row goes on where the step before left off."""

    rows: Tensor
    begins: bool


@dataclass(frozen=True)
class Windows:
    """Random places of the text; `generator(step)` draws them."""

    stream: Tensor
    batch: int
    context: int
    generator: Callable[[int], torch.Generator]

    def at(self, step: int) -> Batch:
        """The rows of step 1, 2, ..."""
        starts = torch.randint(len(self.stream) - self.context, (self.batch,), generator=self.generator(step))
        return Batch(_taken(self.stream, starts, self.context), begins=True)


@dataclass(frozen=True)
class Streams:
    """Contiguous streams; what is left over at the end of each, less than a segment, is not read."""

    stream: Tensor
    batch: int
    context: int

    @property
    def segments(self) -> int:
        """Steps until the text begins anew: an epoch."""
        return (len(self.stream) - 1) // self.batch // self.context

    def at(self, step: int) -> Batch:
        """The rows of step 1, 2, ..."""
        segment = (step - 1) % self.segments
        starts = torch.arange(self.batch) * ((len(self.stream) - 1) // self.batch) + segment * self.context
        return Batch(_taken(self.stream, starts, self.context), begins=segment == 0)


def batches(
    order: str, stream: Tensor, batch: int, context: int, generator: Callable[[int], torch.Generator]
) -> Windows | Streams:
    """The batches of a training text in one of the two orders. Raises BadParameter where the text is too short."""
    needed = batch * context + 1 if order == "streams" else context + 1
    if len(stream) < needed:
        raise BadParameter(
            f"the training text has {len(stream)} tokens, and {batch if order == 'streams' else 1} x {context} + 1 = {needed} "
            "are needed. Use a smaller batch or context, or another data set."
        )
    return Streams(stream, batch, context) if order == "streams" else Windows(stream, batch, context, generator)


def _taken(stream: Tensor, starts: Tensor, context: int) -> Tensor:
    return stream[starts.unsqueeze(1) + torch.arange(context + 1)].long()
