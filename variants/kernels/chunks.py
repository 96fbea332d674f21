"""Kernels over chunks of C tokens. A state is kept for each border between chunks, so that chunks are independent.

With Q, K the features of a chunk [C, D], H the state before it [D, V], G the gradient of what it read:

    states               H' = H + K^T a, from the first chunk on; with REVERSE from the last chunk back
    outputs              O = tril(Q K^T) a + Q H, divided by (tril(Q K^T) 1 + Q z + eps) with attention normalisation
    gradient_of_values   tril(Q K^T)^T G + K dH'
    gradient_of_inputs   of raw queries or keys, through the normalisation and the feature map

`a` is what was written: values for the sum rule, corrections for the delta rule. Rows of text are addressed by three
strides (batch, token, head); kernels' own tensors are [B,H,T,...]. Products are of OPERAND type, sums are float32.
"""

# Compiled from its text, with pointers that the type checker does not know.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc,untyped-decorator,union-attr"

import triton
import triton.language as tl

from attnbench.variants.kernels.features import features, of_head, per_token, raw


@triton.jit
def product(a, b, OPERAND: tl.constexpr):
    """a @ b, accumulated in float32."""
    return tl.dot(a.to(OPERAND), b.to(OPERAND), input_precision="tf32x3")


@triton.jit
def scaled_features(
    x, stride, R, sizes, rows, cols, T,
    MAP: tl.constexpr, NORM: tl.constexpr, K: tl.constexpr, D: tl.constexpr, BK: tl.constexpr, SMALLEST,
):  # fmt: skip
    """phi(x)[rows, cols] times the inverse size of its row, where there is a normalisation."""
    phi = features(x, stride, R, rows, cols, T, MAP, K, D, BK, SMALLEST)
    if NORM != "none":
        phi *= per_token(sizes, 1, rows, T)[:, None]
    return phi


@triton.jit
def state_tile(S, cols, vals, D: tl.constexpr, V: tl.constexpr):
    """S[cols, vals] of one state [D,V]."""
    inside = (cols[:, None] < D) & (vals[None, :] < V)
    return tl.load(S + cols[:, None] * V + vals[None, :], mask=inside, other=0.0)


@triton.jit
def keep_state(S, cols, vals, state, D: tl.constexpr, V: tl.constexpr):
    """S[cols, vals] = state."""
    inside = (cols[:, None] < D) & (vals[None, :] < V)
    tl.store(S + cols[:, None] * V + vals[None, :], state, mask=inside)


@triton.jit
def keep_rows(x, stride, rows, cols, values, T, WIDTH: tl.constexpr):
    """x[rows, cols] = values, in the type of x."""
    inside = (rows[:, None] < T) & (cols[None, :] < WIDTH)
    tl.store(x + rows[:, None] * stride + cols[None, :], values.to(x.dtype.element_ty), mask=inside)


