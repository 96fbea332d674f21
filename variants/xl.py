"""Transformer-XL: softmax attention over the text and hidden states of earlier text, by content and by distance.

    q_i = x_i W_q        k_j = x_j W_k        v_j = x_j W_v        p_d = r_d W_r
    o_i = sum_{j <= i} softmax_j(((q_i + u) . k_j + (q_i + w) . p_{i-j}) / sqrt(K)) v_j        y_i = o_i W_o

r_d is the sinusoid of the distance d. The memory keeps x, not keys and values, so that W_k and W_v learn from earlier text
whose states are constants by then. u and w, the paper's u and v, are one pair for all layers of a model.

Source: arXiv:1901.02860, section 3.3.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from attnbench.variants.contract import Form, Hidden, Memory, Variant, working_dtype
from attnbench.variants.shapes import last_tokens

# as released: u and w are drawn like every weight, small beside queries of unit size
DEVIATION_OF_BIASES = 0.02


class Layer(nn.Module):
    """The projections of one layer, and the u and w [H,K] of its model."""

    def __init__(self, u: nn.Parameter, w: nn.Parameter, layers: int, generator: torch.Generator) -> None:
        super().__init__()
        width = u.numel()
        self.u, self.w = u, w
        self.into = _normal(width, 3 * width, deviation=width**-0.5, generator=generator)  # W_q, W_k, W_v side by side
        # smaller on the way out: all layers add to one stream
        self.out = _normal(width, width, deviation=(2 * width * layers) ** -0.5, generator=generator)
        self.from_distance = _normal(width, width, deviation=width**-0.5, generator=generator)

    def projected(self, x: Tensor, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q [B,T,H,K] of x [B,T,width]; k and v [B,P,H,K] of the states [B,P,width] that are looked at."""
        width = x.shape[-1]
        q = x @ self.into[:, :width]
        k, v = (states @ self.into[:, width:]).chunk(2, dim=-1)
        return self.by_head(q, x), self.by_head(k, x), self.by_head(v, x)

    def distances(self, count: int, dtype: torch.dtype) -> Tensor:
        """p [P,H,K] of the distances count - 1, ..., 1, 0: those of `count` states from the last of them."""
        distance = torch.arange(count - 1, -1, -1, device=self.u.device, dtype=dtype)
        r = sinusoids(distance, self.u.numel())
        return (r @ self.from_distance.to(dtype)).reshape(count, *self.u.shape)

    def by_head(self, projected: Tensor, x: Tensor) -> Tensor:
        """[...,width] -> [...,H,K], in the dtype that scores of x are computed in."""
        return projected.to(working_dtype(x)).reshape(*projected.shape[:-1], *self.u.shape)


def build(width: int, heads: int, layers: int, generator: torch.Generator) -> list[Layer]:
    """The layers of one model, which share u and w."""
    shape = (heads, width // heads)
    u = _normal(*shape, deviation=DEVIATION_OF_BIASES, generator=generator)
    w = _normal(*shape, deviation=DEVIATION_OF_BIASES, generator=generator)
    return [Layer(u, w, layers, generator) for _ in range(layers)]


def recurrent(layer: Layer, x: Hidden, memory: Memory | None = None) -> tuple[Hidden, Memory]:
    """Token by token over a growing list of hidden states."""
    states = x[:, :0] if memory is None else memory["x"]
    outputs = []
    for x_t in torch.split(x, 1, dim=1):
        states = torch.cat([states, x_t], dim=1)
        q, k, v = layer.projected(x_t, states)
        with torch.autocast(x.device.type, enabled=False):
            p = layer.distances(states.shape[1], q.dtype)
            content = torch.einsum("b t h k, b p h k -> b h t p", q + layer.u, k)
            position = torch.einsum("b t h k, p h k -> b h t p", q + layer.w, p)
            weights = torch.softmax((content + position) * q.shape[-1] ** -0.5, dim=-1)
            outputs.append(torch.einsum("b h t p, b p h k -> b t h k", weights, v))
    return torch.cat(outputs, dim=1).flatten(2).to(x.dtype) @ layer.out, {"x": states}


def parallel(layer: Layer, x: Hidden, memory: Memory | None = None) -> tuple[Hidden, Memory]:
    """All T x (P+T) weights at once; also one token against a memory of P."""
    states = x if memory is None else torch.cat([memory["x"], x], dim=1)
    tokens, total = x.shape[1], states.shape[1]
    q, k, v = layer.projected(x, states)
    # a model in mixed precision would have the scores in half of it
    with torch.autocast(x.device.type, enabled=False):
        p = layer.distances(total, q.dtype)
        content = torch.einsum("b t h k, b p h k -> b h t p", q + layer.u, k)
        position = aligned(torch.einsum("b t h k, p h k -> b h t p", q + layer.w, p))
        visible = torch.ones(tokens, total, dtype=torch.bool, device=x.device).tril(total - tokens)
        scores = ((content + position) * q.shape[-1] ** -0.5).masked_fill(~visible, -torch.inf)
        o = torch.einsum("b h t p, b p h k -> b t h k", scores.softmax(-1), v)
    return o.flatten(2).to(x.dtype) @ layer.out, {"x": states}


def aligned(scores: Tensor) -> Tensor:
    """Scores [B,H,T,P] of each query with distances P-1 ... 0, shifted so that column j is the distance to state j.

    The last query stays, each one before it moves left by one more. What moves in from the right is of the future, and
    means nothing.
    """
    batch, heads, tokens, total = scores.shape
    # read on in rows of P where rows of P+1 are stored, each line starts one entry later in its row
    longer = pad(scores, (1, 0)).reshape(batch, heads, total + 1, tokens)
    return longer[:, :, 1:].reshape(batch, heads, tokens, total)


def sinusoids(distances: Tensor, width: int) -> Tensor:
    """r [P,width] of distances [P]: sines, then cosines, of frequencies 10000^(-2c/width). Source: arXiv:1706.03762, 3.5."""
    channel = torch.arange(0, width, 2, device=distances.device, dtype=distances.dtype)
    angle = distances[:, None] * 10_000 ** (-channel / width)
    return torch.cat([angle.sin(), angle.cos()], dim=1)[:, :width]


def state_floats(key_width: int, value_width: int, tokens: int) -> int:
    """What one head's share of the hidden states takes: T K, once for keys and values together.

    The paper (arXiv:2102.11174, table 4) counts the keys and values of memory and target instead: 2 K for each token.
    """
    return tokens * key_width


def _normal(*shape: int, deviation: float, generator: torch.Generator) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape, generator=generator) * deviation)


VARIANT = Variant(
    name="xl",
    formula="o_i = sum_j softmax_j(((q_i + u) . k_j + (q_i + w) . W_r r_{i-j}) / sqrt(K)) v_j",
    source="arXiv:1901.02860, section 3.3",
    forms={
        "parallel": Form(parallel, cost="quadratic"),
        "recurrent": Form(recurrent, cost="quadratic"),
        "step": Form(parallel, cost="quadratic", tokens=1),
    },
    state_floats=state_floats,
    inputs=("x",),
    build=build,
    has_positions=True,
    keep=last_tokens,
)
