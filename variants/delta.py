"""Delta rule: read what the key holds, correct it towards the new value, write the correction.

    vbar_t = S_{t-1} phi(k_t)
    S_t = S_{t-1} + beta_t (v_t - vbar_t) phi(k_t)^T
    o_t = S_t phi(q_t)

With attention normalisation both reads are divided: vbar_t by z_{t-1} . phi(k_t), o_t by z_t . phi(q_t).

Chunkwise (WY form): the corrections d_t = beta_t (v_t - vbar_t) of a chunk depend on one another through the keys alone,

    (I + L) D = beta (V - S phi(K)),    L_ij = beta_i phi(k_i) . phi(k_j) for j < i,

so one triangular solve with V right-hand sides gives them all, and no D x V product per token is formed.

Source: arXiv:2102.11174, section 4.2; the chunkwise form: arXiv:2406.06484.
"""

import torch
from torch import Tensor

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
    working_dtype,
)
from attnbench.variants.shapes import asked, by_chunk, carried, start


def recurrent(q: Features, k: Features, v: Values, beta: Betas | None, memory: Memory | None, how: How) -> Output:
    """Token by token, as the formula says."""
    S, z = start(memory, k, v)
    outputs = []
    for q_t, k_t, v_t, beta_t in zip(q.unbind(1), k.unbind(1), v.unbind(1), _strengths(beta, k).unbind(1), strict=True):
        held = torch.einsum("b h v d, b h d -> b h v", S, k_t)
        if how.attention:
            held = held / ((z * k_t).sum(-1, keepdim=True) + EPSILON)
        S = S + (beta_t[..., None] * (v_t - held))[..., :, None] * k_t[..., None, :]
        z = z + k_t
        o = torch.einsum("b h v d, b h d -> b h v", S, q_t)
        outputs.append(o / ((z * q_t).sum(-1, keepdim=True) + EPSILON) if how.attention else o)
    return torch.stack(outputs, dim=1), carried(S, z, how.attention)


def step(q: Features, k: Features, v: Values, beta: Betas | None, memory: Memory | None, how: How) -> Output:
    """One token: two matrix-vector products and a rank-one update."""
    S, z = start(memory, k, v)
    q_t, k_t, v_t, beta_t = q[:, 0], k[:, 0], v[:, 0], _strengths(beta, k)[:, 0, :, None]
    held = (S @ k_t.unsqueeze(-1)).squeeze(-1)
    if how.attention:
        held = held / ((z * k_t).sum(-1, keepdim=True) + EPSILON)
    S = torch.addcmul(S, (beta_t * (v_t - held)).unsqueeze(-1), k_t.unsqueeze(-2))
    z = z + k_t
    o = (S @ q_t.unsqueeze(-1)).squeeze(-1)
    if how.attention:
        o = o / ((z * q_t).sum(-1, keepdim=True) + EPSILON)
    return o.unsqueeze(1), carried(S, z, how.attention)


def parallel(q: Features, k: Features, v: Values, beta: Betas | None, memory: Memory | None, how: How) -> Output:
    """One T x T solve: one chunk that holds everything."""
    return chunkwise(q, k, v, beta, memory, how, chunk=q.shape[1])


def in_chunks(phi: Phi, q: Queries, k: Keys, v: Values, beta: Betas | None, memory: Memory | None, how: How) -> Output:
    """The WY form: a triangular solve inside a chunk, memory between chunks."""
    if how.attention:
        dtype = working_dtype(v)
        o, written = chunkwise(
            phi(q.to(dtype)), phi(k.to(dtype)), v.to(dtype), _strengths(beta, k).to(dtype), memory, how
        )
        return o.to(v.dtype), written
    return chunks.delta_rule(phi, q, k, v, _strengths(beta, k), memory)


