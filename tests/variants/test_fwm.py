import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import settings as at_most
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd.gradcheck import gradcheck

from attnbench.harness import seeds
from attnbench.harness.checks import TOLERANCES
from attnbench.variants import find
from attnbench.variants.contract import How
from attnbench.variants.registry import everything

EXACT = {"rtol": TOLERANCES[torch.float64].relative, "atol": TOLERANCES[torch.float64].absolute}
RULES = everything().vocabulary.write_rules
PLAIN = How(options=frozenset({"noreadoutnorm"}))
# factors on values and on the memory handed in: every write leaves the unit ball, or none comes near its surface
ALWAYS, NEVER = 30.0, 1e-3


@dataclass(frozen=True)
class Sizes:
    batch: int = 2
    tokens: int = 5
    heads: int = 2
    key_width: int = 4
    value_width: int = 3


@dataclass(frozen=True)
class Inputs:
    """q, k, v, beta as features, and a memory S."""

    q: Tensor
    k: Tensor
    v: Tensor
    beta: Tensor
    S: Tensor | None = None

    @property
    def leaves(self) -> list[Tensor]:
        return [one for one in (self.q, self.k, self.v, self.beta, self.S) if one is not None]

    def part(self, begin: int, end: int) -> "Inputs":
        return Inputs(*(x[:, begin:end] for x in (self.q, self.k, self.v, self.beta)), self.S)


def inputs(sizes: Sizes, scale: float, *, has_memory: bool, dtype=torch.float64, part: object = "") -> Inputs:
    """Gaussian features that ask for gradients; values and memory are multiplied by `scale`."""

    def gaussian(name: str, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=seeds.generator("fwm", part, name), dtype=torch.float64)

    tokens = (sizes.batch, sizes.tokens, sizes.heads)
    q, k = (gaussian(name, *tokens, sizes.key_width) / math.sqrt(sizes.key_width) for name in "qk")
    v = scale * gaussian("v", *tokens, sizes.value_width)
    beta = torch.sigmoid(gaussian("beta", *tokens))
    S = scale * gaussian("S", sizes.batch, sizes.heads, sizes.value_width, sizes.key_width) if has_memory else None
    return Inputs(*(None if x is None else x.to(dtype).requires_grad_() for x in (q, k, v, beta, S)))


def run(form: str, given: Inputs, how: How = PLAIN) -> tuple[Tensor, Tensor]:
    """What is read, and S."""
    memory = None if given.S is None else {"S": given.S}
    o, written = RULES["fwm"].forms[form].call(given.q, given.k, given.v, given.beta, memory, how)
    return o, written["S"]


def gradients(results: tuple[Tensor, Tensor], leaves: list[Tensor]) -> tuple[Tensor, ...]:
    """Of a weighted sum of all results; the weights depend on nothing but the shape."""
    total = sum((one * torch.linspace(-1, 2, one.numel(), dtype=one.dtype).view(one.shape)).sum() for one in results)
    return torch.autograd.grad(total, leaves)


def assert_same_as_recurrent(given: Inputs, how: How = PLAIN, factor: float = 1) -> None:
    """Results and gradients within `factor` times the tolerance of the dtype, which counts from the largest number."""
    tolerance = TOLERANCES[given.v.dtype]
    outcomes = []
    for form in ("gram", "recurrent"):
        results = run(form, given, how)
        outcomes.append((*(one.detach() for one in results), *gradients(results, given.leaves)))
    for found, expected in zip(*outcomes, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=factor * tolerance.allowed(expected))


def rows(*tokens: tuple[float, ...]) -> Tensor:
    """One sequence, one head: [1,T,1,width]."""
    return torch.tensor(tokens, dtype=torch.float64)[None, :, None, :].requires_grad_()


def betas(*values: float) -> Tensor:
    """One sequence, one head: [1,T,1]."""
    return torch.tensor(values, dtype=torch.float64)[None, :, None].requires_grad_()


# by hand


@pytest.mark.parametrize("form", ["gram", "recurrent"])
def test_two_writes_under_keys_that_overlap_by_hand(form):
    # d_1 = 0.6 / 2 = 0.3, S_1 = (0.3, 0), inside the ball; o_1 = S_1 . (2, 7) = 0.6
    # h_2 = d_1 (k_1 . k_2) = 0.3, d_2 = 2.3 - 0.3 = 2, S'_2 = (2.3, 2)
    # |S'_2|^2 = 0.09 + 2 * 2 * 0.3 + 2^2 * 2 = 9.29 = 2.3^2 + 2^2; o_2 = S_2 . (1, -1) = 0.3 / sqrt(9.29)
    o, S = run(form, Inputs(rows((2, 7), (1, -1)), rows((1, 0), (1, 1)), rows((0.6,), (2.3,)), betas(0.5, 1)))
    norm = math.sqrt(9.29)
    assert o.flatten().tolist() == pytest.approx([0.6, 0.3 / norm])
    assert S.flatten().tolist() == pytest.approx([2.3 / norm, 2 / norm])


