"""The Triton kernels, run by Triton's interpreter, against the recurrent form in float64."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from attnbench.harness import seeds
from attnbench.variants import Unsupported, find

pytest.importorskip("triton", reason="Triton is not installed")

from attnbench.variants.kernels.rules import Kernel, delta_rule, sum_rule
from attnbench.variants.kernels.table import blocks_for

# of the largest element; the interpreter's own products are exact to float32, factors of half precision are not
CLOSE = {torch.float32: 5e-6, torch.float16: 3e-3}


@dataclass(frozen=True)
class Case:
    name: str
    feature_map: str
    norm: str = "none"
    features: int = 16
    tokens: int = 37
    key_width: int = 16
    value_width: int = 16
    dtype: torch.dtype = torch.float32
    has_memory: bool = True

    def __str__(self) -> str:
        memory = "" if self.has_memory else " from nothing"
        sizes = f"T={self.tokens} K={self.key_width} V={self.value_width} D={self.features}"
        return f"{self.name} {sizes} {str(self.dtype).removeprefix('torch.')}{memory}"


CASES = (
    Case("linear", "elu1"),
    Case("linear", "elu1", tokens=1, has_memory=False),
    Case("linear", "elu1", tokens=64, key_width=24, features=24, value_width=40),
    Case("linear+noattnnorm", "elu1", has_memory=False),
    Case("fwp1991", "identity"),
    Case("dpfp-nu1", "dpfp", features=32),
    Case("dpfp-nu3", "dpfp", features=96, tokens=33),
    Case("performer-m16", "favor", features=32),
    Case("linear", "elu1", dtype=torch.float16, tokens=70),
    Case("delta", "elu1", "sum", tokens=70),
    Case("delta", "elu1", "sum", tokens=1),
    Case("delta", "elu1", "sum", key_width=48, features=48, value_width=60, tokens=3, has_memory=False),
    Case("delta+l2norm", "elu1", "l2", key_width=80, features=80, value_width=20, tokens=17),
    Case("linear", "elu1", key_width=72, features=72, value_width=80, tokens=18, dtype=torch.float16),
    Case("delta+l2norm", "elu1", "l2"),
    Case("delta+nosumnorm", "elu1", tokens=5),
    Case("dpfp-nu2+delta", "dpfp", "sum", features=64),
    Case("dpfp-nu3+delta", "dpfp", "sum", features=96, tokens=33),
    Case("dpfp-nu1+delta+l2norm", "dpfp", "l2", features=32),
    Case("performer-m40+delta", "favor", "sum", features=80, key_width=20, value_width=24),
    Case("performer-m16+delta+l2norm", "favor", "l2", features=32),
    Case("delta", "elu1", "sum", dtype=torch.float16, tokens=130),
)


def leaves(case: Case) -> dict[str, Tensor]:
    """Inputs and memory in float64. Queries and keys are parts of a larger tensor, as a model's projection gives them."""
    batch, heads = 1, 2

    def normal(name: str, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=seeds.generator("kernels", name), dtype=torch.float64)

    q, k = normal("qk", batch, case.tokens, heads, 2 * case.key_width).mul(0.7).to(case.dtype).split(case.key_width, -1)
    named = {"q": q, "k": k, "v": normal("v", batch, case.tokens, heads, case.value_width).to(case.dtype)}
    variant = find(case.name)
    if "beta" in variant.inputs:
        named["beta"] = torch.sigmoid(normal("beta", batch, case.tokens, heads)).to(case.dtype)
    if case.has_memory:
        named["S"] = normal("S", batch, heads, case.value_width, case.features)
        if variant.denominators is not None:
            named["z"] = normal("z", batch, heads, case.features).exp()
    return named


