from dataclasses import FrozenInstanceError, replace

import jaxtyping
import pytest
import torch
from torch import nn

from attnbench.harness import seeds
from attnbench.variants import Draws, Form, Unsupported, Variant, find, listed, working_dtype
from attnbench.variants.contract import INPUTS
from attnbench.variants.errors import BadVariant


def recorded(calls: list[dict[str, object]]):
    """A form that keeps what it was handed."""

    def form(**handed):
        calls.append(handed)
        return handed["v"], {"S": torch.zeros(1)}

    return form


def described(**changes) -> Variant:
    settings = {
        "name": "described",
        "formula": "o = v",
        "source": "made up",
        "forms": {"recurrent": Form(recorded([]))},
        "state_floats": lambda K, V, T: 1,
        **changes,
    }
    return Variant(**settings)


def tokens(length: int = 3, dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    wide = torch.ones(2, length, 2, 4, dtype=dtype)
    return {"q": wide, "k": wide, "v": wide, "beta": wide[..., 0]}


@pytest.mark.parametrize("inputs", [("q", "k", "v"), ("q", "k", "v", "beta"), ("v",)])
def test_a_variant_is_handed_only_the_inputs_that_it_names(inputs):
    calls: list[dict[str, object]] = []
    variant = described(inputs=inputs, forms={"recurrent": Form(recorded(calls))})
    variant.apply("recurrent", **tokens())
    assert set(calls[0]) == {*inputs, "memory"}


def test_memory_and_draws_are_handed_on():
    calls: list[dict[str, object]] = []
    memory, drawn = {"S": torch.ones(1)}, torch.ones(2)
    variant = described(forms={"recurrent": Form(recorded(calls))}, draws=Draws(lambda generator, heads, K: drawn))
    variant.apply("recurrent", **tokens(), memory=memory, draws=drawn)
    assert calls[0]["memory"] is memory
    assert calls[0]["draws"] is drawn


def test_a_variant_without_draws_is_handed_none():
    calls: list[dict[str, object]] = []
    described(forms={"recurrent": Form(recorded(calls))}).apply("recurrent", **tokens(), draws=torch.ones(2))
    assert "draws" not in calls[0]


@pytest.mark.parametrize(
    ("form", "length", "dtype", "says"),
    [
        ("triton", 3, torch.float64, "described has no form 'triton'; it has recurrent, kernel, single, step."),
        ("kernel", 3, torch.float64, "described/kernel needs cuda; this device is cpu."),
        ("single", 3, torch.float64, "described/single takes float32, bfloat16; these inputs are float64."),
        (
            "recurrent",
            3,
            torch.float16,
            "described/recurrent takes float32, float64, bfloat16; these inputs are float16.",
        ),
        ("step", 3, torch.float64, "described/step takes 1 token at a time; these inputs have 3."),
    ],
)
def test_a_form_that_cannot_run_here_says_what_it_needs(form, length, dtype, says):
    call = recorded([])
    variant = described(
        forms={
            "recurrent": Form(call),
            "kernel": Form(call, devices=("cuda",)),
            "single": Form(call, dtypes=("float32", "bfloat16")),
            "step": Form(call, tokens=1),
        }
    )
    with pytest.raises(Unsupported) as refused:
        variant.apply(form, **tokens(length, dtype))
    assert str(refused.value) == says


def layered(**changes) -> Variant:
    """A description of a whole layer."""
    return described(**{"inputs": ("x",), "build": lambda width, heads, layers, generator: [nn.Identity()], **changes})


def test_a_form_of_a_whole_layer_is_handed_the_layer_x_and_the_memory():
    calls: list[tuple[object, ...]] = []

    def form(*handed):
        calls.append(handed)
        return handed[1], {"x": handed[1]}

    layer, x, memory = nn.Identity(), torch.ones(2, 3, 8), {"x": torch.ones(2, 5, 8)}
    layered(forms={"recurrent": Form(form)}).apply_layer("recurrent", layer, x, memory)
    assert [list(map(id, handed)) for handed in calls] == [[id(layer), id(x), id(memory)]]


@pytest.mark.parametrize(
    ("form", "length", "dtype", "says"),
    [
        ("triton", 3, torch.float64, "described has no form 'triton'; it has recurrent, kernel, single, step."),
        ("kernel", 3, torch.float64, "described/kernel needs cuda; this device is cpu."),
        ("single", 3, torch.float64, "described/single takes float32; these inputs are float64."),
        ("step", 3, torch.float64, "described/step takes 1 token at a time; these inputs have 3."),
    ],
)
def test_a_form_of_a_whole_layer_that_cannot_run_here_says_what_it_needs(form, length, dtype, says):
    call = recorded([])
    variant = layered(
        forms={
            "recurrent": Form(call),
            "kernel": Form(call, devices=("cuda",)),
            "single": Form(call, dtypes=("float32",)),
            "step": Form(call, tokens=1),
        }
    )
    with pytest.raises(Unsupported) as refused:
        variant.apply_layer(form, nn.Identity(), torch.ones(2, length, 8, dtype=dtype))
    assert str(refused.value) == says


def test_a_whole_layer_takes_no_queries_and_no_other_variant_takes_a_layer():
    with pytest.raises(Unsupported) as refused:
        layered().apply("recurrent", **tokens())
    assert str(refused.value) == "described is a whole layer and takes no q, k and v."
    with pytest.raises(Unsupported) as refused:
        described().apply_layer("recurrent", nn.Identity(), torch.ones(2, 3, 8))
    assert str(refused.value) == "described is no layer of its own and takes q, k, v."
    assert layered().is_layer
    assert not described().is_layer


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"inputs": ("x",)}, "variant 'described' takes x, the input of a whole layer, and needs a `build`."),
        ({"inputs": ("q", "x")}, "variant 'described' takes x, the input of a whole layer, and needs a `build`."),
        (
            {"build": lambda *sizes: [], "inputs": ("q", "k", "v")},
            "variant 'described' builds a whole layer, whose one input is x; got q, k, v.",
        ),
        (
            {"build": lambda *sizes: [], "inputs": ("x", "beta")},
            "variant 'described' builds a whole layer, whose one input is x; got x, beta.",
        ),
        (
            {
                "build": lambda *sizes: [],
                "inputs": ("x",),
                "readout": lambda q, k: q,
                "draws": Draws(lambda generator, heads, K: torch.ones(heads)),
            },
            "variant 'described' is a whole layer and has no draws, readout.",
        ),
    ],
)
def test_a_description_that_is_half_a_layer_is_refused(changes, says):
    with pytest.raises(BadVariant) as refused:
        described(**changes)
    assert str(refused.value) == says


