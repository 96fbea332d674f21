"""The sum rule and the delta rule by the kernels of fla-core: forms `fla-chunk` and `fla-recurrent`.

    phi(q), phi(k) by torch, in the dtype of v  ->  kernel of fla  ->  values, S

Features go through the device's memory, since fla's kernels take them as they are. It scales queries by K^-1/2 unless told
not to, keeps S as [B,H,D,V], and rounds the denominators of its own attention normalisation to half precision; so these
are found here, in float32. No form of the delta rule has attention normalisation, none has `+scaled`.

`fla-chunk` is for half precision: the delta rule refuses float32 and D beyond 256, and the sum rule in float32 multiplies in
tf32. `fla-recurrent` takes float32 too, and that of the delta rule runs in Triton's interpreter (TRITON_INTERPRET=1).

Source: fla-core, fla.ops.linear_attn and fla.ops.delta_rule; arXiv:2312.06635, arXiv:2406.06484.
"""

import os
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from attnbench.variants.compose import Parts, features_of
from attnbench.variants.contract import EPSILON, Form, Fused, Memory, has_contents
from attnbench.variants.errors import Unsupported

LARGEST_FEATURES_OF_CHUNKED_DELTA = 256
KERNELS = {
    ("sum", "chunk"): ("linear_attn", "chunk_linear_attn"),
    ("sum", "recurrent"): ("linear_attn", "fused_recurrent_linear_attn"),
    ("delta", "chunk"): ("delta_rule", "chunk_delta_rule"),
    ("delta", "recurrent"): ("delta_rule", "fused_recurrent_delta_rule"),
}


def forms(parts: Parts) -> Mapping[str, Form]:
    """The forms of a composition, where fla has kernels for it."""
    rule = parts.write_rule.name
    if rule not in ("sum", "delta") or "scaled" in parts.options or (parts.attention and rule == "delta"):
        return {}
    made = partial(Form, counts_work=False, origins=(Path(__file__),))
    interpreted = rule == "delta" and os.environ.get("TRITON_INTERPRET") == "1"
    return {
        "fla-chunk": made(_call(parts, "chunk"), devices=("cuda",), dtypes=("bfloat16", "float16")),
        "fla-recurrent": made(
            _call(parts, "recurrent"),
            devices=("cpu",) if interpreted else ("cuda",),
            dtypes=("float32", "bfloat16", "float16"),
        ),
    }


def _call(parts: Parts, kind: str) -> Callable[..., tuple[Tensor, Memory]]:
    """fla's kernel as a function of raw queries and keys."""
    rule = parts.write_rule.name

    def form(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        beta: Tensor | None = None,
        memory: Memory | None = None,
        draws: Tensor | None = None,
    ) -> tuple[Tensor, Memory]:
        kernel = _kernel(rule, kind)
        if not has_contents(v):
            raise Unsupported("what fla holds in memory cannot be told from tensors without contents.")
        phi_q, phi_k, _, _ = features_of(q.float(), k.float(), None, draws, parts)
        if (rule, kind) == ("delta", "chunk") and phi_k.shape[-1] > LARGEST_FEATURES_OF_CHUNKED_DELTA:
            raise Unsupported(
                f"fla's chunked delta rule takes D up to {LARGEST_FEATURES_OF_CHUNKED_DELTA}; here D={phi_k.shape[-1]}."
            )
        S = None if memory is None else memory["S"].float().mT.contiguous()  # B H D V
        given: dict[str, Any] = {"q": phi_q.to(v.dtype), "k": phi_k.to(v.dtype), "v": v.contiguous()}
        if rule == "delta":
            given["beta"] = v.new_ones(v.shape[:3]) if beta is None else beta.contiguous()
        else:
            given["normalize"] = False
        values, S = kernel(**given, scale=1.0, initial_state=S, output_final_state=True)
        written: dict[str, Tensor] = {"S": S.mT.contiguous()}
        if parts.attention:
            totals = phi_k.cumsum(1)  # B T H D
            if memory is not None:
                totals = totals + memory["z"].unsqueeze(1)
            values = values / ((phi_q * totals).sum(-1, keepdim=True) + EPSILON)
            written["z"] = totals[:, -1]
        return values.to(v.dtype), written

    return form


def _kernel(rule: str, kind: str) -> Callable[..., Any]:
    """A kernel of fla. Raises Unsupported where it is not installed."""
    import importlib

    module, name = KERNELS[rule, kind]
    try:
        # it warns of processors without a GPU, on which some of it runs
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return getattr(importlib.import_module(f"fla.ops.{module}"), name)
    except ModuleNotFoundError as lack:
        raise Unsupported(
            f"form 'fla-{kind}' needs fla-core (no module '{lack.name}'): pip install 'attnbench[fla]'."
        ) from lack


FUSED = Fused(name="fla", forms=forms)