def outcome(case: Case, dtype: torch.dtype | None) -> dict[str, Tensor]:
    """Values, memory and all gradients, float64: of the recurrent form in `dtype`, of the kernels where it is None."""
    variant = find(case.name)
    inputs = {}
    for name, one in leaves(case).items():
        # detached views keep their strides
        wanted = (torch.float32 if name in "Sz" else one.dtype) if dtype is None else dtype
        inputs[name] = (one if one.dtype == wanted else one.to(wanted)).detach().requires_grad_()
    draws = None if variant.draws is None else variant.draws.sample(seeds.generator("draws"), 2, case.key_width)
    divides = variant.denominators is not None
    if dtype is not None:
        memory = {name: inputs[name] for name in ("S", "z") if name in inputs} or None
        q, k, v = (inputs[name] for name in "qkv")
        values, written = variant.apply("recurrent", q, k, v, inputs.get("beta"), memory, draws)
        results = {"values": values, **written}
    else:
        blocks = blocks_for(case.feature_map, case.key_width, case.features, case.value_width, case.dtype)
        kernel = Kernel(case.feature_map, case.norm, divides, case.features, blocks)
        q, k, v, S = (inputs.get(name) for name in ("q", "k", "v", "S"))
        assert q is not None
        assert k is not None
        assert v is not None
        if "beta" in inputs:
            values, S = delta_rule(q, k, v, inputs["beta"], S, draws, kernel)
            results = {"values": values, "S": S}
        else:
            values, S, z = sum_rule(q, k, v, S, inputs.get("z"), draws, kernel)
            results = {"values": values, "S": S} | ({"z": z} if divides else {})
    directions = {
        name: torch.randn(one.shape, generator=seeds.generator("direction", name), dtype=torch.float64)
        for name, one in results.items()
    }
    total = sum((one.double() * directions[name]).sum() for name, one in results.items())
    gradients = torch.autograd.grad(total, list(inputs.values()))  # type: ignore[arg-type]
    found = {**results, **{f"gradient of {name}": one for name, one in zip(inputs, gradients, strict=True)}}
    return {name: one.detach().double() for name, one in found.items()}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernels_compute_values_memory_and_gradients_of_the_recurrent_form(case: Case) -> None:
    expected, found = outcome(case, torch.float64), outcome(case, None)
    assert found.keys() == expected.keys()
    for name, one in expected.items():
        assert found[name].shape == one.shape, name
        # a gradient can be nothing but what the epsilon of a denominator leaves of it
        largest = max(1.0, float(one.abs().max()))
        assert float((found[name] - one).abs().max()) < CLOSE[case.dtype] * largest, name


def test_kernels_give_the_same_bits_twice() -> None:
    case = Case("dpfp-nu2+delta", "dpfp", "sum", features=64)
    first, second = outcome(case, None), outcome(case, None)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_write_strengths_may_be_one_number_seen_many_times() -> None:
    q, k, v = (torch.randn(1, 5, 2, 16, generator=seeds.generator("strengths", name)) for name in "qkv")
    one = torch.full((1, 1, 1), 0.5).expand(1, 5, 2)
    kernel = Kernel("elu1", "sum", False, 16, blocks_for("elu1", 16, 16, 16, torch.float32))
    for found, expected in zip(
        delta_rule(q, k, v, one, None, None, kernel),
        delta_rule(q, k, v, one.contiguous(), None, None, kernel),
        strict=True,
    ):
        assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("feature_map", "widths", "dtype", "says"),
    [
        ("elu1", (129, 129, 64), "float32", "K up to 128, V up to 64 and D up to 512"),
        ("elu1", (64, 64, 65), "float32", "K up to 128, V up to 64 and D up to 512"),
        ("elu1", (64, 64, 129), "bfloat16", "K up to 128, V up to 128 and D up to 512"),
        ("dpfp", (64, 640, 64), "float32", "K up to 64, V up to 64 and D up to 512"),
        ("dpfp", (65, 130, 64), "bfloat16", "K up to 64, V up to 64 and D up to 512"),
        ("favor", (64, 514, 64), "bfloat16", "K up to 64, V up to 64 and D up to 512"),
    ],
)
def test_a_shape_outside_the_table_is_refused_with_its_limits(
    feature_map: str, widths: tuple[int, int, int], dtype: str, says: str
) -> None:
    told = rf"with {feature_map} features in {dtype}, {says} \(the table in variants/kernels/table\.py"
    with pytest.raises(Unsupported, match=told):
        blocks_for(feature_map, *widths, getattr(torch, dtype))