@pytest.mark.parametrize("rule", ["softmax", "xl"])
def test_a_memory_that_grows_can_be_cut_to_its_last_tokens(rule):
    cut = find(rule).keep
    assert cut is not None
    memory = {"k": torch.arange(10.0).reshape(2, 5, 1)}  # tokens 0 to 4, then 5 to 9
    assert cut(memory, 2)["k"].flatten().tolist() == [3, 4, 8, 9]
    assert cut(memory, 0)["k"].shape == (2, 0, 1)
    assert torch.equal(cut(memory, 9)["k"], memory["k"])


def test_a_memory_of_fixed_size_is_not_cut():
    assert find("delta").keep is None
    assert find("linear").keep is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"forms": {"chunkwise": Form(recorded([]))}},
            "variant 'described' needs a form 'recurrent', the oracle for all others; got ['chunkwise'].",
        ),
        ({"forms": {}}, "variant 'described' needs a form 'recurrent', the oracle for all others; got []."),
        (
            {"inputs": ("q", "k", "v", "gamma", "alpha")},
            "variant 'described' names inputs ['alpha', 'gamma']; the inputs are q, k, v, beta.",
        ),
    ],
)
def test_a_description_that_lacks_something_is_refused(changes, says):
    with pytest.raises(BadVariant) as refused:
        described(**changes)
    assert str(refused.value) == says


def test_what_is_no_form_or_has_no_known_cost_is_refused():
    cubic = Form(recorded([]))
    object.__setattr__(cubic, "cost", "cubic")
    with pytest.raises(BadVariant, match=r"must be a Form with cost 'linear' or 'quadratic', got Form\(.*cost='cubic'"):
        described(forms={"recurrent": cubic})
    variant = described()
    # past the annotations, which the tests enforce and an installed copy does not
    object.__setattr__(variant, "forms", {**variant.forms, "step": 3})
    with pytest.raises(BadVariant, match=r"^form 'step' of variant 'described' must be a Form with cost .*, got 3\.$"):
        variant.__post_init__()


def test_a_description_does_not_change():
    with pytest.raises(FrozenInstanceError):
        described().name = "another"
    assert replace(described(), name="another").name == "another"


@pytest.mark.parametrize("name", [name for name in listed() if not find(name).is_layer])
def test_every_form_of_a_listed_variant_takes_its_inputs_by_name(name, monkeypatch):
    # kernels of Triton have tests of their own
    monkeypatch.delenv("TRITON_INTERPRET")
    variant = find(name)
    drawn = variant.draws.sample(seeds.generator("draw"), 2, 4) if variant.draws else None
    assert set(variant.inputs) <= set(INPUTS)
    for form, declared in variant.forms.items():
        if "cpu" not in declared.devices:
            continue
        dtype = getattr(torch, "float64" if "float64" in declared.dtypes_on("cpu") else "float32")
        given = {name: one.to(dtype) for name, one in tokens(1).items()}
        values, _ = variant.apply(form, **given, draws=drawn)
        assert values.shape == (2, 1, 2, 4)


@pytest.mark.parametrize(
    ("changed", "shape"), [("k", (2, 3, 2, 5)), ("v", (2, 4, 2, 4)), ("beta", (2, 3, 1)), ("q", (1, 3, 2, 4))]
)
def test_the_tests_enforce_that_a_letter_of_a_shape_is_one_size(changed, shape):
    with pytest.raises(jaxtyping.TypeCheckError):
        find("delta").apply("recurrent", **{**tokens(), changed: torch.ones(shape, dtype=torch.float64)})


def test_state_is_kept_in_float32_unless_the_inputs_are_float64():
    assert working_dtype(torch.ones(1, dtype=torch.float64)) == torch.float64
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert working_dtype(torch.ones(1, dtype=dtype)) == torch.float32


def test_a_form_may_take_other_dtypes_on_one_kind_of_device():
    form = Form(lambda q, k, v, memory=None: (v, {}), dtypes=("float64",), dtypes_for={"cuda": ("bfloat16",)})
    assert (form.dtypes_on("cpu"), form.dtypes_on("cuda")) == (("float64",), ("bfloat16",))
