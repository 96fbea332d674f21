import math

import pytest
import torch
from torch import Tensor

from attnbench.harness import seeds
from attnbench.harness.checks import TOLERANCES
from attnbench.variants import EPSILON, delta, find
from attnbench.variants.contract import How
from attnbench.variants.registry import everything

EXACT = {"rtol": TOLERANCES[torch.float64].relative, "atol": TOLERANCES[torch.float64].absolute}
# results that the published epsilon of a denominator moves by a part in a million
TO_EPSILON = {"rtol": 1e-5, "atol": 1e-5}
RULES = everything().vocabulary.write_rules
NORMS = everything().vocabulary.normalisations


def rows(*tokens: tuple[float, ...]) -> Tensor:
    """One sequence, one head: [1,T,1,width]."""
    return torch.tensor(tokens, dtype=torch.float64)[None, :, None, :]


def betas(*values: float) -> Tensor:
    """One sequence, one head: [1,T,1]."""
    return torch.tensor(values, dtype=torch.float64)[None, :, None]


def gaussian(*shape: int, part: str = "x") -> Tensor:
    return torch.randn(*shape, generator=seeds.generator("write rules", part), dtype=torch.float64)


def written(rule: str, phi_k: Tensor, v: Tensor, beta: Tensor | None = None, *, phi_q: Tensor | None = None, **more):
    """Values and memory of the rule's recurrent form on features, read with the keys unless `phi_q` is given."""
    form = RULES[rule].forms["recurrent"].call
    return form(phi_k if phi_q is None else phi_q, phi_k, v, beta, None, How(**more))


# sum


def test_the_sum_rule_is_the_masked_quadratic_form():
    # o_t = sum over s <= t of (q_t . k_s) v_s
    q, k, v = gaussian(2, 9, 2, 4, part="q"), gaussian(2, 9, 2, 4, part="k"), gaussian(2, 9, 2, 3, part="v")
    scores = torch.einsum("b t h k, b s h k -> b h t s", q, k).tril()
    expected = torch.einsum("b h t s, b s h v -> b t h v", scores, v)
    values, memory = find("fwp1991").apply("recurrent", q, k, v)
    torch.testing.assert_close(values, expected, **EXACT)
    torch.testing.assert_close(memory["S"], torch.einsum("b s h v, b s h k -> b h v k", v, k), **EXACT)


def test_the_fast_weight_programmer_of_1991_by_hand():
    # S_1 = 3 (1, 2)^T = (3, 6), o_1 = S_1 . (1, 0) = 3; S_2 = S_1 + 5 (0, 1) = (3, 11), o_2 = S_2 . (1, 1) = 14
    values, memory = find("fwp1991").apply("recurrent", rows((1, 0), (1, 1)), rows((1, 2), (0, 1)), rows((3,), (5,)))
    assert values.flatten().tolist() == [3, 14]
    assert memory["S"].flatten().tolist() == [3, 11]


@pytest.mark.parametrize("name", ["linear", "gated", "linear+sumnorm", "dpfp-nu1"])
def test_attention_normalised_outputs_are_weighted_means_of_the_values(name):
    q, k = 1 + gaussian(2, 12, 2, 4, part="q").abs(), 1 + gaussian(2, 12, 2, 4, part="k").abs()
    ones = torch.ones(2, 12, 2, 1, dtype=torch.float64)
    values, memory = find(name).apply("recurrent", q, k, ones, torch.sigmoid(gaussian(2, 12, 2)))
    # the weights sum to z . phi(q) / (z . phi(q) + epsilon), so the mean of ones is one but for epsilon
    torch.testing.assert_close(values, ones, **TO_EPSILON)
    assert bool((values < 1).all())
    assert memory["z"].shape == memory["S"].shape[:2] + memory["S"].shape[-1:]


