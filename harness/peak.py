"""Peak memory of a call: bytes held by tensors, beyond what was held before it."""

import contextlib
import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping

import torch
from torch.autograd.profiler import profile


def peak_bytes(call: Callable[[], object], device: torch.device) -> int:
    """The most bytes that tensors held at once during `call`, above what was there before, workspaces included.

    On CUDA from the allocator with its peak reset; on CPU from every allocation and release that torch's allocator
    reports, so that neither the process nor its libraries count.
    """
    # what a circle of references still holds would be given back during the call, and be missing from the peak
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    # torch.profiler itself would first import torch's compiler, which takes seconds
    with _quiet_profiler(), profile(profile_memory=True) as profiled:
        call()
    assert profiled.kineto_results is not None
    changes = [event for event in profiled.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        held += change.nbytes()
        most = max(most, held)
    return most


@contextlib.contextmanager
def _quiet_profiler() -> Iterator[None]:
    """Keep the profiler's own notes (lines that begin with USDT) off standard error; all else gets through at the end."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as caught:
        os.dup2(caught.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            caught.seek(0)
            for line in caught:
                if not line.startswith(b"USDT:"):
                    os.write(2, line)


def tensor_bytes(tensors: Mapping[str, torch.Tensor]) -> int:
    """Bytes of the elements of `tensors`."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