def chunkwise(
    q: Features, k: Features, v: Values, beta: Betas | None, memory: Memory | None, how: How, chunk: int = 64
) -> Output:
    """The same on features, and where reads are divided."""
    S, z = start(memory, k, v)
    outputs = []
    for q_c, k_c, v_c, beta_c in by_chunk(q, k, v, _strengths(beta, k).unsqueeze(-1), chunk=chunk):  # B H C D
        corrections = _corrections(k_c, v_c, beta_c, S, z, how)
        weights = (q_c @ k_c.mT).tril()
        o = weights @ corrections + q_c @ S.mT
        if how.attention:
            o = o / (weights.sum(-1, keepdim=True) + q_c @ z.unsqueeze(-1) + EPSILON)
        S = S + corrections.mT @ k_c
        z = z + k_c.sum(-2)
        outputs.append(o)
    return torch.cat(outputs, dim=2).transpose(1, 2), carried(S, z, how.attention)


def readout(q: Asked, k: Features, beta: Betas | None, kernel: Weights | None, how: How, chunk: int = 64) -> Weights:
    """Weights [B,N,H,T] of N queries asked after the last write: beta (I + L)^-T phi(K) phi(q).

    Solved from the last chunk to the first. What the writes of a chunk correct is taken out of the query itself, so that
    the chunks before see the rest of it and no T x T matrix is formed.
    """
    keys, asked = k.transpose(1, 2), q.permute(0, 2, 3, 1)  # B H T D, B H D N
    written = removed = _strengths(beta, k).transpose(1, 2).unsqueeze(-1)
    if how.attention:
        removed = written / ((keys * (keys.cumsum(2) - keys)).sum(-1, keepdim=True) + EPSILON)
    left, solved = asked, []
    for k_c, removed_c in zip(*(reversed(torch.split(x, chunk, dim=2)) for x in (keys, removed)), strict=True):
        system = (removed_c * (k_c @ k_c.mT).tril(-1)).mT
        u = torch.linalg.solve_triangular(system, k_c @ left, upper=True, unitriangular=True)
        left = left - k_c.mT @ (removed_c * u)
        solved.append(u)
    weights = written * torch.cat(solved[::-1], dim=2)
    if how.attention:
        weights = weights / (keys.sum(2, keepdim=True) @ asked + EPSILON)
    return weights.permute(0, 3, 1, 2)


def write(k: Features, v: Values, beta: Betas | None, how: How, chunk: int = 64) -> Memory:
    """The memory after all writes, each corrected by those before it: the chunkwise form without its reads."""
    S, z = start(None, k, v)
    for k_c, v_c, beta_c in by_chunk(k, v, _strengths(beta, k).unsqueeze(-1), chunk=chunk):  # B H C D
        S, z = S + _corrections(k_c, v_c, beta_c, S, z, how).mT @ k_c, z + k_c.sum(-2)
    return carried(S, z, how.attention)


def read(q: Asked, memory: Memory, how: How) -> Values:
    """What queries read in a memory as it is."""
    return asked(q, memory, how.attention)


def _corrections(k: Features, v: Values, beta: Tensor, S: Tensor, z: Tensor, how: How) -> Tensor:
    """The corrections D [B,H,C,V] of a chunk, of keys [B,H,C,D], values and strengths, before which the memory is S and z."""
    earlier = (k @ k.mT).tril(-1)
    removed = beta
    if how.attention:
        removed = beta / (earlier.sum(-1, keepdim=True) + k @ z.unsqueeze(-1) + EPSILON)
    return torch.linalg.solve_triangular(
        removed * earlier, beta * v - removed * (k @ S.mT), upper=False, unitriangular=True
    )


def _strengths(beta: Betas | None, k: Features) -> Betas:
    """beta [B,T,H]; without one every write has full strength."""
    return k.new_ones(k.shape[:3]) if beta is None else beta


WRITE_RULE = WriteRule(
    name="delta",
    formula="S_t = S_{t-1} + beta_t (v_t - S_{t-1} phi(k_t)) phi(k_t)^T",
    source="arXiv:2102.11174, section 4.2",
    bare="elu1",
    inputs=("q", "k", "v", "beta"),
    forms={
        "chunkwise": Form(chunkwise),
        "parallel": Form(parallel, cost="quadratic"),
        "recurrent": Form(recurrent),
        "step": Form(step, tokens=1),
    },
    state_floats=lambda D, V, T, attention: V * D + (D if attention else 0),
    normalisations=("sum",),
    allows=("attention", "sum", "l2"),
    readout=readout,
    in_chunks=in_chunks,
    write=write,
    read=read,
    options=("fixedbeta",),
)