def test_a_query_that_no_key_has_a_feature_in_common_with_reads_zero():
    # dpfp in two dimensions: another quadrant, so phi(q) . phi(k) = 0, and 0 / (0 + epsilon) = 0
    values, _ = find("dpfp-nu1").apply("recurrent", rows((-1, -2)), rows((1, 2)), rows((5,)))
    assert float(values) == 0


def test_the_denominator_has_the_published_epsilon():
    # phi(q) = phi(k) = exp(0 - 0) = 1 in one dimension: o = v / (1 + epsilon)
    values, _ = find("linear").apply("recurrent", rows((0.0,)), rows((0.0,)), rows((1.0,)))
    assert float(values) == pytest.approx(1 / (1 + EPSILON), rel=1e-12)
    assert EPSILON == 1e-6


def test_linear_attention_by_hand():
    # phi(0) = 1, phi(1) = 2. After two tokens S = 2 * 1 + 4 * 2 = 10, z = 1 + 2 = 3, so o_2 = 10 / 3
    values, memory = find("linear").apply("recurrent", rows((0.0,), (0.0,)), rows((0.0,), (1.0,)), rows((2.0,), (4.0,)))
    torch.testing.assert_close(values.flatten(), torch.tensor([2.0, 10 / 3], dtype=torch.float64), **TO_EPSILON)
    assert (float(memory["S"]), float(memory["z"])) == (10, 3)


def test_without_attention_normalisation_no_normaliser_is_kept():
    k, v = gaussian(1, 3, 1, 4), gaussian(1, 3, 1, 2)
    values, memory = find("linear+noattnnorm").apply("recurrent", k, k, v)
    assert set(memory) == {"S"}
    # o_1 = v_1 (phi . phi)
    phi = torch.where(k > 0, k + 1, k.exp())[0, 0, 0]
    torch.testing.assert_close(values[0, 0, 0], v[0, 0, 0] * (phi @ phi), **EXACT)


# delta


def test_delta_with_beta_one_replaces_the_value_of_a_repeated_key():
    # one-hot keys a, b, a: the third write takes 2 away and puts 5 there
    values, memory = written("delta", rows((1, 0), (0, 1), (1, 0)), rows((2,), (3,), (5,)), betas(1, 1, 1))
    assert values.flatten().tolist() == [2, 3, 5]
    assert memory["S"].flatten().tolist() == [5, 3]


def test_the_sum_rule_adds_to_the_value_of_a_repeated_key():
    values, memory = written("sum", rows((1, 0), (0, 1), (1, 0)), rows((2,), (3,), (5,)))
    assert values.flatten().tolist() == [2, 3, 7]
    assert memory["S"].flatten().tolist() == [7, 3]


def test_delta_with_beta_one_half_moves_half_way():
    # 0 -> 4 / 2 = 2, then 2 + (8 - 2) / 2 = 5
    values, _ = written("delta", rows((1, 0), (1, 0)), rows((4,), (8,)), betas(0.5, 0.5))
    assert values.flatten().tolist() == [2, 5]


def test_delta_with_beta_zero_writes_nothing():
    _, memory = written("delta", gaussian(1, 5, 1, 3), gaussian(1, 5, 1, 2), betas(0, 0, 0, 0, 0))
    assert float(memory["S"].abs().max()) == 0


def test_a_delta_write_is_the_transition_identity_minus_beta_phi_phi():
    # S_t = S_(t-1) (I - beta phi phi^T) + beta v phi^T
    phi, v, beta = gaussian(1, 6, 1, 4, part="phi"), gaussian(1, 6, 1, 3, part="v"), torch.sigmoid(gaussian(1, 6, 1))
    S = torch.zeros(3, 4, dtype=torch.float64)
    for t in range(6):
        key, strength = phi[0, t, 0], beta[0, t, 0]
        S = S @ (torch.eye(4) - strength * torch.outer(key, key)) + strength * torch.outer(v[0, t, 0], key)
    _, memory = written("delta", phi, v, beta)
    torch.testing.assert_close(memory["S"][0, 0], S, **EXACT)