@pytest.mark.parametrize("form", ["gram", "recurrent"])
def test_the_gradient_of_two_clipped_writes_by_hand(form):
    # S'_1 = 3 (1, 0), so S_1 = k_1 / |k_1| = (1, 0), whatever v_1; S'_2 = (1, 0.75), of norm 1.25, so S_2 = (0.8, 0.6).
    # dS_2 = 0.8 (dS'_2 - (S_2 . dS'_2) S_2):
    #   v_2, and beta_2 with 0.75 times as much:   dS' = (0, 1)                   dS_2 = 0.8 (-0.48, 0.64) = (-0.384, 0.512)
    #   first of k_2:                              dS' = 0.75 (1, 0) - 1 (0, 1)   dS_2 = 0.8 (0.75, -1) = (0.6, -0.8)
    #   second of k_2:                             dS' = 0.75 (0, 1)              dS_2 = (-0.288, 0.384)
    #   k_1 turns S_1 towards (0, 1), which the second write erases: nothing
    given = Inputs(rows((0, 0), (0, 0)), rows((1, 0), (0, 1)), rows((3,), (0.75,)), betas(1, 1))
    _, S = run(form, given)
    for place, of_v, of_beta, of_k in ((0, -0.384, -0.288, (0.6, -0.288)), (1, 0.512, 0.384, (-0.8, 0.384))):
        wanted = [given.k, given.v, given.beta]
        to_k, to_v, to_beta = torch.autograd.grad(S.flatten()[place], wanted, retain_graph=True)
        assert to_v.flatten().tolist() == pytest.approx([0, of_v], abs=1e-12)
        assert to_beta.flatten().tolist() == pytest.approx([0, of_beta], abs=1e-12)
        assert to_k.flatten().tolist() == pytest.approx([0, 0, *of_k], abs=1e-12)


def test_nothing_written_into_an_empty_memory_has_a_finite_gradient():
    # S = beta v k^T = 0 at v = 0, a norm of 0: dS/dv = beta k, and nothing for beta and k
    given = Inputs(rows((1, 1)), rows((3, 4)), rows((0,)), betas(0.5))
    o, S = run("gram", given)
    assert (float(o.detach()), S.flatten().tolist()) == (0, [0, 0])
    to_k, to_v, to_beta = torch.autograd.grad(S.flatten()[1], [given.k, given.v, given.beta])
    assert (to_k.flatten().tolist(), float(to_v), float(to_beta)) == ([0, 0], 2, 0)


# the ball


@pytest.mark.parametrize("has_memory", [False, True])
def test_a_memory_that_every_write_clips_has_norm_one_after_each(has_memory):
    given = inputs(Sizes(), ALWAYS, has_memory=has_memory)
    for tokens in range(1, 6):
        _, S = run("gram", given.part(0, tokens))
        torch.testing.assert_close(torch.linalg.matrix_norm(S), torch.ones(2, 2, dtype=torch.float64), **EXACT)


@pytest.mark.parametrize("has_memory", [False, True])
def test_a_memory_that_never_reaches_norm_one_is_that_of_the_delta_rule(has_memory):
    given = inputs(Sizes(tokens=20), NEVER, has_memory=has_memory)
    o, S = run("gram", given)
    assert float(torch.linalg.matrix_norm(S.detach()).max()) < 0.1
    memory = None if given.S is None else {"S": given.S}
    expected, written = RULES["delta"].forms["recurrent"].call(given.q, given.k, given.v, given.beta, memory, PLAIN)
    torch.testing.assert_close((o, S), (expected, written["S"]), **EXACT)
    # of results of size 0.001, so the gradients show more
    torch.testing.assert_close(
        gradients((o, S), given.leaves), gradients((expected, written["S"]), given.leaves), rtol=1e-12, atol=1e-14
    )


def test_a_memory_that_comes_from_outside_the_ball_is_brought_back_by_the_first_write():
    # (3, 4), of norm 5, and a write of strength 0: S = (0.6, 0.8), read after the clip
    S = torch.tensor([[[[3.0, 4.0]]]], dtype=torch.float64)
    o, clipped = run("gram", Inputs(rows((1, 0)), rows((1, 1)), rows((7,)), betas(0), S))
    assert clipped.flatten().tolist() == pytest.approx([0.6, 0.8])
    assert float(o.detach()) == pytest.approx(0.6)


def test_hundreds_of_clips_leave_nothing_of_the_first_writes_and_no_nan():
    # each write of norm 10 or so leaves a tenth of what was there: after 50 of them less than float32 can hold
    given = inputs(Sizes(batch=1, tokens=300, heads=1), ALWAYS, has_memory=True, dtype=torch.float32)
    assert_same_as_recurrent(given)
    _, S = run("gram", given)
    to_v = torch.autograd.grad(S.sum(), given.v)[0].abs().amax(dim=(0, 2, 3))
    # what P . S is off by, rounded, stays from token to token
    assert float(to_v[:200].max()) < TOLERANCES[torch.float32].relative * float(to_v.max())


