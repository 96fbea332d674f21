"""The sum rule and the delta rule in Triton kernels, with the feature map inside: features are never written anywhere.

    raw q, k, v  ->  kernel: phi, division of features, write, read, division  ->  values, S

Forms `triton` of the sum rule on identity, elu1, dpfp and favor features, features as they are or divided by their sum or
length, with or without attention normalisation; of the delta rule the same, without attention normalisation. `+scaled`,
whose scale moves from token to token, is not served.

With TRITON_INTERPRET=1 Triton's interpreter runs them on the CPU, slowly; it multiplies bfloat16 wrongly, so not that.

Source: the chunkwise forms of `sum` and `delta`; which shapes there are says `attnbench.variants.kernels.table`.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from attnbench.variants.compose import Parts
from attnbench.variants.contract import Form, Fused, Memory
from attnbench.variants.errors import Unsupported

MAPS = ("identity", "elu1", "dpfp", "favor")
NORMS = ("sum", "l2")


def forms(parts: Parts) -> Mapping[str, Form]:
    """The form of a composition, where the kernels serve it."""
    if not _serves(parts):
        return {}
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return {
        "triton": Form(
            _call(parts),
            devices=("cpu",) if interpreted else ("cuda",),
            dtypes=("float32", "float16") if interpreted else ("float32", "bfloat16"),
            counts_work=False,
            origins=(Path(__file__),),
        )
    }


def _serves(parts: Parts) -> bool:
    """Whether there are kernels for this composition."""
    return (
        parts.feature_map.name in MAPS
        and parts.write_rule.name in ("sum", "delta")
        and all(norm.name in NORMS for norm in parts.divides_features)
        and "scaled" not in parts.options
        and not (parts.attention and parts.write_rule.name == "delta")
    )


def _call(parts: Parts) -> Callable[..., tuple[Tensor, Memory]]:
    """The kernels as a function of raw queries and keys."""
    norm = next((norm.name for norm in parts.divides_features), "none")

    def form(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        beta: Tensor | None = None,
        memory: Memory | None = None,
        draws: Tensor | None = None,
    ) -> tuple[Tensor, Memory]:
        rules, blocks_for = _kernels()
        width = parts.feature_map.width(k.shape[-1], **parts.numbers)
        blocks = blocks_for(parts.feature_map.name, k.shape[-1], width, v.shape[-1], v.dtype)
        kernel = rules.Kernel(parts.feature_map.name, norm, parts.attention, width, blocks)
        S = None if memory is None else memory["S"]
        R = None if draws is None else draws.to(k.device).float().contiguous()
        if parts.write_rule.name == "sum":
            z = memory["z"] if memory is not None and parts.attention else None
            values, S, z = rules.sum_rule(q, k, v, S, z, R, kernel)
            return values, {"S": S, "z": z} if parts.attention else {"S": S}
        if beta is None:
            beta = v.new_ones(1, 1, 1).expand(k.shape[:3])
        values, S = rules.delta_rule(q, k, v, beta, S, R, kernel)
        return values, {"S": S}

    return form


def _kernels() -> tuple[Any, Callable[..., Any]]:
    """The module of the two rules, and the table of shapes. Raises Unsupported where Triton is not installed."""
    try:
        from attnbench.variants.kernels import rules
        from attnbench.variants.kernels.table import blocks_for
    except ModuleNotFoundError as lack:
        if lack.name is None or lack.name.partition(".")[0] != "triton":
            raise
        raise Unsupported(
            "form 'triton' needs Triton, which is not installed: pip install 'attnbench[cuda]'."
        ) from lack
    return rules, blocks_for


FUSED = Fused(name="triton", forms=forms)
