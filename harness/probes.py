"""What one call costs, by looking at it from outside: work as torch performs it.

work = floating-point operations of matrix products, solves and fused attention + elements written by any operation
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode


def counted_work(call: Callable[[], object]) -> int:
    """Work of one call, backward passes inside it included: flops plus elements written.

    A number to compare lengths by, not a time. Kernels that torch does not dispatch (Triton, CUDA extensions) are not seen.
    """
    with _Work() as work:
        call()
    return work.total


class _Work(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the work of every operation; views write nothing."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0
        # the counter's formulas without the counter: looking into every operation makes it ten times slower
        self.formulas = FlopCounterMode(display=False, custom_mapping=FLOPS).flop_registry

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        result = func(*args, **named)
        formula = self.formulas.get(func.overloadpacket)
        if formula is not None:
            self.total += int(formula(*args, **named, out_val=result))
        if not func.is_view:
            returned = result if isinstance(result, tuple | list) else (result,)
            self.total += sum(one.numel() for one in returned if isinstance(one, Tensor))
        return result


def _solve_triangular(system: Sequence[int], right: Sequence[int], *args: Any, **kwargs: Any) -> int:
    """n^2 for each right-hand side: a multiplication and an addition for half of the matrix."""
    return torch.Size(right[:-2]).numel() * right[-1] * system[-1] ** 2


def _attention(q: Sequence[int], k: Sequence[int], v: Sequence[int], *args: Any, **kwargs: Any) -> int:
    """Scores and weighted values, the hidden half included: [B,H,T,K], [B,H,P,K], [B,H,P,V]."""
    batch, heads, tokens, width = q
    return 2 * batch * heads * tokens * k[2] * (width + v[3])


def _attention_backward(
    gradient: Sequence[int], q: Sequence[int], k: Sequence[int], v: Sequence[int], *args: Any, **kwargs: Any
) -> int:
    """The scores again, then the gradients of weights, values, queries and keys."""
    batch, heads, tokens, width = q
    return 2 * batch * heads * tokens * k[2] * (3 * width + 2 * v[3])


# what torch's own counter takes for free
FLOPS = {
    torch.ops.aten.linalg_solve_triangular: _solve_triangular,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
