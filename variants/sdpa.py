"""Softmax attention by each of torch's fused kernels by name, so that they can be held against one another.

Forms `sdpa-flash`, `sdpa-efficient`, `sdpa-cudnn` and `sdpa-math`, beside `sdpa`, which leaves the choice to torch. What a
kernel cannot take (a mask, a dtype, a width) it says itself, and torch's reason is the reason of the skipped row.

Source: torch.nn.attention.sdpa_kernel; flash attention: arXiv:2307.08691; memory-efficient attention: arXiv:2112.05682.
"""

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnbench.variants.compose import Parts
from attnbench.variants.contract import Form, Fused, Memory, has_contents
from attnbench.variants.errors import Unsupported
from attnbench.variants.softmax import visible, written

_HALVES = ("bfloat16", "float16")
_ANY = ("float32", "float64", "bfloat16")


def forms(parts: Parts) -> Mapping[str, Form]:
    """The forms of softmax attention, none for any other variant."""
    if parts.write_rule.name != "softmax":
        return {}
    made = partial(Form, cost="quadratic", origins=(Path(__file__),))
    on_gpus = partial(made, devices=("cuda",))
    return {
        # on the CPU it takes values as wide as keys only
        "sdpa-flash": made(_by("FLASH_ATTENTION"), dtypes=_ANY, dtypes_for={"cuda": _HALVES}, has_equal_widths=True),
        "sdpa-efficient": on_gpus(_by("EFFICIENT_ATTENTION"), dtypes=("float32", *_HALVES)),
        "sdpa-cudnn": on_gpus(_by("CUDNN_ATTENTION"), dtypes=_HALVES),
        "sdpa-math": made(_by("MATH"), dtypes=_ANY),
    }


def _by(backend: str) -> Callable[..., tuple[Tensor, Memory]]:
    """Softmax attention by one of torch's kernels."""

    def form(q: Tensor, k: Tensor, v: Tensor, memory: Memory | None = None) -> tuple[Tensor, Memory]:
        keys, values = written(memory, k, v)
        # one token sees all there is, which needs no mask; kernels without one can so decode
        mask = None if memory is None or q.shape[1] == 1 else visible(q, keys)
        o = _attention(
            backend,
            *(x.transpose(1, 2) for x in (q, keys, values)),
            attn_mask=mask,
            is_causal=memory is None,
        )
        return o.transpose(1, 2), {"k": keys, "v": values}

    return form


def _attention(backend: str, q: Tensor, k: Tensor, v: Tensor, **how: Any) -> Tensor:
    """What the kernel gives. Raises Unsupported with torch's reasons where it does not take these inputs."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    # without contents there is no kernel to name: all but the plain one keep the same for the backward
    if not has_contents(q) and backend != "MATH":
        return scaled_dot_product_attention(q, k, v, **how)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            with sdpa_kernel(getattr(SDPBackend, backend)):
                return scaled_dot_product_attention(q, k, v, **how)
        except RuntimeError as problem:
            text = str(problem)
            if not text.startswith(("No available kernel", "No viable backend")):
                raise
            reasons = [str(one.message).partition(" (Triggered")[0].strip() for one in said]
            told = " ".join(one for one in reasons if not one.endswith("because:")) or text
            raise Unsupported(f"torch's {backend} kernel does not take these inputs: {told}") from problem


FUSED = Fused(name="sdpa", forms=forms)
