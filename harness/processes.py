"""Several processes of one machine that train one model: each has all of it and a part of every batch.

rows = lab.processes.share(batch)                # this process's part of the global batch
loss = model.loss(rows)                          # its mean over these rows
lab.processes.average_gradients(parameters)      # now that of the mean over the global batch
"""

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

from attnbench.harness.errors import BadParameter
from attnbench.harness.rows import Status

# how PeerLost begins in a process that was left by another: not its own failure
LEFT = "another process of this training is gone"
Value = TypeVar("Value")
RowsOfOneKind = TypeVar("RowsOfOneKind", bound="Rows")


class Rows(Protocol):
    """What can be shared: a tensor, a list, a tuple."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> object: ...


class PeerLost(Exception):
    """Another process of the same training is gone. `status` is what that makes of the case."""

    def __init__(self, reason: str, status: Status = Status.ERROR) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class Processes:
    """The processes that train one model, seen by number `rank` of `count`. Alone, all of this costs nothing.

    What gives or takes numbers has to be called by all of them, in the same order. What it gives is the same to the bit
    in all. It is not the same to the bit as what one process computes from the whole batch: sums are taken in another
    order. Raises PeerLost once another process is gone.
    """

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that records, reports and writes files."""
        return self.rank == 0

    def share(self, rows: RowsOfOneKind) -> RowsOfOneKind:
        """This process's part of the rows of a global batch: every `count`-th from `rank` on.

        Raises BadParameter where some processes would get more rows than others, since a mean of means is then not the mean.
        """
        if len(rows) % self.count:
            raise BadParameter(
                f"{self.count} processes share a batch equally, so it needs a multiple of {self.count} rows, got {len(rows)}."
            )
        return cast(RowsOfOneKind, rows[self.rank :: self.count])

    def totals(self, *numbers: float) -> tuple[float, ...]:
        """The sum over all processes of each number."""
        if self.count == 1:
            return numbers
        sums = torch.tensor(numbers, dtype=torch.float64)
        self._add_up(sums)
        return tuple(sums.tolist())

    def average_gradients(self, parameters: Iterable[Parameter]) -> None:
        """Put the mean over all processes in place of each gradient.

        Where only some processes have a gradient, the others count as 0; where none has, there is none afterwards.
        """
        if self.count == 1:
            return
        alike: dict[tuple[torch.dtype, torch.device], list[Parameter]] = defaultdict(list)
        for parameter in parameters:
            alike[parameter.dtype, parameter.device].append(parameter)
        for some in alike.values():
            self._average_gradients(some)

    def _average_gradients(self, parameters: list[Parameter]) -> None:
        """Those of parameters of one dtype and device: in one message, with how many processes have each."""
        gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
        has = gradients[0].new_tensor([one.grad is not None for one in parameters])
        flat = torch.cat([*(gradient.flatten() for gradient in gradients), has])
        self._add_up(flat)
        *means, had = torch.split(flat, [*(one.numel() for one in parameters), len(parameters)])
        for parameter, mean, processes in zip(parameters, means, had.tolist(), strict=True):
            parameter.grad = mean.div(self.count).view_as(parameter) if processes else None

    def from_first(self, value: Value) -> Value:
        """What the first process gives; what the others give is not looked at."""
        if self.count == 1:
            return value
        values = [value if self.is_first else None]
        with _or_lost():
            dist.broadcast_object_list(values, src=0)
        return cast(Value, values[0])

    def gathered(self, value: Value) -> list[Value]:
        """What each process gives, in the order of their ranks, for the first; nothing for the others."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count if self.is_first else []
        with _or_lost():
            dist.gather_object(value, values if self.is_first else None, dst=0)
        return values

    def _add_up(self, numbers: Tensor) -> None:
        with _or_lost():
            dist.all_reduce(numbers)


@contextlib.contextmanager
def _or_lost() -> Iterator[None]:
    """Tell what torch says of a connection that broke as PeerLost."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as problem:
        raise PeerLost(f"{LEFT} ({str(problem).splitlines()[0]})") from problem


ALONE = Processes()
