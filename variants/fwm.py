"""Fast weight memory: the delta rule on signed features, a memory kept inside the unit ball, a normalised read.

    S'_t = S_{t-1} + beta_t (v_t - S_{t-1} phi(k_t)) phi(k_t)^T
    S_t  = S'_t / max(1, |S'_t|_F)
    o_t  = LayerNorm(S_t phi(q_t))        without scale and offset

The norm of the whole matrix decides each step, so nothing here is a sum over tokens and there is no chunkwise form.
`+noreadoutnorm` leaves the LayerNorm out: with it a read cannot equal a one-hot value.

Source: arXiv:2011.07831, section 3, and its released code (the clipping and the LayerNorm).
"""

import torch
from torch.nn.functional import layer_norm

from attnbench.variants.contract import Betas, Features, Form, How, Memory, Output, Values, WriteRule
from attnbench.variants.shapes import start


def recurrent(q: Features, k: Features, v: Values, beta: Betas | None, memory: Memory | None, how: How) -> Output:
    """Token by token, as the formula says."""
    S, _ = start(memory, k, v)
    strengths = k.new_ones(k.shape[:3]) if beta is None else beta
    outputs = []
    for q_t, k_t, v_t, beta_t in zip(q.unbind(1), k.unbind(1), v.unbind(1), strengths.unbind(1), strict=True):
        held = torch.einsum("b h v d, b h d -> b h v", S, k_t)
        S = S + (beta_t[..., None] * (v_t - held))[..., :, None] * k_t[..., None, :]
        S = S / torch.linalg.matrix_norm(S, keepdim=True).clamp(min=1)
        o = torch.einsum("b h v d, b h d -> b h v", S, q_t)
        outputs.append(o if "noreadoutnorm" in how.options else layer_norm(o, o.shape[-1:]))
    return torch.stack(outputs, dim=1), {"S": S}


WRITE_RULE = WriteRule(
    name="fwm",
    formula="S_t = clip(S_{t-1} + beta_t (v_t - S_{t-1} phi(k_t)) phi(k_t)^T)",
    source="arXiv:2011.07831, section 3",
    bare="tanh",
    inputs=("q", "k", "v", "beta"),
    forms={"recurrent": Form(recurrent), "step": Form(recurrent, tokens=1)},
    state_floats=lambda D, V, T, attention: V * D,
    allows=("sum", "l2"),
    options=("fixedbeta", "noreadoutnorm"),
)
