"""Sum rule: every write is added to the memory and stays.

    S_t = S_{t-1} + v_t phi(k_t)^T        z_t = z_{t-1} + phi(k_t)
    o_t = S_t phi(q_t)                    with attention normalisation: / (z_t . phi(q_t) + 1e-6)

A factor exp(decay_t) on S_{t-1} and z_{t-1} serves feature maps whose scale moves, and gated rules.

Source: arXiv:2006.16236; arXiv:2102.11174, section 3.2.
"""

import torch

from attnbench.variants import in_chunks as chunks
from attnbench.variants.contract import (
    EPSILON,
    Asked,
    Betas,
    Features,
    Form,
    How,
    Keys,
    Memory,
    Output,
    Phi,
    Queries,
    Values,
    Weights,
    WriteRule,
)
from attnbench.variants.shapes import asked, by_chunk, carried, causal_decay, start


def recurrent(q: Features, k: Features, v: Values, beta: Betas | None, memory: Memory | None, how: How) -> Output:
    """Token by token, as the formula says."""
    S, z = start(memory, k, v)
    factors = [None] * q.shape[1] if how.decay is None else how.decay.exp().unbind(1)
    outputs = []
    for q_t, k_t, v_t, factor in zip(q.unbind(1), k.unbind(1), v.unbind(1), factors, strict=True):
        if factor is not None:
            S = S * factor[..., None, None]
            z = z * factor[..., None]
        S = S + v_t[..., :, None] * k_t[..., None, :]
        z = z + k_t
        o = torch.einsum("b h v d, b h d -> b h v", S, q_t)
        outputs.append(o / ((z * q_t).sum(-1, keepdim=True) + EPSILON) if how.attention else o)
    return torch.stack(outputs, dim=1), carried(S, z, how.attention)


def step(q: Features, k: Features, v: Values, beta: Betas | None, memory: Memory | None, how: How) -> Output:
    """One token: a rank-one update and a matrix-vector product."""
    S, z = start(memory, k, v)
    if how.decay is not None:
        factor = how.decay[:, 0].exp()
        S, z = S * factor[..., None, None], z * factor[..., None]
    S = torch.addcmul(S, v[:, 0, :, :, None], k[:, 0, :, None, :])
    z = z + k[:, 0]
    o = (S @ q[:, 0, :, :, None]).squeeze(-1)
    if how.attention:
        o = o / ((z * q[:, 0]).sum(-1, keepdim=True) + EPSILON)
    return o.unsqueeze(1), carried(S, z, how.attention)


def parallel(q: Features, k: Features, v: Values, beta: Betas | None, memory: Memory | None, how: How) -> Output:
    """All T x T weights at once: one chunk that holds everything."""
    return chunkwise(q, k, v, beta, memory, how, chunk=q.shape[1])


def in_chunks(phi: Phi, q: Queries, k: Keys, v: Values, beta: Betas | None, memory: Memory | None, how: How) -> Output:
    """Weights inside a chunk, memory between chunks: linear in T, and no D x V state per token."""
    return chunks.sum_rule(phi, q, k, v, memory, attention=how.attention)


def chunkwise(
    q: Features, k: Features, v: Values, beta: Betas | None, memory: Memory | None, how: How, chunk: int = 64
) -> Output:
    """The same on features, with factors on the memory."""
    S, z = start(memory, k, v)
    outputs = []
    for q_c, k_c, v_c, decay_c in by_chunk(q, k, v, how.decay, chunk=chunk):  # B H C D
        weights = (q_c @ k_c.mT).tril()
        read, written = q_c, k_c
        if decay_c is not None:
            within, since_start, until_end = causal_decay(decay_c)
            weights = weights * within
            read, written = q_c * since_start[..., None], k_c * until_end[..., None]
            factor = since_start[..., -1, None]
            kept_S, kept_z = S * factor[..., None], z * factor
        else:
            kept_S, kept_z = S, z
        o = weights @ v_c + read @ S.mT
        if how.attention:
            o = o / (weights.sum(-1, keepdim=True) + read @ z.unsqueeze(-1) + EPSILON)
        S = kept_S + v_c.mT @ written
        z = kept_z + written.sum(-2)
        outputs.append(o)
    return torch.cat(outputs, dim=2).transpose(1, 2), carried(S, z, how.attention)


def readout(q: Asked, k: Features, beta: Betas | None, kernel: Weights | None, how: How) -> Weights:
    """Weights [B,N,H,T] of N queries asked after the last write: phi(q) . phi(k_t), divided by their sum."""
    weights = torch.einsum("b n h d, b t h d -> b n h t", q, k) if kernel is None else kernel
    if how.decay is not None:
        total = how.decay.cumsum(1)
        weights = weights * (total[:, -1:] - total).exp().transpose(1, 2).unsqueeze(1)
    return weights / (weights.sum(-1, keepdim=True) + EPSILON) if how.attention else weights


def write(k: Features, v: Values, beta: Betas | None, how: How) -> Memory:
    """The memory after all writes: one product of keys and values."""
    if how.decay is not None:
        total = how.decay.cumsum(1)
        k = k * (total[:, -1:] - total).exp().unsqueeze(-1)
    return carried(torch.einsum("b t h v, b t h d -> b h v d", v, k), k.sum(1), how.attention)


def read(q: Asked, memory: Memory, how: How) -> Values:
    """What queries read in a memory as it is."""
    return asked(q, memory, how.attention)


WRITE_RULE = WriteRule(
    name="sum",
    formula="S_t = S_{t-1} + v_t phi(k_t)^T",
    source="arXiv:2102.11174, section 3.2",
    bare="",
    inputs=("q", "k", "v"),
    forms={
        "chunkwise": Form(chunkwise),
        "parallel": Form(parallel, cost="quadratic"),
        "recurrent": Form(recurrent),
        "step": Form(step, tokens=1),
    },
    state_floats=lambda D, V, T, attention: V * D + (D if attention else 0),
    normalisations=("attention",),
    allows=("attention", "sum", "l2"),
    accepts_decay=True,
    readout=readout,
    in_chunks=in_chunks,
    write=write,
    read=read,
)
