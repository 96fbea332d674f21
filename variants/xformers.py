"""Softmax attention by xformers, form `xformers`: the fastest of its kernels that takes the inputs, on CUDA only.

Source: xformers.ops.memory_efficient_attention; arXiv:2112.05682.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from attnbench.variants.compose import Parts
from attnbench.variants.contract import Form, Fused, Memory, has_contents
from attnbench.variants.errors import Unsupported
from attnbench.variants.softmax import written


def forms(parts: Parts) -> Mapping[str, Form]:
    """The form of softmax attention, none for any other variant."""
    if parts.write_rule.name != "softmax":
        return {}
    made = Form(
        xformers,
        cost="quadratic",
        devices=("cuda",),
        dtypes=("float32", "bfloat16", "float16"),
        counts_work=False,
        origins=(Path(__file__),),
    )
    return {"xformers": made}


def xformers(q: Tensor, k: Tensor, v: Tensor, memory: Memory | None = None) -> tuple[Tensor, Memory]:
    """Raises Unsupported without xformers, and with its own reasons where none of its kernels takes the inputs."""
    fmha = _library()
    if not has_contents(q):
        raise Unsupported("what xformers holds in memory cannot be told from tensors without contents.")
    keys, values = written(memory, k, v)
    # the mask is aligned at the last key, and so without a past at the first too
    masks = fmha.attn_bias
    mask = masks.LowerTriangularMask() if memory is None else masks.LowerTriangularFromBottomRightMask()
    try:
        o = fmha.memory_efficient_attention(q, keys, values, attn_bias=mask)
    except NotImplementedError as problem:
        reasons = " ".join(line.strip() for line in str(problem).splitlines())
        raise Unsupported(f"xformers has no kernel for these inputs: {reasons}") from problem
    return o, {"k": keys, "v": values}


def _library() -> Any:
    """The module of its attention. Raises Unsupported where xformers is not installed."""
    try:
        from xformers.ops import fmha
    except ModuleNotFoundError as lack:
        raise Unsupported(
            f"form 'xformers' needs xformers (no module '{lack.name}'): pip install 'attnbench[xformers]'."
        ) from lack
    return fmha


FUSED = Fused(name="xformers", forms=forms)
