"""Variants that are wrong on purpose, each in one way: S_t = S_{t-1} + v_t k_t^T, o_t = S_t q_t, and one mistake.

Each is named after its mistake and exported under that name. The right forms stand first.
"""

from dataclasses import replace

import torch
from torch import Tensor

from attnbench.variants import Draws, Form, Keys, Memory, Output, Queries, Unsupported, Values, Variant, working_dtype


def start(k: Keys, v: Values, memory: Memory | None) -> Tensor:
    if memory is not None:
        return memory["S"]
    batch, _, heads, width = k.shape
    return k.new_zeros(batch, heads, v.shape[-1], width, dtype=working_dtype(v))


def recurrent(q: Queries, k: Keys, v: Values, memory: Memory | None = None) -> Output:
    S, o = start(k, v, memory), []
    for q_t, k_t, v_t in zip(*(torch.unbind(x.to(S.dtype), 1) for x in (q, k, v)), strict=True):
        S = S + v_t[..., :, None] * k_t[..., None, :]
        o.append((S @ q_t[..., None]).squeeze(-1))
    return torch.stack(o, dim=1).to(v.dtype), {"S": S}


def parallel(q: Queries, k: Keys, v: Values, memory: Memory | None = None) -> Output:
    S = start(k, v, memory)
    queries, keys, values = (x.to(S.dtype).transpose(1, 2) for x in (q, k, v))
    o = (queries @ keys.mT).tril() @ values + queries @ S.mT
    return o.transpose(1, 2).to(v.dtype), {"S": S + values.mT @ keys}


def readout(q: Queries, k: Keys) -> Tensor:
    return torch.einsum("b n h k, b t h k -> b n h t", q, k)


right = Variant(
    name="right",
    formula="S_t = S_{t-1} + v_t k_t^T",
    source="made up",
    forms={
        "recurrent": Form(recurrent),
        "parallel": Form(parallel, cost="quadratic"),
        "step": Form(recurrent, tokens=1),
    },
    state_floats=lambda K, V, T: K * V,
    readout=readout,
)


def wrong(name: str, **forms: Form) -> Variant:
    return replace(right, name=name, forms={**right.forms, **forms})


def _sees_everything(q: Queries, k: Keys, v: Values, memory: Memory | None = None) -> Output:
    S = start(k, v, memory)
    queries, keys, values = (x.to(S.dtype).transpose(1, 2) for x in (q, k, v))
    o = queries @ keys.mT @ values + queries @ S.mT  # no mask
    return o.transpose(1, 2).to(v.dtype), {"S": S + values.mT @ keys}


leaks_the_future = wrong("unmasked", parallel=Form(_sees_everything, cost="quadratic"))


def _scaled_by_longest_key(call):
    def form(q: Queries, k: Keys, v: Values, memory: Memory | None = None) -> Output:
        longest = torch.linalg.vector_norm(k, dim=-1, keepdim=True).amax(1, keepdim=True)  # over all tokens
        return call(q, k / longest, v, memory)

    return form


# all forms agree with one another, so that only their reach gives them away
leaks_the_future_everywhere = replace(
    right,
    name="peeks",
    forms={
        "recurrent": Form(_scaled_by_longest_key(recurrent)),
        "parallel": Form(_scaled_by_longest_key(parallel), cost="quadratic"),
    },
    readout=None,
)


def _forgets_past(q: Queries, k: Keys, v: Values, memory: Memory | None = None) -> Output:
    return parallel(q, k, v, None)


drops_memory = wrong("forgets", parallel=Form(_forgets_past, cost="quadratic"))


def _forgets_past_recurrently(q: Queries, k: Keys, v: Values, memory: Memory | None = None) -> Output:
    return recurrent(q, k, v, None)


drops_memory_everywhere = wrong(
    "forgetseverywhere",
    recurrent=Form(_forgets_past_recurrently),
    parallel=Form(_forgets_past, cost="quadratic"),
    step=Form(_forgets_past_recurrently, tokens=1),
)


