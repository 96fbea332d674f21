"""What a device does at most, measured on the spot: bytes copied a second, and FLOPs a second of matrix products.

    bound(FLOPs, bytes) = max(FLOPs / product rate, bytes / copy rate)    seconds that an operation takes at least
    roofline fraction   = bound / time

A ceiling is the best of several tries, for the threads that are set. What lies in a cache can be moved faster than it is
copied in memory, and a kernel may multiply in a lower precision than torch does: then a fraction may come above one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from attnbench.harness.clock import seconds

TRIES = 5
# large enough for the full rate, and for no cache to hold them
MATRIX = {"cpu": 2048, "cuda": 8192}
COPIED_BYTES = {"cpu": 1 << 27, "cuda": 1 << 30}


@dataclass(frozen=True)
class Ceilings:
    """Bytes a second, counted where read and where written, and FLOPs a second by dtype."""

    bytes_per_second: float
    flops_per_second: Mapping[str, float]

    def seconds(self, flops: float, moved_bytes: float, dtype: str = "float32") -> float:
        """The least time for so many FLOPs and bytes."""
        return max(flops / self.flops_per_second[dtype], moved_bytes / self.bytes_per_second)

    def facts(self) -> dict[str, str]:
        """The ceilings as they are stored beside a number."""
        rates = {f"ceiling_{dtype}_flops_per_second": f"{rate:.4g}" for dtype, rate in self.flops_per_second.items()}
        return {"ceiling_bytes_per_second": f"{self.bytes_per_second:.4g}", **rates}


def ceilings(device: torch.device) -> Ceilings:
    """Those of a device for float32 and the threads that are set, measured once in a process: about a second."""
    return _kept(str(device), torch.get_num_threads())


@cache
def _kept(device: str, threads: int) -> Ceilings:
    where = torch.device(device)
    return measured_ceilings(where, ("float32",), MATRIX[where.type], COPIED_BYTES[where.type])


def measured_ceilings(device: torch.device, dtypes: Sequence[str], matrix: int, copied_bytes: int) -> Ceilings:
    """Ceilings from copies of so many bytes and products of square matrices so wide."""
    source = torch.zeros(copied_bytes, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    copied = _best(lambda: target.copy_(source), device)
    del source, target
    rates = {}
    for dtype in dtypes:
        square = torch.full((matrix, matrix), 1 / matrix, device=device, dtype=getattr(torch, dtype))
        rates[dtype] = 2 * matrix**3 / _best(lambda one=square: one @ one, device)  # type: ignore[misc]
    return Ceilings(2 * copied_bytes / copied, rates)


def _best(call: Callable[[], object], device: torch.device) -> float:
    call()
    return min(seconds(call, device) for _ in range(TRIES))
