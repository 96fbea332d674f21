"""The sum rule and the delta rule a chunk at a time, features included, with a backward of their own.

    forwards     phi of a chunk of queries and keys, weights inside the chunk, the memory S for all that came before
    backwards    from the last chunk to the first, phi and the weights made again, dL/dS handed on

Queries and keys of a chunk stand on one another, [phi(Q); phi(K)], so that one product serves both. No features outlive
their chunk; what is kept is S at the start of each, D V / C numbers a token, and for the delta rule what was corrected.

Sources: arXiv:2006.16236, section 3.3; the delta rule: arXiv:2406.06484.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnbench.variants.contract import EPSILON, Betas, Keys, Memory, Output, Phi, Queries, Values, working_dtype
from attnbench.variants.shapes import by_chunk, start


def tokens_of_chunk(matrices: int, width: int, value_width: int) -> int:
    """How many tokens a chunk has, for so many memories [V, D] side by side.

    As many as leave what a chunk works on in a processor's cache, by measurement on two cores: 64 up to 4,096 numbers a token,
    32 up to 16,384, else 16. No fewer than D V / (D + V), so that the states kept take no more than keys and values do.
    """
    numbers = matrices * (2 * width + value_width)
    cached = 64 if numbers <= 1 << 12 else 32 if numbers <= 1 << 14 else 16
    kept = width * value_width / (width + value_width)
    return next(tokens for tokens in (16, 32, 64) if tokens >= cached and (tokens >= kept or tokens == 64))


def sum_rule(
    phi: Phi, q: Queries, k: Keys, v: Values, memory: Memory | None, *, attention: bool, chunk: int = 0
) -> Output:
    """Values [B,T,H,V] and the memory of the sum rule, in chunks of `chunk` tokens (0: as many as are best)."""
    S, z = start(memory, _features_of_nothing(phi, k, v), v)
    if attention:
        # the denominator is what a value that is always one would be read as
        S = torch.cat([S, z.unsqueeze(2)], dim=2)
    chunk = chunk or tokens_of_chunk(len(q) * q.shape[2], S.shape[-1], v.shape[-1])
    o, S = _Sum.apply(q, k, v, S, phi, attention, chunk, _learns(q, k, v, S))  # type: ignore[no-untyped-call]
    return o, {"S": S[:, :, :-1], "z": S[:, :, -1]} if attention else {"S": S}


def delta_rule(
    phi: Phi, q: Queries, k: Keys, v: Values, beta: Betas, memory: Memory | None, *, chunk: int = 0
) -> Output:
    """Values [B,T,H,V] and the memory of the delta rule, in chunks of `chunk` tokens (0: as many as are best)."""
    S, _ = start(memory, _features_of_nothing(phi, k, v), v)
    chunk = chunk or tokens_of_chunk(len(q) * q.shape[2], S.shape[-1], v.shape[-1])
    o, S = _Delta.apply(q, k, v, beta, S, phi, chunk, _learns(q, k, v, beta, S))  # type: ignore[no-untyped-call]
    return o, {"S": S}


def _features_of_nothing(phi: Phi, k: Tensor, v: Tensor) -> Tensor:
    """phi of no keys, [B,0,H,D], which says how wide features are."""
    with torch.no_grad():
        return phi(k[:, :0].to(working_dtype(v)))


def _learns(*inputs: Tensor) -> bool:
    """Whether a backward may come, for which something has to be kept."""
    return torch.is_grad_enabled() and any(one.requires_grad for one in inputs)


def _without_autocast(x: Tensor) -> torch.autocast:
    """What keeps products in the dtype of their factors: state and features are float32 whatever surrounds them."""
    return torch.autocast(x.device.type, enabled=False)


class _Sum(torch.autograd.Function):
    """o [B,T,H,V] and S [B,H,V,D]; with attention normalisation S has z as one more row, [B,H,V+1,D].

    With W = tril(phi(Q) phi(K)^T) of a chunk, G = dL/dO, P = dL/dS behind it:

        O = W V + phi(Q) S^T                     dL/dW = tril(G V^T)
        dL/dphi(Q) = dL/dW phi(K) + G S          dL/dphi(K) = dL/dW^T phi(Q) + V P
        dL/dV = W^T G + phi(K) P^T               P += G^T phi(Q)

    Of a quotient o = n / d, dL/dn = G / d and dL/dd = -(G . o) / d.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, S: Tensor, phi: Phi, attention: bool, chunk: int, learns: bool
    ) -> tuple[Tensor, Tensor]:
        heads = q.shape[2]
        o = v.new_empty(v.shape)
        states, divisors = [], []
        memory = S.flatten(0, 1)
        with _without_autocast(q):
            for q_c, k_c, v_c, o_c in by_chunk(q, k, v, o, chunk=chunk):
                tokens = q_c.shape[2]
                both = _together(phi(_stacked(q_c, k_c, S.dtype)))
                asked, keys = both[:, :tokens], both[:, tokens:]
                values = _matrices(v_c, S.dtype, one_more=attention)
                weights = torch.bmm(asked, keys.mT).tril_()
                read = torch.baddbmm(torch.bmm(asked, memory.mT), weights, values)
                if learns:
                    states.append(memory)
                memory = torch.baddbmm(memory, values.mT, keys)
                if attention:
                    divisor = read[:, :, -1:] + EPSILON
                    read = read[:, :, :-1] / divisor
                    if learns:
                        divisors.append(divisor)
                o_c.copy_(_heads(read, heads))
        ctx.save_for_backward(q, k, v, *([o] if attention else []), *states, *divisors)
        ctx.phi, ctx.attention, ctx.chunk = phi, attention, chunk
        return o, _heads(memory, heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_o: Tensor, to_S: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, *rest = ctx.saved_tensors
        heads = q.shape[2]
        count = -(-q.shape[1] // ctx.chunk)
        o = rest.pop(0) if ctx.attention else None
        states, divisors = rest[:count], rest[count:] or [None] * count
        to_q, to_k, to_v = (x.new_empty(x.shape) for x in (q, k, v))
        adjoint = to_S.flatten(0, 1)
        chunks = by_chunk(q, k, v, o, to_o, to_q, to_k, to_v, chunk=ctx.chunk)
        with _without_autocast(q):
            for (q_c, k_c, v_c, o_c, g_c, to_q_c, to_k_c, to_v_c), memory, divisor in _from_the_end(
                chunks, states, divisors
            ):
                tokens = q_c.shape[2]
                raw, features, both = _with_gradient(ctx.phi, q_c, k_c, adjoint.dtype)
                asked, keys = both[:, :tokens], both[:, tokens:]
                values = _matrices(v_c, adjoint.dtype, one_more=ctx.attention)
                g = _matrices(g_c, adjoint.dtype)
                if divisor is not None:
                    g = g / divisor
                    g = torch.cat([g, -(g * _matrices(o_c, adjoint.dtype)).sum(-1, keepdim=True)], dim=-1)
                weights = torch.bmm(asked, keys.mT).tril_()
                to_weights = torch.bmm(g, values.mT).tril_()
                to_values = torch.baddbmm(torch.bmm(keys, adjoint.mT), weights.mT, g)
                to_both = torch.cat(
                    [
                        torch.baddbmm(torch.bmm(g, memory), to_weights, keys),
                        torch.baddbmm(torch.bmm(values, adjoint), to_weights.mT, asked),
                    ],
                    dim=1,
                )
                adjoint = torch.baddbmm(adjoint, g.mT, asked)
                to_v_c.copy_(_heads(to_values[:, :, : v.shape[-1]], heads))
                _back_to_inputs(raw, features, to_both, to_q_c, to_k_c)
        return to_q, to_k, to_v, _heads(adjoint, heads), None, None, None, None


class _Delta(torch.autograd.Function):
    """o [B,T,H,V] and S [B,H,V,D].

    With W = tril(phi(Q) phi(K)^T), L = beta tril(phi(K) phi(K)^T, -1) of a chunk, errors E = V - phi(K) S^T - ..., what is
    written D = beta E, and G = dL/dO, P = dL/dS behind it:

        (I + L) D = beta (V - phi(K) S^T)        O = W D + phi(Q) S^T        S += D^T phi(K)
        (I + L)^T U = W^T G + phi(K) P^T         dL/dV = beta U              dL/dbeta = U . E

    and with X = [G; -beta U] below one another, M = X D^T cut below the diagonal as W and L are:

        dL/d[phi(Q); phi(K)] = M phi(K) + X S + [0; M^T [phi(Q); phi(K)] + D P]        P += X^T [phi(Q); phi(K)]
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, S: Tensor, phi: Phi, chunk: int, learns: bool
    ) -> tuple[Tensor, Tensor]:
        heads = q.shape[2]
        o = v.new_empty(v.shape)
        states, wrong = [], []
        memory = S.flatten(0, 1)
        with _without_autocast(q):
            for q_c, k_c, v_c, beta_c, o_c in by_chunk(q, k, v, beta.unsqueeze(-1), o, chunk=chunk):
                tokens = q_c.shape[2]
                both = _together(phi(_stacked(q_c, k_c, S.dtype)))
                keys, strengths = both[:, tokens:], _matrices(beta_c, S.dtype)
                products, held = torch.bmm(both, keys.mT), torch.bmm(both, memory.mT)
                errors = _matrices(v_c, S.dtype) - held[:, tokens:]
                # E^T (I + L^T) = (V - phi(K) S^T)^T, L^T with the factors beta in its rows: as it lies in memory
                errors = torch.linalg.solve_triangular(
                    products[:, tokens:] * strengths, errors.mT, upper=True, left=False, unitriangular=True
                ).mT
                written = errors * strengths
                read = torch.baddbmm(held[:, :tokens], products[:, :tokens].tril_(), written)
                if learns:
                    states.append(memory)
                    wrong.append(errors)
                memory = torch.baddbmm(memory, written.mT, keys)
                o_c.copy_(_heads(read, heads))
        ctx.save_for_backward(q, k, beta, *states, *wrong)
        ctx.phi, ctx.chunk = phi, chunk
        return o, _heads(memory, heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_o: Tensor, to_S: Tensor) -> tuple[Tensor | None, ...]:
        q, k, beta, *rest = ctx.saved_tensors
        heads = q.shape[2]
        states, wrong = rest[: len(rest) // 2], rest[len(rest) // 2 :]
        to_q, to_k, to_v, to_beta = (x.new_empty(x.shape) for x in (q, k, to_o, beta))
        adjoint = to_S.flatten(0, 1)
        chunks = by_chunk(
            q, k, beta.unsqueeze(-1), to_o, to_q, to_k, to_v, to_beta.unsqueeze(-1), chunk=ctx.chunk
        )  # fmt: skip
        with _without_autocast(q):
            for (q_c, k_c, beta_c, g_c, to_q_c, to_k_c, to_v_c, to_beta_c), memory, errors in _from_the_end(
                chunks, states, wrong
            ):
                tokens = q_c.shape[2]
                raw, features, both = _with_gradient(ctx.phi, q_c, k_c, adjoint.dtype)
                keys, strengths = both[:, tokens:], _matrices(beta_c, adjoint.dtype)
                written = errors * strengths
                products = torch.bmm(both, keys.mT)
                pushed = torch.cat([_matrices(g_c, adjoint.dtype), torch.empty_like(errors)], dim=1)  # X
                weights, g = products[:, :tokens].tril(), pushed[:, :tokens]
                to_written = torch.baddbmm(torch.bmm(keys, adjoint.mT), weights.mT, g)
                solved = torch.linalg.solve_triangular(
                    products[:, tokens:] * strengths, to_written.mT, upper=False, left=False, unitriangular=True
                ).mT
                to_errors = solved * strengths
                torch.neg(to_errors, out=pushed[:, tokens:])
                to_v_c.copy_(_heads(to_errors, heads))
                to_beta_c.copy_(_heads((solved * errors).sum(-1, keepdim=True), heads))
                to_products = torch.bmm(pushed, written.mT)
                to_products[:, :tokens].tril_()
                to_products[:, tokens:].tril_(-1)
                to_both = torch.baddbmm(torch.bmm(pushed, memory), to_products, keys)
                to_both[:, tokens:] += torch.baddbmm(torch.bmm(written, adjoint), to_products.mT, both)
                adjoint = torch.baddbmm(adjoint, pushed.mT, both)
                _back_to_inputs(raw, features, to_both, to_q_c, to_k_c)
        return to_q, to_k, to_v, to_beta, _heads(adjoint, heads), None, None, None


def _stacked(q: Tensor, k: Tensor, dtype: torch.dtype) -> Tensor:
    """Queries and keys [B,H,C,K] of a chunk after one another, [B,2C,H,K], lying in memory as [B,H,2C,K]."""
    return torch.cat([q, k], dim=2).to(dtype).transpose(1, 2)


def _together(features: Tensor) -> Tensor:
    """Features [B,2C,H,D] as matrices [B H,2C,D]."""
    return features.transpose(1, 2).flatten(0, 1)


def _matrices(x: Tensor, dtype: torch.dtype, *, one_more: bool = False) -> Tensor:
    """x [B,H,C,n] as matrices [B H,C,n]; with `one_more`, a last column of ones."""
    if one_more:
        x = torch.cat([x, x.new_ones(1).expand(*x.shape[:-1], 1)], dim=-1)
    return x.to(dtype).flatten(0, 1)


def _heads(x: Tensor, heads: int) -> Tensor:
    """Matrices [B H,C,n] as [B,H,C,n]."""
    return x.view(-1, heads, *x.shape[1:])


def _with_gradient(phi: Phi, q: Tensor, k: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Raw queries and keys of a chunk, their features as autograd follows them, and the same as matrices [B H,2C,D]."""
    raw = _stacked(q, k, dtype).requires_grad_()
    with torch.enable_grad():
        features = phi(raw)
    return raw, features, _together(features.detach())


def _back_to_inputs(raw: Tensor, features: Tensor, to_both: Tensor, to_q: Tensor, to_k: Tensor) -> None:
    """The gradient of the features [B H,2C,D] taken back to queries and keys, into `to_q` and `to_k` [B,H,C,K]."""
    heads, tokens = to_q.shape[1], to_q.shape[2]
    to_features = _heads(to_both, heads).transpose(1, 2)
    (to_raw,) = torch.autograd.grad(features, raw, to_features)
    to_raw = to_raw.transpose(1, 2)
    to_q.copy_(to_raw[:, :, :tokens])
    to_k.copy_(to_raw[:, :, tokens:])


def _from_the_end(
    chunks: Iterator[tuple[Any, ...]], *kept: Sequence[Tensor | None]
) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Chunks with what was kept of each, the last first."""
    yield from reversed(list(zip(chunks, *kept, strict=True)))
