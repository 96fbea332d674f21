"""Feature maps inside a kernel: phi(x) and its gradient, tile by tile, from raw queries and keys.

A tile is [C, n]: C tokens and the n features named by `cols`, in any order. Whatever lies outside the text or the
features is 0. Only maps that need no neighbouring token are here: `favor` with `+scaled` is not.
"""

# Compiled from its text, with pointers that the type checker does not know.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc,untyped-decorator,union-attr"

import triton
import triton.language as tl


@triton.jit
def of_head(x, x_b, x_h, which, H):
    """Where the text of one head begins; `which` runs over B x H."""
    return x + (which // H) * x_b + (which % H) * x_h


@triton.jit
def per_token(x, stride, rows, T):
    """x[rows], one number a token, float32."""
    return tl.load(x + rows * stride, mask=rows < T, other=0.0).to(tl.float32)


@triton.jit
def raw(x, stride, rows, cols, T, WIDTH: tl.constexpr):
    """x[rows, cols], float32."""
    inside = (rows[:, None] < T) & (cols[None, :] < WIDTH)
    return tl.load(x + rows[:, None] * stride + cols[None, :], mask=inside, other=0.0).to(tl.float32)


@triton.jit
def half(x, stride, rows, index, T, K: tl.constexpr):
    """relu([x; -x]) at `index`, which runs over 2K."""
    values = tl.load(x + rows[:, None] * stride + (index % K)[None, :], mask=rows[:, None] < T, other=0.0)
    values = values.to(tl.float32)
    return tl.maximum(tl.where((index < K)[None, :], values, -values), 0.0)


@triton.jit
def directions(R, cols, M: tl.constexpr, K: tl.constexpr, BK: tl.constexpr):
    """The rows of [R; -R] at `cols`, [n, BK]."""
    within = tl.arange(0, BK)
    inside = (cols[:, None] < 2 * M) & (within[None, :] < K)
    rows = tl.load(R + (cols % M)[:, None] * K + within[None, :], mask=inside, other=0.0)
    return tl.where((cols < M)[:, None], rows, -rows)


@triton.jit
def features(
    x, stride, R, rows, cols, T, MAP: tl.constexpr, K: tl.constexpr, D: tl.constexpr, BK: tl.constexpr, SMALLEST
):
    """phi(x)[rows, cols], float32."""
    inside = (rows[:, None] < T) & (cols[None, :] < D)
    if MAP == "dpfp":
        index = cols % (2 * K)
        other = (index + 2 * K - (cols // (2 * K) + 1)) % (2 * K)
        phi = half(x, stride, rows, index, T, K) * half(x, stride, rows, other, T, K)
    elif MAP == "favor":
        whole = raw(x, stride, rows, tl.arange(0, BK), T, K)
        projected = tl.dot(whole, tl.trans(directions(R, cols, D // 2, K, BK)), input_precision="tf32x3")
        offset = 0.5 * tl.sum(whole * whole, 1) + 0.5 * tl.log(D + 0.0)
        phi = tl.exp(tl.maximum(projected - offset[:, None], SMALLEST))
    else:
        values = raw(x, stride, rows, cols, T, K)
        if MAP == "elu1":
            phi = tl.maximum(values, 0.0) + tl.exp(tl.minimum(values, 0.0))
        else:
            tl.static_assert(MAP == "identity")
            phi = values
    return tl.where(inside, phi, 0.0)
