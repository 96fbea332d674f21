"""The sum rule and the delta rule on Triton kernels, forward and backward, with a feature map inside.

    read, S, z = sum_rule(q, k, v, S, z, R, kernel)        read, S = delta_rule(q, k, v, beta, S, R, kernel)

q, k [B,T,H,K], v [B,T,H,V], beta [B,T,H], S [B,H,V,D], z [B,H,D]; R [H,m,K] are the directions of `favor`, else None.
Kept for the backward are the inputs, what was read and a number a token; states at the borders of chunks are made anew.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnbench.variants.contract import EPSILON, has_contents
from attnbench.variants.kernels import chunks, corrections, gradients
from attnbench.variants.kernels.table import Blocks

# each is told of a kernel that would be started, its arguments, and what is fixed when it is compiled
listeners: list[Callable[[Any, tuple[Any, ...], dict[str, Any]], None]] = []

SMALLEST = math.log(torch.finfo(torch.float32).tiny) + 1


@dataclass(frozen=True)
class Kernel:
    """What is fixed when a kernel is compiled: the map, the normalisation of features, the widths, the blocks."""

    feature_map: str
    norm: str
    attention: bool
    width: int
    blocks: Blocks


class _Call:
    """One call of a rule: its tensors' addresses as kernels take them, and the grids."""

    def __init__(self, kernel: Kernel, q: Tensor, k: Tensor, v: Tensor, R: Tensor | None) -> None:
        self.kernel = kernel
        self.batch, self.tokens, self.heads, self.key_width = k.shape
        self.value_width = v.shape[-1]
        self.pairs = self.batch * self.heads
        blocks = kernel.blocks
        self.count = -(-self.tokens // blocks.tokens)
        self.value_blocks = -(-self.value_width // blocks.values)
        self.state_value_blocks = -(-self.value_width // blocks.state_values)
        self.feature_blocks = -(-kernel.width // blocks.features)
        self.R = k.new_zeros(1, dtype=torch.float32) if R is None else R
        self.like = k
        self.nothing = k.new_zeros(1, dtype=torch.float32)
        self.map = {
            "MAP": kernel.feature_map,
            "NORM": kernel.norm,
            "K": self.key_width,
            "D": kernel.width,
            "C": blocks.tokens,
            "BK": blocks.keys,
        }
        self.rest = {"V": self.value_width, "BV": blocks.values, "OPERAND": blocks.operand(v.dtype)}
        self.warps = {"num_warps": blocks.warps, "num_stages": blocks.stages}
        self.q_sizes, self.k_sizes = self.sizes(q), self.sizes(k)

    def sizes(self, x: Tensor) -> Tensor:
        """The inverse sizes of the features of x, [B,H,T]; nothing where features are not normalised."""
        if self.kernel.norm == "none":
            return self.nothing
        sizes = self.numbers()
        launch(
            chunks.inverse_sizes, (self.count, self.pairs),
            *strided(x), self.R, sizes, self.tokens, self.heads, EPSILON, SMALLEST,
            **self.map, BD=self.kernel.blocks.features, **self.warps,
        )  # fmt: skip
        return sizes

    def numbers(self, *more: int) -> Tensor:
        """A float32 tensor [B,H,T,...]."""
        return self.like.new_empty(self.batch, self.heads, self.tokens, *more, dtype=torch.float32)

    def values(self) -> Tensor:
        """A float32 tensor [B,T,H,V]."""
        shape = (self.batch, self.tokens, self.heads, self.value_width)
        return self.like.new_empty(shape, dtype=torch.float32)

    def borders(self, first: Tensor | None, *shape: int, last: bool = False) -> Tensor:
        """States [B,H,N+1,...] at the borders of chunks, of which the first (or the last) is given; None is zeros."""
        states = self.like.new_empty(self.batch, self.heads, self.count + 1, *shape, dtype=torch.float32)
        at = states[:, :, -1 if last else 0]
        if first is None:
            at.zero_()
        else:
            at.copy_(first)
        return states

    def states(
        self, x: Tensor, sizes: Tensor, a: Tensor, S: Tensor, Z: Tensor | None, *,
        scales: Tensor | None = None, weights: Tensor | None = None, reverse: bool = False,
    ) -> None:  # fmt: skip
        """Fill in the states at all borders but the one that is there."""
        launch(
            chunks.states, (self.feature_blocks, self.value_blocks, self.pairs),
            *strided(x), *strided(a), self.or_nothing(weights), self.or_nothing(scales), sizes, self.R,
            S, self.or_nothing(Z), self.tokens, self.heads, SMALLEST,
            HAS_Z=Z is not None, SCALED=scales is not None, REVERSE=reverse,
            **self.map, **self.rest, BD=self.kernel.blocks.features, **self.warps,
        )  # fmt: skip

    def outputs(self, q: Tensor, k: Tensor, a: Tensor, o: Tensor, S: Tensor, Z: Tensor | None, scales: Tensor) -> None:
        """What is read, into `o`."""
        launch(
            chunks.outputs, (self.count, self.value_blocks, self.pairs),
            *strided(q), *strided(k), *strided(a), *strided(o), self.q_sizes, self.k_sizes, scales, self.R,
            S, self.or_nothing(Z), self.tokens, self.heads, EPSILON, SMALLEST,
            ATTENTION=Z is not None, **self.map, **self.rest, BD=self.kernel.blocks.features, **self.warps,
        )  # fmt: skip

    def gradient_of_values(
        self, q: Tensor, k: Tensor, g: Tensor, d: Tensor, S: Tensor | None, scales: Tensor | None
    ) -> None:
        """Of what was written, into `d`; without S only what the tokens of the same chunk contribute."""
        launch(
            chunks.gradient_of_values, (self.count, self.value_blocks, self.pairs),
            *strided(q), *strided(k), *strided(g), *strided(d), self.q_sizes, self.k_sizes, self.or_nothing(scales),
            self.R, self.or_nothing(S), self.tokens, self.heads, SMALLEST,
            SCALED=scales is not None, HAS_STATE=S is not None,
            **self.map, **self.rest, BD=self.kernel.blocks.features, **self.warps,
        )  # fmt: skip

    def gradient_of_inputs(
        self, x: Tensor, y: Tensor, a: Tensor, g: Tensor, d: Tensor, S: Tensor, Z: Tensor | None, before: Tensor, *,
        is_key: bool, e: Tensor | None = None, scales: Tensor | None = None, weights: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Of raw queries or keys, into `d`; `e` is the gradient of the values, given for the delta rule."""
        x_sizes, y_sizes = (self.k_sizes, self.q_sizes) if is_key else (self.q_sizes, self.k_sizes)
        blocks = self.kernel.blocks
        launch(
            gradients.gradient_of_inputs, (self.count, self.pairs),
            *strided(x), *strided(y), *strided(a), *strided(g), *strided(a if e is None else e), *strided(d),
            x_sizes, y_sizes, self.or_nothing(scales), self.or_nothing(weights), self.R,
            S, self.or_nothing(Z), before, self.tokens, self.heads, SMALLEST,
            IS_KEY=is_key, DELTA=e is not None, ATTENTION=Z is not None,
            **self.map, **{**self.rest, "BV": blocks.all_values}, BD=blocks.columns,
            num_warps=blocks.gradient_warps, num_stages=1,
        )  # fmt: skip

    def or_nothing(self, tensor: Tensor | None) -> Tensor:
        """Something to point at."""
        return self.nothing if tensor is None else tensor


def launch(kernel: Any, grid: tuple[int, ...], *given: Any, **fixed: Any) -> None:
    """Start a kernel on the device of its first argument, a tensor.

    On tensors without contents there is nothing to compute, and `listeners` are told.
    """
    if not has_contents(given[0]):
        for told in listeners:
            told(kernel, given, fixed)
        return
    with torch.cuda.device_of(given[0]):  # type: ignore[no-untyped-call]
        kernel[grid](*given, **fixed)


def strided(x: Tensor) -> tuple[Tensor, int, int, int]:
    """A tensor [B,T,H,n] with its strides along B, T and H."""
    return x, x.stride(0), x.stride(1), x.stride(2)


def readable(*tensors: Tensor) -> list[Tensor]:
    """The tensors with their last axis contiguous, which kernels rely on."""
    return [one if one.stride(-1) == 1 else one.contiguous() for one in tensors]


class SumRule(torch.autograd.Function):
    """read, S, z of the sum rule."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, S: Tensor | None, z: Tensor | None, R: Tensor | None, kernel: Kernel
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The three results; z is nothing without attention normalisation."""
        q, k, v = readable(q, k, v)
        call = _Call(kernel, q, k, v, R)
        states, totals = _states_of_sum(call, k, v, S, z)
        read, scales = torch.empty_like(v, memory_format=torch.contiguous_format), call.numbers()
        call.outputs(q, k, v, read, states, totals, scales)
        ctx.save_for_backward(q, k, v, S, z, R, read, scales)
        ctx.kernel = kernel
        last = call.nothing if totals is None else totals[:, :, -1].clone()
        return read, states[:, :, -1].mT.contiguous(), last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_read: Tensor, to_S: Tensor, to_z: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of q, k, v, S and z."""
        q, k, v, S, z, R, read, scales = ctx.saved_tensors
        kernel = ctx.kernel
        (to_read,) = readable(to_read)
        call = _Call(kernel, q, k, v, R)
        states, totals = _states_of_sum(call, k, v, S, z)
        to_states = call.borders(to_S.mT, kernel.width, call.value_width, last=True)
        given: dict[str, Any] = {}
        to_totals = None
        if kernel.attention:
            # of the denominators
            weights = -(to_read.float() * read.float()).sum(-1).transpose(1, 2) * scales
            given = {"scales": scales, "weights": weights.contiguous()}
            to_totals = call.borders(to_z, kernel.width, last=True)
        call.states(q, call.q_sizes, to_read, to_states, to_totals, reverse=True, **given)
        to_q, to_k, to_v = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
        call.gradient_of_values(q, k, to_read, to_v, to_states, given.get("scales"))
        call.gradient_of_inputs(q, k, v, to_read, to_q, states, totals, states, is_key=False, **given)
        call.gradient_of_inputs(k, q, v, to_read, to_k, to_states, to_totals, states, is_key=True, **given)
        to_first = None if S is None else to_states[:, :, 0].mT.contiguous()
        to_first_z = None if z is None or to_totals is None else to_totals[:, :, 0].clone()
        return to_q, to_k, to_v, to_first, to_first_z, None, None


def _states_of_sum(
    call: _Call, k: Tensor, v: Tensor, S: Tensor | None, z: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    states = call.borders(None if S is None else S.mT, call.kernel.width, call.value_width)
    totals = call.borders(z, call.kernel.width) if call.kernel.attention else None
    call.states(k, call.k_sizes, v, states, totals)
    return states, totals


class DeltaRule(torch.autograd.Function):
    """read, S of the delta rule."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, S: Tensor | None, R: Tensor | None, kernel: Kernel
    ) -> tuple[Tensor, Tensor]:
        """The two results."""
        q, k, v = readable(q, k, v)
        call = _Call(kernel, q, k, v, R)
        states, errors, _ = _states_of_delta(call, k, v, beta, S)
        read = torch.empty_like(v, memory_format=torch.contiguous_format)
        call.outputs(q, k, errors.mul_(beta.unsqueeze(-1)), read, states, None, call.nothing)
        ctx.save_for_backward(q, k, v, beta, S, R)
        ctx.kernel = kernel
        return read, states[:, :, -1].mT.contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_read: Tensor, to_S: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of q, k, v, beta and S."""
        q, k, v, beta, S, R = ctx.saved_tensors
        kernel = ctx.kernel
        (to_read,) = readable(to_read)
        call = _Call(kernel, q, k, v, R)
        states, errors, mixing = _states_of_delta(call, k, v, beta, S)
        to_states = call.borders(to_S.mT, kernel.width, call.value_width, last=True)
        pushed = call.values()
        call.gradient_of_values(q, k, to_read, pushed, None, None)
        blocks = kernel.blocks
        launch(
            corrections.gradient_of_corrections, (call.state_value_blocks, call.pairs),
            *strided(q), *strided(k), beta, *beta.stride(), *strided(to_read), *strided(pushed),
            mixing, call.q_sizes, call.k_sizes, call.R, to_states, call.tokens, call.heads, SMALLEST,
            **call.map, **{**call.rest, "BV": blocks.state_values}, BD=blocks.state_features, **call.warps,
        )  # fmt: skip
        strengths = beta.unsqueeze(-1).float()
        to_beta = (errors * pushed).sum(-1).to(beta.dtype)
        written, to_v = errors.mul_(strengths), pushed.mul_(strengths)
        to_q, to_k = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k))
        call.gradient_of_inputs(q, k, written, to_read, to_q, states, None, states, is_key=False)
        call.gradient_of_inputs(k, q, written, to_read, to_k, to_states, None, states, is_key=True, e=to_v)
        to_first = None if S is None else to_states[:, :, 0].mT.contiguous()
        return to_q, to_k, to_v.to(v.dtype), to_beta, to_first, None, None


def _states_of_delta(
    call: _Call, k: Tensor, v: Tensor, beta: Tensor, S: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The states at the borders, the errors [B,T,H,V] that were corrected, and what mixes them in a chunk [B,H,T,C]."""
    blocks = call.kernel.blocks
    mixing, errors = call.numbers(blocks.tokens), call.values()
    launch(
        corrections.mixing, (call.count, call.pairs),
        *strided(k), beta, *beta.stride(), call.k_sizes, call.R, mixing, call.tokens, call.heads, SMALLEST,
        **call.map, BD=blocks.features, OPERAND=call.rest["OPERAND"], **call.warps,
    )  # fmt: skip
    states = call.borders(None if S is None else S.mT, call.kernel.width, call.value_width)
    launch(
        corrections.corrected_states, (call.state_value_blocks, call.pairs),
        *strided(k), *strided(v), beta, *beta.stride(), *strided(errors), mixing, call.k_sizes, call.R,
        states, call.tokens, call.heads, SMALLEST,
        **call.map, **{**call.rest, "BV": blocks.state_values}, BD=blocks.state_features, **call.warps,
    )  # fmt: skip
    return states, errors, mixing


def sum_rule(
    q: Tensor, k: Tensor, v: Tensor, S: Tensor | None, z: Tensor | None, R: Tensor | None, kernel: Kernel
) -> tuple[Tensor, Tensor, Tensor]:
    """Values [B,T,H,V], S [B,H,V,D] and z [B,H,D] (nothing without attention normalisation)."""
    return SumRule.apply(q, k, v, S, z, R, kernel)  # type: ignore[no-untyped-call]


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, S: Tensor | None, R: Tensor | None, kernel: Kernel
) -> tuple[Tensor, Tensor]:
    """Values [B,T,H,V] and S [B,H,V,D]."""
    return DeltaRule.apply(q, k, v, beta, S, R, kernel)  # type: ignore[no-untyped-call]
