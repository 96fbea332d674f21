"""Peak memory of a call without making it: tensors that have sizes and no contents, and the bytes that they would hold.

    peak = largest sum of the sizes of all storages that are alive at once and that came up during the call

A storage is counted from the operation that returns it to the moment when nothing refers to it any more, autograd included,
so that what is kept for the backward is what the operations themselves keep. What an operation takes and gives back before it
returns is known of attention on the CPU only (`WORKSPACES`); workspaces of CUDA's libraries and of kernels are not seen,
and neither is what an allocator keeps for itself.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# the caching allocator for CUDA hands out whole blocks; that for the CPU what is asked for
BLOCKS = {"cpu": 1, "cuda": 512}


def predicted_peak_bytes(call: Callable[[], object], kind: str = "cpu") -> int:
    """The most bytes that tensors would hold at once during `call`, above what was there before.

    Works on tensors without contents (FakeTensorMode), whichever device they say they are on, and on real ones. `kind` is
    the device that is meant, cpu or cuda.
    """
    with Held(kind) as held:
        call()
    return held.most


class Held(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the storages that come up while it is entered: `now` bytes of them are alive, `most` were at once."""

    def __init__(self, kind: str = "cpu") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.block = BLOCKS[kind]
        self.workspaces = WORKSPACES if kind == "cpu" else {}
        self.now = self.most = 0
        # storages by address, each with the reference that tells of its end; what was there before has no bytes
        self._alive: dict[int, weakref.finalize[..., Any]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        for given in tree_leaves((args, named)):
            if isinstance(given, Tensor):
                self._meet(given, is_new=False)
        result = func(*args, **named)
        for returned in tree_leaves(result):
            if isinstance(returned, Tensor):
                self._meet(returned, is_new=True)
        if (workspace := self.workspaces.get(func.overloadpacket)) is not None:
            self.most = max(self.most, self.now + workspace(*args))
        return result

    def _meet(self, tensor: Tensor, *, is_new: bool) -> None:
        """Count the storage of a tensor that is seen for the first time, unless it was there before."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._alive:
            return
        size = -(-storage.nbytes() // self.block) * self.block if is_new else 0
        self._alive[key] = weakref.finalize(storage, self._gone, key, size)
        self._alive[key].atexit = False
        self.now += size
        self.most = max(self.most, self.now)

    def _gone(self, key: int, size: int) -> None:
        self._alive.pop(key, None)
        self.now -= size


def _attention_workspace(q: Tensor, k: Tensor, *args: object) -> int:
    """Of the forward: for each thread a block of scores, what is read with them, and two numbers a row."""
    rows, columns = _score_block(q, k)
    return torch.get_num_threads() * rows * (columns + 2 + q.shape[3]) * _size_of(q)


def _attention_backward_workspace(gradient: Tensor, q: Tensor, k: Tensor, *args: object) -> int:
    """Of the backward: for each thread a block of weights and one of their gradients, and a number a row once."""
    rows, columns = _score_block(q, k)
    return rows * (torch.get_num_threads() * 2 * columns + 1) * _size_of(q)


def _score_block(q: Tensor, k: Tensor) -> tuple[int, int]:
    """Queries and keys that a thread takes at a time, as torch's kernel cuts q and k [B,H,T,K]."""
    queries = 256 if q.shape[2] >= 768 else 64 if q.shape[2] >= 192 else 32
    return min(queries, q.shape[2]), min(512, k.shape[2])


def _size_of(q: Tensor) -> int:
    """Bytes of a number that is accumulated: half precision is in float32."""
    return max(4, q.element_size())


WORKSPACES: Mapping[Any, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_workspace,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward_workspace,
}