def test_fixed_beta_is_beta_one():
    k, v = gaussian(2, 5, 2, 4, part="k"), gaussian(2, 5, 2, 3, part="v")
    fixed = find("delta+fixedbeta")
    assert fixed.inputs == ("q", "k", "v")
    ones = torch.ones(2, 5, 2, dtype=torch.float64)
    expected, _ = find("delta").apply("recurrent", k, k, v, ones)
    found, _ = fixed.apply("recurrent", k, k, v, 0 * ones)  # not handed over
    assert torch.equal(found, expected)


def test_the_first_delta_write_with_attention_normalisation_finds_nothing_to_remove():
    # vbar_1 = 0, so S_1 = beta v phi^T and o_1 = beta v (phi . phi) / (phi . phi) whatever phi is
    k, v, beta = gaussian(1, 1, 1, 4), gaussian(1, 1, 1, 3, part="v"), betas(0.25)
    values, _ = find("delta+attnnorm").apply("recurrent", k, k, v, beta)
    torch.testing.assert_close(values, 0.25 * v, **TO_EPSILON)


def test_delta_with_attention_normalisation_by_hand():
    # phi = 1 throughout, beta = 1/2. vbar_1 = 0, S_1 = 1, z_1 = 1, o_1 = 1.
    # vbar_2 = S_1 / z_1 = 1, S_2 = 1 + (4 - 1) / 2 = 2.5, z_2 = 2, o_2 = 1.25
    values, memory = written("delta", rows((1,), (1,)), rows((2,), (4,)), betas(0.5, 0.5), attention=True)
    torch.testing.assert_close(values.flatten(), torch.tensor([1.0, 1.25], dtype=torch.float64), **TO_EPSILON)
    assert float(memory["S"]) == pytest.approx(2.5, abs=1e-5)
    assert float(memory["z"]) == 2


# normalisations of features


def test_sum_normalised_features_sum_to_one_and_stay_within_the_unit_ball():
    phi = NORMS["sum"].features(gaussian(100, 8).abs())
    torch.testing.assert_close(phi.sum(-1), torch.ones(100, dtype=torch.float64), **TO_EPSILON)
    squares = (phi * phi).sum(-1)
    assert bool((squares <= 1).all())
    # so a delta transition shrinks phi by 1 - beta |phi|^2, between 0 and 1
    assert bool((squares > 0).all())


def test_l2_normalised_features_have_length_one_and_keep_their_signs():
    x = gaussian(100, 8)
    phi = NORMS["l2"].features(x)
    torch.testing.assert_close(phi.norm(dim=-1), torch.ones(100, dtype=torch.float64), **TO_EPSILON)
    assert torch.equal(phi.sign(), x.sign())


def test_with_l2_normalisation_a_delta_write_with_beta_one_replaces_what_the_key_held():
    k, v = gaussian(1, 1, 1, 6).expand(1, 4, 1, 6), gaussian(1, 4, 1, 3, part="v")
    values, _ = find("delta+l2norm").apply("recurrent", k, k, v, betas(1, 1, 1, 1))
    torch.testing.assert_close(values, v, **TO_EPSILON)


@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize("length", [1, 64, 65, 150])
def test_the_delta_readout_gives_what_is_read_at_the_end_over_any_number_of_chunks(length, attention):
    # features with a sum of one, as they are used: the deltas of others grow from write to write
    k, q = gaussian(2, length, 2, 6, part="k").softmax(-1), gaussian(2, 3, 2, 6, part="q").softmax(-1)
    v, beta = gaussian(2, length, 2, 4, part="v"), gaussian(2, length, 2, part="beta").sigmoid()
    form, leaves = RULES["delta"].forms["recurrent"].call, (q, k, v, beta)
    for leaf in leaves:
        leaf.requires_grad_()
    weights = delta.readout(q, k, beta, None, How(attention=attention))
    found = torch.einsum("b n h t, b t h v -> b n h v", weights, v)
    read = [
        form(torch.cat([k[:, :-1], asked], dim=1), k, v, beta, None, How(attention=attention))[0][:, -1:]
        for asked in torch.split(q, 1, dim=1)
    ]
    expected = torch.cat(read, dim=1)
    torch.testing.assert_close(found, expected, **EXACT)
    sides = [torch.autograd.grad(values.square().sum(), leaves) for values in (found, expected)]
    torch.testing.assert_close(*sides, **EXACT)