lies_about_its_state = replace(right, name="halfstate", state_floats=lambda K, V, T: K * V // 2)


class _HalfGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return 0.5 * gradient


def _half_gradient(call):
    def form(q: Queries, k: Keys, v: Values, memory: Memory | None = None) -> Output:
        return call(q, _HalfGradient.apply(k), v, memory)

    return form


wrong_gradient = wrong("halfgradient", parallel=Form(_half_gradient(parallel), cost="quadratic"))

# a custom backward in every form: the forms agree, and only finite differences know better
wrong_gradient_everywhere = wrong(
    "halfgradienteverywhere",
    recurrent=Form(_half_gradient(recurrent)),
    parallel=Form(_half_gradient(parallel), cost="quadratic"),
    step=Form(_half_gradient(recurrent), tokens=1),
)


def _memory_gradient_cut(q: Queries, k: Keys, v: Values, memory: Memory | None = None) -> Output:
    return parallel(q, k, v, memory and {name: one.detach() for name, one in memory.items()})


cuts_gradient_of_memory = wrong("cutgradient", parallel=Form(_memory_gradient_cut, cost="quadratic"))


def _zero_over_zero(q: Queries, k: Keys, v: Values, memory: Memory | None = None) -> Output:
    values, written = parallel(q, k, v, memory)
    late = torch.arange(v.shape[1], device=v.device)[:, None, None] >= 64
    return torch.where(late, values * 0 / 0, values), written


gives_nan = wrong("nans", parallel=Form(_zero_over_zero, cost="quadratic"))

lies_about_its_cost = wrong("cheap", parallel=Form(parallel, cost="linear"))

claims_more_cost = wrong("dear", recurrent=Form(recurrent, cost="quadratic"))


def _by_index(q: Queries, k: Keys, v: Values, memory: Memory | None = None) -> Output:
    S, o = start(k, v, memory), []
    for t in range(v.shape[1]):
        S = S + v[:, t, :, :, None].to(S.dtype) * k[:, t, :, None, :].to(S.dtype)
        o.append((S @ q[:, t, :, :, None].to(S.dtype)).squeeze(-1))
    return torch.stack(o, dim=1).to(v.dtype), {"S": S}


has_a_quadratic_backward = wrong("byindex", recurrent=Form(_by_index))


def _leaks_batch(q: Queries, k: Keys, v: Values, memory: Memory | None = None) -> Output:
    return recurrent(q, k, v - v.mean(0, keepdim=True), memory)


leaks_across_the_batch = wrong("batchmean", recurrent=Form(_leaks_batch))


def _leaks_heads(q: Queries, k: Keys, v: Values, memory: Memory | None = None) -> Output:
    return recurrent(q, k, v - v.mean(2, keepdim=True), memory)


leaks_across_heads = wrong("headmean", recurrent=Form(_leaks_heads))


def _state_in_half_precision(q: Queries, k: Keys, v: Values, memory: Memory | None = None) -> Output:
    values, written = parallel(q, k, v, memory)
    return values, {name: one.to(v.dtype) for name, one in written.items()}


keeps_its_state_in_bfloat16 = wrong("halfprecision", parallel=Form(_state_in_half_precision, cost="quadratic"))


def _ignores_dtype(q: Queries, k: Keys, v: Values, memory: Memory | None = None) -> Output:
    values, written = parallel(q, k, v, memory)
    return values.float(), written


gives_another_dtype = wrong("alwaysfloat32", parallel=Form(_ignores_dtype, cost="quadratic"))


def _gives_tuple(q: Queries, k: Keys, v: Values, memory: Memory | None = None):
    values, written = parallel(q, k, v, memory)
    return values, tuple(written.values())


gives_no_mapping = wrong("tuplememory", parallel=Form(_gives_tuple, cost="quadratic"))


def _reads_unwritten(q: Queries, k: Keys, v: Values, memory: Memory | None = None) -> Output:
    values, written = recurrent(q, k, v, memory)
    # large enough to come straight from the system, which hands out zeros: right until somebody else used it before
    scratch = torch.empty(1 << 24, device=v.device)
    return values + scratch[0].to(v.dtype), written


reads_uninitialised_memory = wrong("unwritten", recurrent=Form(_reads_unwritten))


def _noisy(q: Queries, k: Keys, v: Values, memory: Memory | None = None) -> Output:
    values, written = parallel(q, k, v, memory)
    return (values * (1 + 1e-13 * torch.rand(values.shape, dtype=torch.float64))).to(v.dtype), written


is_not_deterministic = wrong("noisy", parallel=Form(_noisy, cost="quadratic"))


def _adds_in_place(q: Queries, k: Keys, v: Values, memory: Memory | None = None) -> Output:
    values, written = parallel(q, k, v, memory)
    if memory is not None:
        with torch.no_grad():
            memory["S"].copy_(written["S"])
    return values, written


writes_into_its_memory = wrong("inplace", parallel=Form(_adds_in_place, cost="quadratic"))


def _skips_decay(q: Queries, k: Keys, v: Values, memory: Memory | None = None) -> Output:
    return recurrent(q, k, v, memory and {"S": 0.9 * memory["S"]})


steps_differently = wrong("otherstep", step=Form(_skips_decay, tokens=1))


def _raises(q: Queries, k: Keys, v: Values, memory: Memory | None = None) -> Output:
    raise ValueError("the kernel\n  fell over")


raises = wrong("raises", parallel=Form(_raises, cost="quadratic"))


def _refuses(q: Queries, k: Keys, v: Values, memory: Memory | None = None) -> Output:
    raise Unsupported("refuses/parallel needs a better machine.")


is_not_for_here = wrong("refuses", parallel=Form(_refuses, cost="quadratic"))

reads_out_differently = replace(right, name="otherreadout", readout=lambda q, k: 1.01 * readout(q, k))

draws_by_itself = replace(
    right,
    name="selfdrawn",
    forms={"recurrent": Form(lambda q, k, v, memory=None, draws=None: recurrent(q, k, v, memory))},
    readout=None,
    draws=Draws(lambda generator, heads, key_width: torch.rand(heads, key_width)),
)

draws_without_heads = replace(
    draws_by_itself,
    name="headless",
    draws=Draws(lambda generator, heads, key_width: torch.rand(key_width, generator=generator)),
)

only_single_precision = replace(
    right, name="single", forms={name: replace(form, dtypes=("float32",)) for name, form in right.forms.items()}
)

declares_a_deviation = replace(
    leaks_the_future, name="declared", deviations={"causality": "reads both ways on purpose"}
)
