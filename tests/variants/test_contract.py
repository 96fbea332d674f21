from dataclasses import FrozenInstanceError, replace

import jaxtyping
import pytest
import torch

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


@pytest.mark.parametrize("name", listed())
def test_every_form_of_a_listed_variant_takes_its_inputs_by_name(name):
    variant = find(name)
    drawn = variant.draws.sample(seeds.generator("draw"), 2, 4) if variant.draws else None
    assert set(variant.inputs) <= set(INPUTS)
    for form in variant.forms:
        values, _ = variant.apply(form, **tokens(1), draws=drawn)
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
