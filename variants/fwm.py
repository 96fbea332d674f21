"""Fast weight memory: the delta rule on signed features, a memory kept inside the unit ball, a normalised read.

    S'_t = S_{t-1} + d_t phi(k_t)^T,    d_t = beta_t (v_t - h_t),    h_t = S_{t-1} phi(k_t)
    S_t  = c_t S'_t,                    c_t = 1 / max(1, |S'_t|_F)
    o_t  = LayerNorm(S_t phi(q_t))      without scale and offset

Gram form: with w_ts = c_s ... c_{t-1}, the part of write s that is left before write t (w_t0: of the memory handed in),

    h_t      = w_t0 S_0 phi(k_t) + sum_{s<t} w_ts (phi(k_s) . phi(k_t)) d_s
    |S'_t|^2 = |S_{t-1}|^2 + 2 d_t . h_t + |d_t|^2 |phi(k_t)|^2,    |S_t|^2 = min(1, |S'_t|^2)

so a token costs one product of a row of the T x T matrix of keys with the corrections so far, and S is formed once, at the
end. The norm of the whole matrix decides each step, so nothing here is a sum over tokens and there is no chunkwise form.
`+noreadoutnorm` leaves the LayerNorm out: with it a read cannot equal a one-hot value.

Source: arXiv:2011.07831, section 3, and its released code (the clipping and the LayerNorm).
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import layer_norm

from attnbench.variants.contract import Betas, Features, Form, How, Memory, Output, Values, WriteRule
from attnbench.variants.shapes import asked, start


def recurrent(q: Features, k: Features, v: Values, beta: Betas | None, memory: Memory | None, how: How) -> Output:
    """Token by token, as the formula says."""
    S, _ = start(memory, k, v)
    outputs = []
    for q_t, k_t, v_t, beta_t in zip(q.unbind(1), k.unbind(1), v.unbind(1), _strengths(beta, k).unbind(1), strict=True):
        held = torch.einsum("b h v d, b h d -> b h v", S, k_t)
        S = S + (beta_t[..., None] * (v_t - held))[..., :, None] * k_t[..., None, :]
        S = S / torch.linalg.matrix_norm(S, keepdim=True).clamp(min=1)
        o = torch.einsum("b h v d, b h d -> b h v", S, q_t)
        outputs.append(o if "noreadoutnorm" in how.options else layer_norm(o, o.shape[-1:]))
    return torch.stack(outputs, dim=1), {"S": S}


def gram(q: Features, k: Features, v: Values, beta: Betas | None, memory: Memory | None, how: How) -> Output:
    """From products of keys: no D x V matrix but the last one. Gradients of gradients are not defined."""
    heads = k.shape[2]
    S, o = _Gram.apply(  # type: ignore[no-untyped-call]
        *(x.transpose(1, 2).flatten(0, 1) for x in (q, k)),
        *(x.transpose(0, 1).flatten(1, 2).contiguous() for x in (v, _strengths(beta, k).unsqueeze(-1))),
        None if memory is None else memory["S"].flatten(0, 1),
    )
    S, o = S.unflatten(0, (-1, heads)), o.unflatten(0, (-1, heads)).transpose(1, 2)
    return o if "noreadoutnorm" in how.options else layer_norm(o, o.shape[-1:]), {"S": S}


def write(k: Features, v: Values, beta: Betas | None, how: How) -> Memory:
    """The memory after all writes, each clipped in its turn."""
    return gram(k, k, v, beta, None, how)[1]


def read(q: Features, memory: Memory, how: How) -> Values:
    """What queries [B,N,H,D] read in a memory as it is, normalised."""
    o = asked(q, memory, attention=False)
    return o if "noreadoutnorm" in how.options else layer_norm(o, o.shape[-1:])


class _Gram(torch.autograd.Function):
    """The last S [B,V,D] and what is read [B,T,V], from q, k [B,T,D], v [T,B,V], beta [T,B,1] and S_0 [B,V,D] or None.

    Heads are part of B. What is met token by token lies token first, so that a token's part is contiguous.

    Backward: P_t = dL/dS_t, P'_t = dL/dS'_t, r_t = dL/do_t. A clipped write passes on nothing along S'_t itself:

        P'_t    = c_t P_t - [|S'_t| >= 1] c_t^2 (P_t . S_t) S'_t
        P_{t-1} = P'_t - beta_t (P'_t k_t) k_t^T + r_{t-1} q_{t-1}^T

    P is kept as S is: P_t = y_t S_t + w (reads r_s q_s^T for s >= t, writes x_s k_s^T for s > t, and the given dL/dS_T),

        x_t = y_{t-1} d_t - beta_t P'_t k_t,    y_{t-1} = c_t^2 (y_t - [|S'_t| >= 1] P_t . S_t)

    and P_t . S_t by a sum from token to token, as |S_t|^2; its rounding neither grows nor fades on the way, so that gradients
    of writes long since clipped away are zero to rounding only. The same steps in autograd take more than twice the time.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, S_0: Tensor | None) -> tuple[Tensor, Tensor]:
        batch, length, _ = k.shape
        products = k @ k.mT
        squares = products.diagonal(dim1=1, dim2=2).mT.unsqueeze(-1).contiguous()  # T B 1
        kept = k.new_zeros(length + 1, batch, 1 + length)  # w: first column S_0, then the writes
        kept[0, :, 0] = 1
        h = torch.zeros_like(v) if S_0 is None else (k @ S_0.mT).transpose(0, 1).contiguous()
        norm = k.new_zeros(batch, 1) if S_0 is None else S_0.square().sum((1, 2)).unsqueeze(-1)
        d, grown = torch.empty_like(v), torch.empty_like(beta)
        corrections, written = d.transpose(0, 1), beta * v
        for t, (h_t, d_t, grown_t) in enumerate(zip(h.unbind(), d.unbind(), grown.unbind(), strict=True)):
            before, after = kept[t, :, : t + 1], kept[t + 1, :, : t + 2]
            if S_0 is not None:
                h_t.mul_(before[:, :1])
            if t:
                row = products[:, t, :t].mul_(before[:, 1:])
                h_t.unsqueeze(1).baddbmm_(row.unsqueeze(1), corrections[:, :t])
            torch.addcmul(written[t], beta[t], h_t, value=-1, out=d_t)
            along = torch.addcmul(h_t, squares[t], d_t, value=0.5).mul_(d_t).sum(-1, keepdim=True)
            torch.add(norm, along, alpha=2, out=grown_t)
            norm = grown_t.clamp(0, 1)
            c = grown_t.clamp(min=1).rsqrt_()
            torch.mul(before, c, out=after[:, :-1])
            after[:, -1:] = c
        left = kept.transpose(0, 1)  # B T+1 1+T
        o = left[:, 1:, 1:].mul(q @ k.mT) @ corrections
        S = corrections.mT @ (left[:, -1, 1:, None] * k)
        if S_0 is not None:
            o.addcmul_(left[:, 1:, :1], q @ S_0.mT)
            S.addcmul_(left[:, -1:, :1], S_0)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, beta, S_0, products, squares, kept, h, d, grown, S, o)
        return S, o

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, P: Tensor | None, r: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, v, beta, S_0, products, squares, kept, h, d, grown, S, o = ctx.saved_tensors
        left, corrections = kept.transpose(0, 1), d.transpose(0, 1)
        last = left[:, -1, 1:, None]  # B T 1: what is left of each write at the end
        reaching = torch.zeros_like(corrections)  # P'_t k_t, which reaches d_t: here from reads and from S_T
        along = torch.zeros_like(beta)  # P_t . S_t: here what each token adds to it
        if r is not None:
            reaching = left[:, 1:, 1:].mul(q @ k.mT).mT @ r
            along += (r * o).sum(-1, keepdim=True).transpose(0, 1)
        if P is not None:
            reaching = torch.addcmul(reaching, last, k @ P.mT)
            along[-1] += (P * S).sum((1, 2)).unsqueeze(-1)
        reaching = reaching.transpose(0, 1).contiguous()
        later = products.mT.contiguous()
        written, read_back = beta * v, torch.addcmul(h, squares, d)  # beta v, S'_t k_t
        is_clipped = (grown >= 1).to(grown.dtype)
        shrunk = grown.clamp(min=1).reciprocal_()
        x, y = torch.empty_like(d), torch.empty_like(beta)
        adjoints, multiple = x.transpose(0, 1), torch.zeros_like(beta[0])
        for t in reversed(range(len(d))):
            reaching_t, along_t = reaching[t], along[t]
            if t + 1 < len(d):
                reaching_t.unsqueeze(1).baddbmm_(later[:, t : t + 1, t + 1 :], adjoints[:, t + 1 :])
            multiple = torch.addcmul(multiple, is_clipped[t], along_t, value=-1)
            multiple = torch.mul(multiple, shrunk[t], out=y[t])
            reaching_t.addcmul_(multiple, read_back[t])
            torch.mul(multiple, d[t], out=x[t]).addcmul_(beta[t], reaching_t, value=-1)
            if t:
                along[t - 1] += along_t * (1 - is_clipped[t]) - (reaching_t * written[t]).sum(-1, keepdim=True)
        # half of |d|^2 y on the diagonal, since the matrix acts on k from both sides
        mutual = (adjoints @ corrections.mT).mul_(left[:, :-1, 1:])
        mutual.diagonal(dim1=1, dim2=2).copy_((0.5 * y * d.square().sum(-1, keepdim=True)).squeeze(-1).mT)
        to_k = (mutual @ k).baddbmm_(mutual.mT, k)
        to_q = to_S_0 = None
        if P is not None:
            to_k.addcmul_(last, corrections @ P)
        if r is not None:
            reads = (r @ corrections.mT).mul_(left[:, 1:, 1:])
            to_k.baddbmm_(reads.mT, q)
            to_q = reads @ k
        if S_0 is not None:
            adjoints = left[:, :-1, :1] * adjoints
            to_k.baddbmm_(adjoints, S_0)
            to_S_0 = (adjoints.mT @ k).addcmul_(multiple.unsqueeze(-1), S_0)
            if r is not None and to_q is not None:
                r = left[:, 1:, :1] * r
                to_q.baddbmm_(r, S_0)
                to_S_0.baddbmm_(r.mT, q)
            if P is not None:
                to_S_0.addcmul_(left[:, -1:, :1], P)
        return to_q, to_k, beta * reaching, (reaching * (v - h)).sum(-1, keepdim=True), to_S_0


def _strengths(beta: Betas | None, k: Features) -> Betas:
    """beta [B,T,H]; without one every write has full strength."""
    return k.new_ones(k.shape[:3]) if beta is None else beta


WRITE_RULE = WriteRule(
    name="fwm",
    formula="S_t = clip(S_{t-1} + beta_t (v_t - S_{t-1} phi(k_t)) phi(k_t)^T)",
    source="arXiv:2011.07831, section 3",
    bare="tanh",
    inputs=("q", "k", "v", "beta"),
    forms={
        "gram": Form(gram, cost="quadratic"),
        "recurrent": Form(recurrent),
        "step": Form(recurrent, tokens=1),
    },
    state_floats=lambda D, V, T, attention: V * D,
    allows=("sum", "l2"),
    write=write,
    read=read,
    options=("fixedbeta", "noreadoutnorm"),
)
