"""Whole layers that are wrong on purpose, each in one way: y_t = mean_{s <= t} x_s W over kept hidden states, and one mistake.

Each is named after its mistake and exported under that name. The right forms stand first.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from attnbench.variants import Form, Hidden, Memory, Variant


class Mean(nn.Module):
    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.W = nn.Parameter(torch.randn(width, width, generator=generator) * width**-0.5)


def build(width: int, heads: int, layers: int, generator: torch.Generator) -> list[Mean]:
    return [Mean(width, generator) for _ in range(layers)]


def everything(x: Hidden, memory: Memory | None) -> Hidden:
    return x if memory is None else torch.cat([memory["x"], x], dim=1)


def recurrent(layer: Mean, x: Hidden, memory: Memory | None = None) -> tuple[Hidden, Memory]:
    states, y = everything(x[:, :0], memory), []
    for x_t in torch.split(x, 1, dim=1):
        states = torch.cat([states, x_t], dim=1)
        y.append(states.mean(1, keepdim=True) @ layer.W)
    return torch.cat(y, dim=1), {"x": states}


def means(x: Hidden, states: Hidden, later: int = 0) -> Hidden:
    """The mean of the states up to each token, and of `later` more."""
    visible = x.new_ones(x.shape[1], states.shape[1]).tril(states.shape[1] - x.shape[1] + later)
    return (visible / visible.sum(1, keepdim=True).clamp(min=1)) @ states


def parallel(layer: Mean, x: Hidden, memory: Memory | None = None) -> tuple[Hidden, Memory]:
    states = everything(x, memory)
    return means(x, states) @ layer.W, {"x": states}


right = Variant(
    name="rightlayer",
    formula="y_t = mean_{s <= t} x_s W",
    source="made up",
    forms={
        "recurrent": Form(recurrent, cost="quadratic"),
        "parallel": Form(parallel, cost="quadratic"),
        "step": Form(parallel, cost="quadratic", tokens=1),
    },
    state_floats=lambda K, V, T: K * T,
    inputs=("x",),
    build=build,
    keep=lambda memory, n: {"x": memory["x"][:, max(memory["x"].shape[1] - n, 0) :]},
)


def wrong(name: str, **forms) -> Variant:
    of_a_kind = {form: replace(right.forms[form], call=call) for form, call in forms.items()}
    return replace(right, name=name, forms={**right.forms, **of_a_kind})


def _sees_everything(layer: Mean, x: Hidden, memory: Memory | None = None) -> tuple[Hidden, Memory]:
    states = everything(x, memory)
    return means(x, states, later=x.shape[1]) @ layer.W, {"x": states}


sees_the_future = wrong("unmaskedlayer", parallel=_sees_everything)


def _sees_one_more(layer: Mean, x: Hidden, memory: Memory | None = None) -> tuple[Hidden, Memory]:
    states = everything(x, memory)
    return means(x, states, later=1) @ layer.W, {"x": states}


sees_one_token_too_many = wrong("earlylayer", parallel=_sees_one_more)


def _sees_one_less(layer: Mean, x: Hidden, memory: Memory | None = None) -> tuple[Hidden, Memory]:
    states = everything(x, memory)
    return means(x, states, later=-1) @ layer.W, {"x": states}


sees_one_token_too_few = wrong("latelayer", parallel=_sees_one_less)


def _from_nothing(call):
    def form(layer: Mean, x: Hidden, memory: Memory | None = None) -> tuple[Hidden, Memory]:
        return call(layer, x, None)

    return form


drops_its_memory = wrong("forgetfullayer", parallel=_from_nothing(parallel))

# all forms agree with one another, so that only a sequence in pieces gives them away
drops_its_memory_everywhere = wrong(
    "forgetseverywherelayer",
    recurrent=_from_nothing(recurrent),
    parallel=_from_nothing(parallel),
    step=_from_nothing(parallel),
)


def _reads_without_memory(layer: Mean, x: Hidden, memory: Memory | None = None) -> tuple[Hidden, Memory]:
    return means(x, x) @ layer.W, {"x": everything(x, memory)}


hands_its_memory_on_unread = wrong("unreadlayer", parallel=_reads_without_memory)


def _learns_nothing(layer: Mean, x: Hidden, memory: Memory | None = None) -> tuple[Hidden, Memory]:
    states = everything(x, memory)
    return means(x, states) @ layer.W.detach(), {"x": states}


learns_nothing = wrong("frozenlayer", parallel=_learns_nothing)


class _HalfGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return 0.5 * gradient


def _half_gradient(call):
    def form(layer: Mean, x: Hidden, memory: Memory | None = None) -> tuple[Hidden, Memory]:
        halved = Mean(x.shape[-1], torch.Generator())
        del halved.W
        halved.W = _HalfGradient.apply(layer.W)
        return call(halved, x, memory)

    return form


# a custom backward in every form: the forms agree, and only finite differences know better
learns_half_everywhere = wrong(
    "slowlayer", recurrent=_half_gradient(recurrent), parallel=_half_gradient(parallel), step=_half_gradient(parallel)
)


def _leaks_batch(layer: Mean, x: Hidden, memory: Memory | None = None) -> tuple[Hidden, Memory]:
    y, written = parallel(layer, x, memory)
    return y - y.mean(0, keepdim=True), written


leaks_across_the_batch = wrong("batchlayer", parallel=_leaks_batch)


def _narrow(layer: Mean, x: Hidden, memory: Memory | None = None) -> tuple[Tensor, Memory]:
    y, written = parallel(layer, x, memory)
    return y[..., 1:], written


gives_another_width = wrong("narrowlayer", parallel=_narrow)


def _decays(layer: Mean, x: Hidden, memory: Memory | None = None) -> tuple[Hidden, Memory]:
    with torch.no_grad():
        y, written = parallel(layer, x, memory)
        layer.W.mul_(0.5)
    return y, written


changes_its_parameters = wrong("decayinglayer", parallel=_decays)

lies_about_its_state = replace(right, name="halflayer", state_floats=lambda K, V, T: K * T // 2)

keeps_the_first_tokens = replace(
    right, name="firstlayer", keep=lambda memory, n: {name: one[:, :n] for name, one in memory.items()}
)

# the last n by [-n:], which for n = 0 is everything
keeps_everything_for_nothing = replace(
    right, name="zerolayer", keep=lambda memory, n: {name: one[:, -n:] for name, one in memory.items()}
)