def test_with_sum_normalisation_a_delta_write_removes_as_much_as_it_adds():
    # the write weight of feature i is phi_i; what it removes over all features is phi_i sum_j phi_j = phi_i
    phi = NORMS["sum"].features(gaussian(20, 8).abs())
    removed = torch.einsum("n i, n j -> n i", phi, phi)
    torch.testing.assert_close(removed, phi, **TO_EPSILON)


def test_a_long_delta_run_stays_bounded_with_sum_normalisation_and_not_without():
    k, v = gaussian(1, 300, 1, 16, part="k"), gaussian(1, 300, 1, 2, part="v")
    beta = torch.full((1, 300, 1), 0.5, dtype=torch.float64)
    _, bounded = find("delta").apply("recurrent", k, k, v, beta)
    _, unbounded = find("delta+nosumnorm").apply("recurrent", k, k, v, beta)
    assert float(bounded["S"].abs().max()) < 100
    # |phi|^2 is about 30 at K=16, so each write overshoots: |1 - 30 / 2| = 14
    assert not float(unbounded["S"].abs().max()) < 1e30


# gated


def test_the_gated_rule_forgets_all_keys_alike():
    # one-hot keys a, b. S_1 = 1/2 * 2 at a; the write to b halves it: 0.5 at a, 1/2 * 6 = 3 at b
    _, memory = written("gated", rows((1, 0), (0, 1)), rows((2,), (6,)), betas(0.5, 0.5))
    assert memory["S"].flatten().tolist() == [0.5, 3]


def test_the_delta_rule_forgets_the_written_key_only():
    _, memory = written("delta", rows((1, 0), (0, 1)), rows((2,), (6,)), betas(0.5, 0.5))
    assert memory["S"].flatten().tolist() == [1, 3]


@pytest.mark.parametrize("form", ["recurrent", "chunkwise", "parallel"])
def test_a_gate_of_one_keeps_the_last_write_alone(form):
    k, v = gaussian(1, 5, 1, 4, part="k"), gaussian(1, 5, 1, 3, part="v")
    values, _ = find("gated").apply(form, k, k, v, betas(1, 1, 1, 1, 1))
    torch.testing.assert_close(values, v, **TO_EPSILON)


# fwm


def test_the_memory_of_fwm_stays_in_the_unit_ball():
    k, v, beta = (
        gaussian(2, 40, 2, 6, part="k"),
        10 * gaussian(2, 40, 2, 5, part="v"),
        torch.sigmoid(gaussian(2, 40, 2)),
    )
    memory = None
    for t in range(40):
        _, memory = find("fwm").apply("step", *(x[:, t : t + 1] for x in (k, k, v)), beta[:, t : t + 1], memory=memory)
        assert float(torch.linalg.matrix_norm(memory["S"]).max()) <= 1 + 1e-12


def test_fwm_by_hand():
    # S' = 1 * 3 * (1, 0) has the norm 3, so S = (1, 0); then S' = (1, 0) + (0.5 - 0) (0, 1) = (1, 0.5), norm sqrt(1.25)
    values, memory = written(
        "fwm", rows((1, 0), (0, 1)), rows((3,), (0.5,)), betas(1, 1), options=frozenset({"noreadoutnorm"})
    )
    norm = math.sqrt(1.25)
    torch.testing.assert_close(values.flatten(), torch.tensor([1, 0.5 / norm], dtype=torch.float64), **EXACT)
    torch.testing.assert_close(memory["S"].flatten(), torch.tensor([1, 0.5], dtype=torch.float64) / norm, **EXACT)


