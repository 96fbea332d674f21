"""Softmax attention: the memory keeps every key and value, and grows with the text.

    o_t = sum_{i <= t} softmax_i(k_i . q_t / sqrt(K)) v_i

Source: arXiv:1706.03762, eq. (1).
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnbench.variants.contract import Form, Memory, WriteRule, working_dtype
from attnbench.variants.shapes import last_tokens


def recurrent(q: Tensor, k: Tensor, v: Tensor, memory: Memory | None = None) -> tuple[Tensor, Memory]:
    """Token by token over a growing list of keys and values."""
    keys, values = (k[:, :0], v[:, :0]) if memory is None else (memory["k"], memory["v"])
    outputs = []
    for q_t, k_t, v_t in zip(torch.split(q, 1, 1), torch.split(k, 1, 1), torch.split(v, 1, 1), strict=True):
        keys, values = torch.cat([keys, k_t], dim=1), torch.cat([values, v_t], dim=1)
        outputs.append(_read(q_t, keys, values, hidden=None))
    return torch.cat(outputs, dim=1), {"k": keys, "v": values}


def parallel(q: Tensor, k: Tensor, v: Tensor, memory: Memory | None = None) -> tuple[Tensor, Memory]:
    """All T x T weights at once; also one token against a cache."""
    keys, values = written(memory, k, v)
    return _read(q, keys, values, hidden=~visible(q, keys)), {"k": keys, "v": values}


def sdpa(q: Tensor, k: Tensor, v: Tensor, memory: Memory | None = None) -> tuple[Tensor, Memory]:
    """torch's own fused kernel."""
    keys, values = written(memory, k, v)
    # is_causal aligns the mask at the first key, which is right only where no past comes before the queries
    mask = None if memory is None else visible(q, keys)
    o = scaled_dot_product_attention(
        q.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2), attn_mask=mask, is_causal=mask is None
    )
    return o.transpose(1, 2), {"k": keys, "v": values}


def readout(q: Tensor, k: Tensor, draws: Tensor | None = None) -> Tensor:
    """Weights [B,N,H,T] of N queries [B,N,H,K] asked after the last write."""
    return torch.softmax(torch.einsum("b n h k, b t h k -> b n h t", q, k) * k.shape[-1] ** -0.5, dim=-1)


def write(k: Tensor, v: Tensor, beta: Tensor | None = None, draws: Tensor | None = None) -> Memory:
    """All keys and values."""
    return {"k": k, "v": v}


def read(q: Tensor, memory: Memory, draws: Tensor | None = None) -> Tensor:
    """What queries [B,N,H,K] read, each looking at all that is kept."""
    keys, values = memory["k"].transpose(1, 2), memory["v"].transpose(1, 2)
    return scaled_dot_product_attention(q.transpose(1, 2), keys, values).transpose(1, 2)


def written(memory: Memory | None, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """All keys [B,P+T,H,K] and values [B,P+T,H,V] after these writes; P = 0 without a memory."""
    if memory is None:
        return k, v
    return torch.cat([memory["k"], k], dim=1), torch.cat([memory["v"], v], dim=1)


def visible(q: Tensor, keys: Tensor) -> Tensor:
    """Which keys each query sees, [T,P+T]: the mask is aligned at the last key."""
    tokens, total = q.shape[1], keys.shape[1]
    return torch.ones(tokens, total, dtype=torch.bool, device=q.device).tril(total - tokens)


def _read(q: Tensor, keys: Tensor, values: Tensor, hidden: Tensor | None) -> Tensor:
    """Values [B,T,H,V], the weights computed in the working dtype."""
    dtype = working_dtype(values)
    scores = torch.einsum("b t h k, b p h k -> b h t p", q.to(dtype), keys.to(dtype)) * q.shape[-1] ** -0.5
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    return torch.einsum("b h t p, b p h v -> b t h v", scores.softmax(-1), values.to(dtype)).to(values.dtype)


WRITE_RULE = WriteRule(
    name="softmax",
    formula="o_t = sum_i softmax_i(k_i . q_t / sqrt(K)) v_i",
    source="arXiv:1706.03762, eq. (1)",
    bare="identity",
    inputs=("q", "k", "v"),
    forms={},
    whole_forms={
        "sdpa": Form(sdpa, cost="quadratic"),
        "parallel": Form(parallel, cost="quadratic"),
        "recurrent": Form(recurrent, cost="quadratic"),
        "step": Form(parallel, cost="quadratic", tokens=1),
    },
    state_floats=lambda D, V, T, attention: T * (D + V),
    maps=("identity",),
    readout=readout,
    write=write,
    read=read,
    keep=last_tokens,
)
