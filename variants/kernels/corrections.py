"""Kernels of the delta rule: what depends on the order of the tokens inside a chunk, and on the order of the chunks.

With G = tril(K K^T, -1) of a chunk, b its write strengths and H the state before it, the errors r = v - (what the key
held) and the corrections b r obey r = V - K H - G b r, so

    r = Y - N (b Y),    Y = V - K H,    N = G (I + b G)^-1,

and the gradient of the corrections before those of later tokens are counted in, X, becomes X - N^T (b X). N needs no
state, so it is found for all chunks at once; only the products with it go from chunk to chunk.
"""

# Compiled from its text, with pointers that the type checker does not know.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc,untyped-decorator,union-attr"

import triton
import triton.language as tl

from attnbench.variants.kernels.chunks import keep_rows, keep_state, product, scaled_features, state_tile
from attnbench.variants.kernels.features import of_head, per_token, raw


@triton.jit
def mixing(
    k, k_b, k_t, k_h, strengths, s_b, s_t, s_h, sizes, R, N, T, H, SMALLEST,
    MAP: tl.constexpr, NORM: tl.constexpr, K: tl.constexpr, D: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BD: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """N of each chunk, [B,H,T,C]. (I + b G)^-1 row by row in blocks of 16, which are then joined two by two."""
    n = tl.program_id(0)
    which = tl.program_id(1).to(tl.int64)
    k = of_head(k, k_b, k_h, which, H)
    strengths = of_head(strengths, s_b, s_h, which, H)
    R += (which % H) * (D // 2) * K
    sizes += which * T
    N += which * T * C
    within = tl.arange(0, C)
    rows = n * C + within
    gram = tl.zeros([C, C], tl.float32)
    for first in range(0, D, BD):
        phi = scaled_features(k, k_t, R, sizes, rows, first + tl.arange(0, BD), T, MAP, NORM, K, D, BK, SMALLEST)
        gram += product(phi, tl.trans(phi), OPERAND)
    i, j = within[:, None], within[None, :]
    gram = tl.where(i > j, gram, 0.0)
    strength = per_token(strengths, s_t, rows, T)
    system = gram * strength[:, None]
    BLOCK: tl.constexpr = 16
    is_near = i // BLOCK == j // BLOCK
    inverse = tl.where(i == j, 1.0, 0.0)
    upper = tl.trans(tl.where(is_near, system, 0.0))
    for row in range(1, BLOCK):
        # row `row` of every block at once
        factors = tl.sum(tl.where(j % BLOCK == row, upper, 0.0), 1)
        update = tl.sum(tl.where(is_near, inverse * factors[:, None], 0.0), 0)
        inverse = tl.where((i % BLOCK == row) & is_near & (i > j), -update[None, :], inverse)
    for level in tl.static_range(1, 4):
        width = BLOCK * 2**level
        if width <= C:
            joins = (i // width == j // width) & (i // (width // 2) > j // (width // 2))
            inverse -= product(product(inverse, tl.where(joins, system, 0.0), tl.float32), inverse, tl.float32)
    mixed = product(gram, inverse, tl.float32)
    keep_rows(N, C, rows, within, mixed, T, C)


@triton.jit
def corrected_states(
    k, k_b, k_t, k_h, v, v_b, v_t, v_h, strengths, s_b, s_t, s_h, r, r_b, r_t, r_h,
    N, sizes, R, S, T, H, SMALLEST,
    MAP: tl.constexpr, NORM: tl.constexpr, K: tl.constexpr, D: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """The errors `r` [B,T,H,V] and the state at each border, S [B,H,N+1,D,V], whose first is there before.

    A state of one block of features stays in registers; a wider one is read back from where it was just written.
    """
    which = tl.program_id(1).to(tl.int64)
    k = of_head(k, k_b, k_h, which, H)
    v = of_head(v, v_b, v_h, which, H)
    r = of_head(r, r_b, r_h, which, H)
    strengths = of_head(strengths, s_b, s_h, which, H)
    R += (which % H) * (D // 2) * K
    sizes += which * T
    N += which * T * C
    count = tl.cdiv(T, C)
    S += which * (count + 1) * D * V
    within = tl.arange(0, C)
    vals = tl.program_id(0) * BV + tl.arange(0, BV)
    first_cols = tl.arange(0, BD)
    state = state_tile(S, first_cols, vals, D, V)
    for n in range(count):
        rows = n * C + within
        error = raw(v, v_t, rows, vals, T, V)
        strength = per_token(strengths, s_t, rows, T)
        mixed = raw(N, C, rows, within, T, C)
        phi = scaled_features(k, k_t, R, sizes, rows, first_cols, T, MAP, NORM, K, D, BK, SMALLEST)
        error -= product(phi, state, OPERAND)
        for first in range(BD, D, BD):
            cols = first + tl.arange(0, BD)
            more = scaled_features(k, k_t, R, sizes, rows, cols, T, MAP, NORM, K, D, BK, SMALLEST)
            error -= product(more, state_tile(S, cols, vals, D, V), OPERAND)
        error -= product(mixed, error * strength[:, None], OPERAND)
        keep_rows(r, r_t, rows, vals, error, T, V)
        correction = error * strength[:, None]
        state += product(tl.trans(phi), correction, OPERAND)
        after = S + D * V
        keep_state(after, first_cols, vals, state, D, V)
        for first in range(BD, D, BD):
            cols = first + tl.arange(0, BD)
            more = scaled_features(k, k_t, R, sizes, rows, cols, T, MAP, NORM, K, D, BK, SMALLEST)
            held = state_tile(S, cols, vals, D, V)
            held += product(tl.trans(more), correction, OPERAND)
            keep_state(after, cols, vals, held, D, V)
        S = after
        if D > BD:
            tl.debug_barrier()


@triton.jit
def gradient_of_corrections(
    q, q_b, q_t, q_h, k, k_b, k_t, k_h, strengths, s_b, s_t, s_h, g, g_b, g_t, g_h, x, x_b, x_t, x_h,
    N, q_sizes, k_sizes, R, S, T, H, SMALLEST,
    MAP: tl.constexpr, NORM: tl.constexpr, K: tl.constexpr, D: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """From the last chunk back: x [B,T,H,V] holds tril(Q K^T)^T G and becomes the gradient of strength times error.

    Of S [B,H,N+1,D,V], the gradient of the state at each border, the last is there before. The gradient of the values
    is `x` times the strengths.
    """
    which = tl.program_id(1).to(tl.int64)
    q = of_head(q, q_b, q_h, which, H)
    k = of_head(k, k_b, k_h, which, H)
    g = of_head(g, g_b, g_h, which, H)
    x = of_head(x, x_b, x_h, which, H)
    strengths = of_head(strengths, s_b, s_h, which, H)
    R += (which % H) * (D // 2) * K
    q_sizes, k_sizes = q_sizes + which * T, k_sizes + which * T
    N += which * T * C
    count = tl.cdiv(T, C)
    S += (which * (count + 1) + count) * D * V
    within = tl.arange(0, C)
    vals = tl.program_id(0) * BV + tl.arange(0, BV)
    first_cols = tl.arange(0, BD)
    state = state_tile(S, first_cols, vals, D, V)
    for i in range(count):
        n = count - 1 - i
        rows = n * C + within
        read = raw(g, g_t, rows, vals, T, V)
        found = raw(x, x_t, rows, vals, T, V)
        strength = per_token(strengths, s_t, rows, T)
        mixed = raw(N, C, rows, within, T, C)
        phi_k = scaled_features(k, k_t, R, k_sizes, rows, first_cols, T, MAP, NORM, K, D, BK, SMALLEST)
        found += product(phi_k, state, OPERAND)
        for first in range(BD, D, BD):
            cols = first + tl.arange(0, BD)
            more = scaled_features(k, k_t, R, k_sizes, rows, cols, T, MAP, NORM, K, D, BK, SMALLEST)
            found += product(more, state_tile(S, cols, vals, D, V), OPERAND)
        found -= product(tl.trans(mixed), found * strength[:, None], OPERAND)
        keep_rows(x, x_t, rows, vals, found, T, V)
        removed = found * strength[:, None]
        phi_q = scaled_features(q, q_t, R, q_sizes, rows, first_cols, T, MAP, NORM, K, D, BK, SMALLEST)
        state += product(tl.trans(phi_q), read, OPERAND) - product(tl.trans(phi_k), removed, OPERAND)
        earlier = S - D * V
        keep_state(earlier, first_cols, vals, state, D, V)
        for first in range(BD, D, BD):
            cols = first + tl.arange(0, BD)
            held = state_tile(S, cols, vals, D, V)
            more_q = scaled_features(q, q_t, R, q_sizes, rows, cols, T, MAP, NORM, K, D, BK, SMALLEST)
            held += product(tl.trans(more_q), read, OPERAND)
            # directions of favor for both at once would need more registers than there are
            if MAP != "favor":
                more_k = scaled_features(k, k_t, R, k_sizes, rows, cols, T, MAP, NORM, K, D, BK, SMALLEST)
                held -= product(tl.trans(more_k), removed, OPERAND)
            keep_state(earlier, cols, vals, held, D, V)
        if MAP == "favor":
            tl.debug_barrier()
            for first in range(BD, D, BD):
                cols = first + tl.arange(0, BD)
                more_k = scaled_features(k, k_t, R, k_sizes, rows, cols, T, MAP, NORM, K, D, BK, SMALLEST)
                held = state_tile(earlier, cols, vals, D, V) - product(tl.trans(more_k), removed, OPERAND)
                keep_state(earlier, cols, vals, held, D, V)
        S = earlier
        if D > BD:
            tl.debug_barrier()