# against finite differences, the recurrent form and itself


@pytest.mark.parametrize("has_memory", [False, True])
@pytest.mark.parametrize("scale", [ALWAYS, 1.0, NEVER])
def test_the_gradient_is_that_of_finite_differences(scale, has_memory):
    given = inputs(Sizes(batch=1, tokens=4, key_width=3, value_width=2), scale, has_memory=has_memory)
    assert gradcheck(lambda *leaves: run("gram", Inputs(*leaves)), given.leaves)


@at_most(max_examples=30)
@given(
    sizes=st.builds(Sizes, *(st.integers(1, most) for most in (2, 9, 2, 5, 4))),
    scale=st.sampled_from([ALWAYS, 3.0, 1.0, 0.3, NEVER]),
    has_memory=st.booleans(),
    is_normalised=st.booleans(),
    part=st.integers(0, 1000),
)
def test_the_gram_form_is_the_recurrent_form(sizes, scale, has_memory, is_normalised, part):
    given = inputs(sizes, scale, has_memory=has_memory, part=part)
    # the LayerNorm of a nearly constant read has gradients of up to 1 / sqrt(1e-5)
    assert_same_as_recurrent(given, How() if is_normalised else PLAIN, factor=10)


@pytest.mark.parametrize("scale", [ALWAYS, 1.0, NEVER])
def test_in_float32_it_stays_near_the_recurrent_form(scale):
    given = inputs(Sizes(tokens=80, key_width=16, value_width=10), scale, has_memory=True, dtype=torch.float32)
    assert_same_as_recurrent(given)


@pytest.mark.parametrize("scale", [ALWAYS, 1.0, NEVER])
@pytest.mark.parametrize("cuts", [(1,), (4, 6), (8,)])
def test_gradients_flow_through_the_memory_that_a_cut_passes_on(cuts, scale):
    given = inputs(Sizes(tokens=9), scale, has_memory=True)
    whole = run("gram", given)
    outputs, S = [], given.S
    for begin, end in zip((0, *cuts), (*cuts, 9), strict=True):
        piece = given.part(begin, end)
        o, S = run("gram", Inputs(piece.q, piece.k, piece.v, piece.beta, S))
        outputs.append(o)
    pieces = (torch.cat(outputs, dim=1), S)
    torch.testing.assert_close(pieces, whole, **EXACT)
    torch.testing.assert_close(gradients(pieces, given.leaves), gradients(whole, given.leaves), **EXACT)


@pytest.mark.parametrize("used", [0, 1])
def test_what_is_read_and_the_memory_have_gradients_each_alone(used):
    given = inputs(Sizes(), 1.0, has_memory=True)
    found, expected = (
        torch.autograd.grad(run(form, given)[used].square().sum(), given.leaves, materialize_grads=True)
        for form in ("gram", "recurrent")
    )
    torch.testing.assert_close(found, expected, **EXACT)


def test_fixed_beta_is_beta_one_in_the_gram_form():
    given = inputs(Sizes(), 1.0, has_memory=False)
    fixed, _ = find("fwm+fixedbeta").apply("gram", given.q, given.k, given.v)
    ones, _ = find("fwm").apply("gram", given.q, given.k, given.v, torch.ones_like(given.beta))
    assert torch.equal(fixed, ones)


# what it costs, and what it cannot


def kept_floats(form: str, sizes: Sizes) -> int:
    """Numbers in the storages that the backward pass needs, each storage once."""
    storages = {}

    def remember(one: Tensor) -> Tensor:
        storages[one.untyped_storage().data_ptr()] = one
        return one

    with torch.autograd.graph.saved_tensors_hooks(remember, lambda one: one):
        results = run(form, inputs(sizes, 1.0, has_memory=False))
    del results
    return sum(one.untyped_storage().nbytes() // 8 for one in storages.values())


def test_what_the_backward_pass_needs_grows_with_the_key_width_by_keys_queries_and_one_memory():
    narrow, wide = (Sizes(batch=1, tokens=20, heads=1, key_width=width, value_width=5) for width in (8, 24))
    added = 24 - 8
    assert kept_floats("gram", wide) - kept_floats("gram", narrow) == added * (20 + 20 + 5)
    # the recurrent form holds a matrix a token
    assert kept_floats("recurrent", wide) - kept_floats("recurrent", narrow) > added * 20 * 5


def test_gradients_of_gradients_are_refused():
    given = inputs(Sizes(), 1.0, has_memory=False)
    o, _ = run("gram", given)
    (to_k,) = torch.autograd.grad(o.square().sum(), given.k, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        to_k.sum().backward()