def test_what_fwm_reads_is_normalised_unless_asked_otherwise():
    k, v = gaussian(1, 20, 1, 6, part="k"), gaussian(1, 20, 1, 5, part="v")
    beta = torch.full((1, 20, 1), 0.9, dtype=torch.float64)
    values, memory = find("fwm").apply("recurrent", k, k, v, beta)
    plain, same = find("fwm+noreadoutnorm").apply("recurrent", k, k, v, beta)
    torch.testing.assert_close(values.mean(-1), torch.zeros(1, 20, 1, dtype=torch.float64), **EXACT)
    centred = plain - plain.mean(-1, keepdim=True)
    expected = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(values, expected, **EXACT)
    assert torch.equal(memory["S"], same["S"])


def test_the_keys_of_fwm_are_bounded():
    # tanh(100) = 1: S = v (1, 1), of norm sqrt(2), clipped; so o = S . (1, 1) = 2 / sqrt(2)
    values, _ = find("fwm+noreadoutnorm").apply("recurrent", rows((100, 100)), rows((100, 100)), rows((1,)), betas(1))
    assert float(values) == pytest.approx(math.sqrt(2))


# softmax


def test_softmax_by_hand():
    # K = 4, so scores are halved. q_2 . k = (2, 0) / 2 = (1, 0): weights e / (e + 1) and 1 / (e + 1) of 10 and 20
    q = rows((0, 0, 0, 0), (2, 0, 0, 0))
    values, memory = find("softmax").apply("recurrent", q, rows((1, 0, 0, 0), (0, 1, 0, 0)), rows((10,), (20,)))
    assert values.flatten().tolist() == pytest.approx([10, (10 * math.e + 20) / (math.e + 1)])
    assert memory["v"].flatten().tolist() == [10, 20]


@pytest.mark.parametrize("form", ["recurrent", "parallel", "sdpa"])
def test_softmax_without_a_preference_is_the_mean_of_the_values_so_far(form):
    v = gaussian(1, 5, 1, 3)
    zero = torch.zeros(1, 5, 1, 4, dtype=torch.float64)
    values, _ = find("softmax").apply(form, zero, zero, v)
    torch.testing.assert_close(values, v.cumsum(1) / torch.arange(1, 6).view(1, 5, 1, 1), **EXACT)


# memory


@pytest.mark.parametrize(
    ("name", "floats"),
    [
        # K = 64, V = 32, T = 100
        ("softmax", 100 * (64 + 32)),
        ("linear", 32 * 64 + 64),
        ("linear+noattnnorm", 32 * 64),
        ("performer-m64", 32 * 128 + 128),
        ("performer-m64+scaled", 32 * 128 + 128 + 1),
        ("performer-m64+scaled+delta", 32 * 128),
        ("dpfp-nu3", 32 * 384 + 384),
        ("delta", 32 * 64),
        ("delta+attnnorm", 32 * 64 + 64),
        ("fwm", 32 * 64),
        ("gated", 32 * 64 + 64),
    ],
)
def test_the_size_of_the_memory_of_one_head(name, floats):
    assert find(name).state_floats(64, 32, 100) == floats


@pytest.mark.parametrize("name", ["linear", "delta", "gated", "fwm", "performer-m8+scaled"])
def test_state_and_normalisers_are_float32_under_bfloat16_inputs(name):
    variant = find(name)
    x, beta = torch.ones(1, 3, 1, 4, dtype=torch.bfloat16), torch.full((1, 3, 1), 0.5, dtype=torch.bfloat16)
    drawn = variant.draws.sample(seeds.generator("draw"), 1, 4) if variant.draws else None
    values, memory = variant.apply("recurrent", x, x, x, beta, draws=drawn)
    assert values.dtype == torch.bfloat16
    assert {one.dtype for one in memory.values()} == {torch.float32}
