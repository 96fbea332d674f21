"""Gated rule: each write lets the whole memory fade by as much as it adds.

    S_t = (1 - beta_t) S_{t-1} + beta_t v_t phi(k_t)^T        z_t = (1 - beta_t) z_{t-1} + beta_t phi(k_t)
    o_t = S_t phi(q_t) / (z_t . phi(q_t) + 1e-6)

It forgets all keys alike; the delta rule changes only what the new key touches. The other forms are those of the sum
rule with decay log(1 - beta_t).

Source: arXiv:2103.02143, section 3.2; compared in arXiv:2102.11174, appendix B.
"""

from dataclasses import replace

import torch

from attnbench.variants import sum as sum_rule
from attnbench.variants.contract import (
    EPSILON,
    Asked,
    Betas,
    Features,
    Form,
    How,
    Memory,
    Output,
    Values,
    Weights,
    WriteRule,
)
from attnbench.variants.shapes import carried, start


def recurrent(q: Features, k: Features, v: Values, beta: Betas | None, memory: Memory | None, how: How) -> Output:
    """Token by token, as the formula says."""
    assert beta is not None
    S, z = start(memory, k, v)
    factors = [None] * q.shape[1] if how.decay is None else how.decay.exp().unbind(1)
    outputs = []
    for q_t, k_t, v_t, beta_t, factor in zip(
        q.unbind(1), k.unbind(1), v.unbind(1), beta[..., None].unbind(1), factors, strict=True
    ):
        if factor is not None:
            S, z = S * factor[..., None, None], z * factor[..., None]
        S = (1 - beta_t[..., None]) * S + (beta_t * v_t)[..., :, None] * k_t[..., None, :]
        z = (1 - beta_t) * z + beta_t * k_t
        o = torch.einsum("b h v d, b h d -> b h v", S, q_t)
        outputs.append(o / ((z * q_t).sum(-1, keepdim=True) + EPSILON) if how.attention else o)
    return torch.stack(outputs, dim=1), carried(S, z, how.attention)


def step(q: Features, k: Features, v: Values, beta: Betas | None, memory: Memory | None, how: How) -> Output:
    """One token."""
    written, fading = _fading(k, beta, how)
    return sum_rule.step(q, written, v, None, memory, fading)


def parallel(q: Features, k: Features, v: Values, beta: Betas | None, memory: Memory | None, how: How) -> Output:
    """All T x T weights at once."""
    written, fading = _fading(k, beta, how)
    return sum_rule.parallel(q, written, v, None, memory, fading)


def chunkwise(q: Features, k: Features, v: Values, beta: Betas | None, memory: Memory | None, how: How) -> Output:
    """Weights inside a chunk, memory between chunks."""
    written, fading = _fading(k, beta, how)
    return sum_rule.chunkwise(q, written, v, None, memory, fading)


def readout(q: Asked, k: Features, beta: Betas | None, kernel: Weights | None, how: How) -> Weights:
    """Weights [B,N,H,T] of N queries asked after the last write."""
    assert beta is not None
    written, fading = _fading(k, beta, how)
    scores = None if kernel is None else kernel * beta.transpose(1, 2).unsqueeze(1)
    return sum_rule.readout(q, written, None, scores, fading)


def write(k: Features, v: Values, beta: Betas | None, how: How) -> Memory:
    """The memory after all writes."""
    written, fading = _fading(k, beta, how)
    return sum_rule.write(written, v, None, fading)


def _fading(k: Features, beta: Betas | None, how: How) -> tuple[Features, How]:
    """beta phi(k), and log(1 - beta) joined to a decay that is there already."""
    assert beta is not None
    # a gate that rounds to one would make the logarithm infinite, and a difference of infinities NaN
    decay = torch.log1p(-beta.clamp(max=1 - torch.finfo(beta.dtype).eps))
    return beta[..., None] * k, replace(how, decay=decay if how.decay is None else how.decay + decay)


WRITE_RULE = WriteRule(
    name="gated",
    formula="S_t = (1 - beta_t) S_{t-1} + beta_t v_t phi(k_t)^T",
    source="arXiv:2103.02143, section 3.2",
    bare="elu1",
    inputs=("q", "k", "v", "beta"),
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
    write=write,
    read=sum_rule.read,
)
