"""The kernel for the gradient of raw queries and keys: through products, normalisation and feature map.

The gradient of the features of a chunk is, for the columns that are asked for,

    queries   P K + G H^T + w z^T            P = tril(G a^T + w 1^T)
    keys      P^T Q + a dH'^T + 1 dz'^T      and for the delta rule  - E H^T + (M + M^T) K,   M = -tril(E a^T, -1)

with w the gradient of the denominators and E that of the values of a chunk. A feature map's own gradient is applied to
each tile of it, so that no tensor of D features is ever written.
"""

# Compiled from its text, with pointers that the type checker does not know.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc,untyped-decorator,union-attr"

import triton
import triton.language as tl

from attnbench.variants.kernels.chunks import keep_rows, product, scaled_features, state_tile
from attnbench.variants.kernels.features import directions, half, of_head, per_token, raw


@triton.jit
def against_state(rows_of, S, cols, vals, D: tl.constexpr, V: tl.constexpr, OPERAND: tl.constexpr):
    """rows_of [C,V] times the transpose of the state's rows `cols`, [C,n]."""
    return product(rows_of, tl.trans(state_tile(S, cols, vals, D, V)), OPERAND)


@triton.jit
def gradient_of_features(
    cols, rows, P, mixed, left, removed, weights,
    x, x_t, x_sizes, y, y_t, y_sizes, R, S, Z, before, vals, T, SMALLEST,
    MAP: tl.constexpr, NORM: tl.constexpr, IS_KEY: tl.constexpr, DELTA: tl.constexpr, ATTENTION: tl.constexpr,
    K: tl.constexpr, D: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """The gradient of the (normalised) features `cols`, and these features, both [C,n]."""
    other = scaled_features(y, y_t, R, y_sizes, rows, cols, T, MAP, NORM, K, D, BK, SMALLEST)
    own = scaled_features(x, x_t, R, x_sizes, rows, cols, T, MAP, NORM, K, D, BK, SMALLEST)
    found = product(P, other, OPERAND) + against_state(left, S, cols, vals, D, V, OPERAND)
    if DELTA and IS_KEY:
        found += product(mixed, own, OPERAND) - against_state(removed, before, cols, vals, D, V, OPERAND)
    if ATTENTION:
        found += weights[:, None] * tl.load(Z + cols, mask=cols < D, other=0.0)[None, :]
    return found, own


@triton.jit
def gradient_of_inputs(
    x, x_b, x_t, x_h, y, y_b, y_t, y_h, a, a_b, a_t, a_h, g, g_b, g_t, g_h, e, e_b, e_t, e_h, d, d_b, d_t, d_h,
    x_sizes, y_sizes, scales, weights, R, S, Z, before, T, H, SMALLEST,
    MAP: tl.constexpr, NORM: tl.constexpr, IS_KEY: tl.constexpr, DELTA: tl.constexpr, ATTENTION: tl.constexpr,
    K: tl.constexpr, D: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """The gradient of raw queries (x = q, y = k) or keys (x = k, y = q), into `d` [B,T,H,K].

    S and Z are the states at the borders for queries, their gradients for keys; `before` are the states in both cases.
    """
    n = tl.program_id(0)
    which = tl.program_id(1).to(tl.int64)
    x = of_head(x, x_b, x_h, which, H)
    y = of_head(y, y_b, y_h, which, H)
    a = of_head(a, a_b, a_h, which, H)
    g = of_head(g, g_b, g_h, which, H)
    d = of_head(d, d_b, d_h, which, H)
    R += (which % H) * (D // 2) * K
    x_sizes, y_sizes = x_sizes + which * T, y_sizes + which * T
    border = which * (tl.cdiv(T, C) + 1) + n
    before += border * D * V
    if IS_KEY:
        border += 1
    S += border * D * V
    Z += border * D
    within = tl.arange(0, C)
    rows = n * C + within
    vals = tl.arange(0, BV)
    own = tl.arange(0, BK)

    written = raw(a, a_t, rows, vals, T, V)
    read = raw(g, g_t, rows, vals, T, V)
    weight = tl.zeros([C], tl.float32)
    if ATTENTION:
        read *= per_token(scales + which * T, 1, rows, T)[:, None]
        weight += per_token(weights + which * T, 1, rows, T)
    if IS_KEY:
        P = product(written, tl.trans(read), OPERAND) + weight[None, :]
        P = tl.where(within[:, None] <= within[None, :], P, 0.0)
        left = written
        weight = tl.where(rows < T, 1.0, 0.0)
    else:
        P = product(read, tl.trans(written), OPERAND) + weight[:, None]
        P = tl.where(within[:, None] >= within[None, :], P, 0.0)
        left = read
    removed, mixed = left, P
    if DELTA and IS_KEY:
        e = of_head(e, e_b, e_h, which, H)
        removed = raw(e, e_t, rows, vals, T, V)
        lower = product(removed, tl.trans(written), OPERAND)
        upper = product(written, tl.trans(removed), OPERAND)
        mixed = tl.where(within[:, None] > within[None, :], lower, 0.0)
        mixed = -tl.where(within[:, None] < within[None, :], upper, mixed)

    found = tl.zeros([C, BK], tl.float32)  # J^T of the gradient of the features
    spread = tl.zeros([C, BK], tl.float32)  # J^T of what a normalisation takes off it, once
    taken = tl.zeros([C], tl.float32)  # how much it takes off
    if MAP == "dpfp":
        for part in range(4 * (D // (2 * K))):
            shift = part // 4 + 1
            is_negative = (part // 2) % 2
            is_other = part % 2
            index = tl.where(own < K, own, 0) + is_negative * K
            # feature j at i is r_i r_(i-j): i is its first factor at i, and its second at i + j
            place = (index + is_other * shift) % (2 * K)
            partner = (index + (2 * is_other - 1) * shift + 2 * K) % (2 * K)
            cols = (shift - 1) * 2 * K + place
            gradient, phi = gradient_of_features(
                cols, rows, P, mixed, left, removed, weight, x, x_t, x_sizes, y, y_t, y_sizes, R, S, Z, before,
                vals, T, SMALLEST, MAP, NORM, IS_KEY, DELTA, ATTENTION, K, D, V, BK, OPERAND,
            )  # fmt: skip
            slope = half(x, x_t, rows, partner, T, K)
            slope = tl.where(half(x, x_t, rows, index, T, K) > 0, slope, 0.0)
            slope = tl.where(is_negative == 1, -slope, slope)
            found += gradient * slope
            if NORM != "none":
                removed_alike = phi if NORM == "l2" else tl.full([C, BK], 1.0, tl.float32)
                spread += removed_alike * slope
                taken += tl.where(is_other == 1, 0.0, tl.sum(tl.where((own < K)[None, :], gradient * phi, 0.0), 1))
    elif MAP == "favor":
        total = tl.zeros([C], tl.float32)
        total_spread = tl.zeros([C], tl.float32)
        for first in range(0, D, BD):
            cols = first + tl.arange(0, BD)
            gradient, phi = gradient_of_features(
                cols, rows, P, mixed, left, removed, weight, x, x_t, x_sizes, y, y_t, y_sizes, R, S, Z, before,
                vals, T, SMALLEST, MAP, NORM, IS_KEY, DELTA, ATTENTION, K, D, V, BK, OPERAND,
            )  # fmt: skip
            toward = directions(R, cols, D // 2, K, BK)
            plain = phi
            if NORM != "none":
                sizes = per_token(x_sizes, 1, rows, T)
                plain = tl.where((sizes > 0)[:, None], phi / tl.where(sizes > 0, sizes, 1.0)[:, None], 0.0)
            pushed = gradient * plain
            found += product(pushed, toward, tl.float32)
            total += tl.sum(pushed, 1)
            if NORM != "none":
                removed_alike = plain * phi if NORM == "l2" else plain
                spread += product(removed_alike, toward, tl.float32)
                total_spread += tl.sum(removed_alike, 1)
                taken += tl.sum(gradient * phi, 1)
        values = raw(x, x_t, rows, own, T, K)
        found -= values * total[:, None]
        spread -= values * total_spread[:, None]
    else:
        # each feature is of one column of the inputs, so that a block of columns can be finished by itself
        if NORM != "none" and D > BD:
            for first in range(0, D, BD):
                gradient, phi = gradient_of_features(
                    first + tl.arange(0, BD), rows, P, mixed, left, removed, weight, x, x_t, x_sizes, y, y_t, y_sizes,
                    R, S, Z, before, vals, T, SMALLEST, MAP, NORM, IS_KEY, DELTA, ATTENTION, K, D, V, BK, OPERAND,
                )  # fmt: skip
                taken += tl.sum(gradient * phi, 1)
        for first in range(0, D, BD):
            cols = first + tl.arange(0, BD)
            gradient, phi = gradient_of_features(
                cols, rows, P, mixed, left, removed, weight, x, x_t, x_sizes, y, y_t, y_sizes, R, S, Z, before,
                vals, T, SMALLEST, MAP, NORM, IS_KEY, DELTA, ATTENTION, K, D, V, BK, OPERAND,
            )  # fmt: skip
            slope = tl.full([C, BD], 1.0, tl.float32)
            if MAP == "elu1":
                slope = tl.exp(tl.minimum(raw(x, x_t, rows, cols, T, K), 0.0))
            if NORM != "none":
                if D <= BD:
                    taken += tl.sum(gradient * phi, 1)
                gradient -= (phi if NORM == "l2" else 1.0) * taken[:, None]
                gradient *= per_token(x_sizes, 1, rows, T)[:, None]
            keep_rows(d, d_t, rows, cols, gradient * slope, T, K)
    if MAP == "dpfp" or MAP == "favor":
        if NORM != "none":
            found = (found - spread * taken[:, None]) * per_token(x_sizes, 1, rows, T)[:, None]
        keep_rows(d, d_t, rows, own, found, T, K)