@triton.jit
def inverse_sizes(
    x, x_b, x_t, x_h, R, sizes, T, H, EPSILON, SMALLEST,
    MAP: tl.constexpr, NORM: tl.constexpr, K: tl.constexpr, D: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """1 / (sum of features + eps), or 1 / sqrt(sum of squares + eps), of each token: [B,H,T]."""
    rows = tl.program_id(0) * C + tl.arange(0, C)
    which = tl.program_id(1).to(tl.int64)
    x = of_head(x, x_b, x_h, which, H)
    R += (which % H) * (D // 2) * K
    size = tl.zeros([C], tl.float32)
    for first in range(0, D, BD):
        phi = features(x, x_t, R, rows, first + tl.arange(0, BD), T, MAP, K, D, BK, SMALLEST)
        size += tl.sum(phi if NORM == "sum" else phi * phi, 1)
    size = 1 / (size + EPSILON) if NORM == "sum" else tl.rsqrt(size + EPSILON)
    tl.store(sizes + which * T + rows, size, mask=rows < T)


@triton.jit
def states(
    x, x_b, x_t, x_h, a, a_b, a_t, a_h, weights, scales, sizes, R, S, Z, T, H, SMALLEST,
    MAP: tl.constexpr, NORM: tl.constexpr, HAS_Z: tl.constexpr, SCALED: tl.constexpr, REVERSE: tl.constexpr,
    K: tl.constexpr, D: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """The state at each border, S [B,H,N+1,D,V] and Z [B,H,N+1,D]; border 0 (with REVERSE: N) is there before.

    A token adds phi(x) a^T to S and phi(x) `weights` to Z; without SCALED its weight is 1, with it `a` is multiplied by `scales`.
    """
    which = tl.program_id(2).to(tl.int64)
    x = of_head(x, x_b, x_h, which, H)
    a = of_head(a, a_b, a_h, which, H)
    R += (which % H) * (D // 2) * K
    sizes, weights, scales = sizes + which * T, weights + which * T, scales + which * T
    cols = tl.program_id(0) * BD + tl.arange(0, BD)
    vals = tl.program_id(1) * BV + tl.arange(0, BV)
    count = tl.cdiv(T, C)
    S += which * (count + 1) * D * V
    Z += which * (count + 1) * D
    border = count if REVERSE else 0
    state = state_tile(S + border * D * V, cols, vals, D, V)
    total = tl.zeros([BD], tl.float32)
    if HAS_Z:
        total += tl.load(Z + border * D + cols, mask=cols < D, other=0.0)
    for i in range(count):
        n = count - 1 - i if REVERSE else i
        rows = n * C + tl.arange(0, C)
        phi = scaled_features(x, x_t, R, sizes, rows, cols, T, MAP, NORM, K, D, BK, SMALLEST)
        written = raw(a, a_t, rows, vals, T, V)
        if SCALED:
            written *= per_token(scales, 1, rows, T)[:, None]
        state += product(tl.trans(phi), written, OPERAND)
        border = n if REVERSE else n + 1
        keep_state(S + border.to(tl.int64) * D * V, cols, vals, state, D, V)
        if HAS_Z:
            if SCALED:
                total += tl.sum(phi * per_token(weights, 1, rows, T)[:, None], 0)
            else:
                total += tl.sum(phi, 0)
            tl.store(Z + border * D + cols, total, mask=(cols < D) & (tl.program_id(1) == 0))


@triton.jit
def outputs(
    q, q_b, q_t, q_h, k, k_b, k_t, k_h, a, a_b, a_t, a_h, o, o_b, o_t, o_h,
    q_sizes, k_sizes, scales, R, S, Z, T, H, EPSILON, SMALLEST,
    MAP: tl.constexpr, NORM: tl.constexpr, ATTENTION: tl.constexpr,
    K: tl.constexpr, D: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """What each token reads, [B,T,H,V]; with ATTENTION also the inverse of what it was divided by, `scales` [B,H,T]."""
    n = tl.program_id(0)
    which = tl.program_id(2).to(tl.int64)
    q = of_head(q, q_b, q_h, which, H)
    k = of_head(k, k_b, k_h, which, H)
    a = of_head(a, a_b, a_h, which, H)
    o = of_head(o, o_b, o_h, which, H)
    R += (which % H) * (D // 2) * K
    q_sizes, k_sizes, scales = q_sizes + which * T, k_sizes + which * T, scales + which * T
    border = which * (tl.cdiv(T, C) + 1) + n
    S += border * D * V
    Z += border * D
    within = tl.arange(0, C)
    rows = n * C + within
    vals = tl.program_id(1) * BV + tl.arange(0, BV)
    scores = tl.zeros([C, C], tl.float32)
    read = tl.zeros([C, BV], tl.float32)
    total = tl.zeros([C], tl.float32)
    for first in range(0, D, BD):
        cols = first + tl.arange(0, BD)
        phi_q = scaled_features(q, q_t, R, q_sizes, rows, cols, T, MAP, NORM, K, D, BK, SMALLEST)
        phi_k = scaled_features(k, k_t, R, k_sizes, rows, cols, T, MAP, NORM, K, D, BK, SMALLEST)
        scores += product(phi_q, tl.trans(phi_k), OPERAND)
        read += product(phi_q, state_tile(S, cols, vals, D, V), OPERAND)
        if ATTENTION:
            total += tl.sum(phi_q * tl.load(Z + cols, mask=cols < D, other=0.0)[None, :], 1)
    scores = tl.where(within[:, None] >= within[None, :], scores, 0.0)
    read += product(scores, raw(a, a_t, rows, vals, T, V), OPERAND)
    if ATTENTION:
        scale = 1 / (total + tl.sum(scores, 1) + EPSILON)
        read *= scale[:, None]
        tl.store(scales + rows, scale, mask=(rows < T) & (tl.program_id(1) == 0))
    keep_rows(o, o_t, rows, vals, read, T, V)


@triton.jit
def gradient_of_values(
    q, q_b, q_t, q_h, k, k_b, k_t, k_h, g, g_b, g_t, g_h, d, d_b, d_t, d_h,
    q_sizes, k_sizes, scales, R, S, T, H, SMALLEST,
    MAP: tl.constexpr, NORM: tl.constexpr, SCALED: tl.constexpr, HAS_STATE: tl.constexpr,
    K: tl.constexpr, D: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """tril(Q K^T)^T G into `d` [B,T,H,V], with HAS_STATE also K dS, the gradient of the state behind the chunk."""
    n = tl.program_id(0)
    which = tl.program_id(2).to(tl.int64)
    q = of_head(q, q_b, q_h, which, H)
    k = of_head(k, k_b, k_h, which, H)
    g = of_head(g, g_b, g_h, which, H)
    d = of_head(d, d_b, d_h, which, H)
    R += (which % H) * (D // 2) * K
    q_sizes, k_sizes, scales = q_sizes + which * T, k_sizes + which * T, scales + which * T
    S += (which * (tl.cdiv(T, C) + 1) + n + 1) * D * V
    within = tl.arange(0, C)
    rows = n * C + within
    vals = tl.program_id(1) * BV + tl.arange(0, BV)
    scores = tl.zeros([C, C], tl.float32)
    found = tl.zeros([C, BV], tl.float32)
    for first in range(0, D, BD):
        cols = first + tl.arange(0, BD)
        phi_q = scaled_features(q, q_t, R, q_sizes, rows, cols, T, MAP, NORM, K, D, BK, SMALLEST)
        phi_k = scaled_features(k, k_t, R, k_sizes, rows, cols, T, MAP, NORM, K, D, BK, SMALLEST)
        scores += product(phi_k, tl.trans(phi_q), OPERAND)
        if HAS_STATE:
            found += product(phi_k, state_tile(S, cols, vals, D, V), OPERAND)
    scores = tl.where(within[:, None] <= within[None, :], scores, 0.0)
    read = raw(g, g_t, rows, vals, T, V)
    if SCALED:
        read *= per_token(scales, 1, rows, T)[:, None]
    found += product(scores, read, OPERAND)
    keep_rows(d, d_t, rows, vals, found, T, V)
