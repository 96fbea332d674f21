import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.harness import seeds
from attnbench.harness.checks import TOLERANCES
from attnbench.variants import find
from attnbench.variants.registry import everything
from attnbench.variants.shapes import CACHED_NUMBERS, cache_blocks

MAPS = everything().vocabulary.feature_maps
EXACT = {"rtol": TOLERANCES[torch.float64].relative, "atol": TOLERANCES[torch.float64].absolute}


def gaussian(*shape: int, part: str = "x") -> torch.Tensor:
    return torch.randn(*shape, generator=seeds.generator("feature maps", part), dtype=torch.float64)


def dpfp(x: torch.Tensor, nu: int) -> torch.Tensor:
    return MAPS["dpfp"].features(x, nu=nu)


# widths


@pytest.mark.parametrize("name", sorted(MAPS))
def test_features_have_the_width_that_the_map_declares(name):
    one = MAPS[name]
    numbers = {letter.name: 3 for letter in one.letters}
    draws = one.sample(seeds.generator("draw"), 2, 8, **numbers) if one.sample else None
    phi = one.features(gaussian(2, 5, 2, 8), draws, **numbers)
    assert phi.shape == (2, 5, 2, one.width(8, **numbers))
    assert not one.is_nonnegative or bool((phi >= 0).all())


@pytest.mark.parametrize(
    ("name", "width"), [("linear", 64), ("performer-m64", 128), ("dpfp-nu1", 128), ("dpfp-nu3", 384)]
)
def test_the_widths_of_the_paper_at_key_width_64(name, width):
    # arXiv:2102.11174, section 6.1: d_dot of linear 64, FAVOR+ 2m, DPFP 2 * 64 * nu
    assert find(name).feature_width(64) == width


# elu1


def test_elu1_is_x_plus_one_above_zero_and_exp_below():
    x = torch.tensor([2.0, 0.5, 0.0, -1.0, -8.0], dtype=torch.float64)
    expected = torch.tensor([3.0, 1.5, 1.0, math.exp(-1), math.exp(-8)], dtype=torch.float64)
    torch.testing.assert_close(MAPS["elu1"].features(x), expected, **EXACT)


def test_elu1_keeps_small_values_in_bfloat16():
    # elu(-8) + 1 is -0.9997 rounded to 8 bits, -1, plus 1: zero. exp(-8) = 3.35e-4 has a bfloat16 of its own
    x = torch.tensor(-8.0, dtype=torch.bfloat16)
    assert float(torch.nn.functional.elu(x) + 1) == 0
    found = float(MAPS["elu1"].features(x))
    assert found == pytest.approx(math.exp(-8), rel=TOLERANCES[torch.bfloat16].relative)


def test_elu1_has_a_gradient_everywhere():
    x = torch.tensor([-800.0, -1.0, 0.0, 1.0, 800.0], dtype=torch.float64, requires_grad=True)
    MAPS["elu1"].features(x).sum().backward()
    # the slope is exp(x) up to 0 and 1 above
    expected = torch.tensor([0.0, math.exp(-1), 1.0, 1.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(x.grad, expected, **EXACT)


# dpfp


@pytest.mark.parametrize(
    ("x", "phi"),
    [
        # r = relu([x; -x]) = (x1, x2, -x1, -x2) rectified; phi_i = r_i r_(i-1): a feature for each quadrant
        ((1.0, 2.0), (0.0, 2.0, 0.0, 0.0)),  # r = (1, 2, 0, 0)
        ((-1.0, 2.0), (0.0, 0.0, 2.0, 0.0)),  # r = (0, 2, 1, 0)
        ((-1.0, -2.0), (0.0, 0.0, 0.0, 2.0)),  # r = (0, 0, 1, 2)
        ((1.0, -2.0), (2.0, 0.0, 0.0, 0.0)),  # r = (1, 0, 0, 2)
    ],
)
def test_dpfp_in_two_dimensions_has_one_feature_per_quadrant(x, phi):
    assert dpfp(torch.tensor(x, dtype=torch.float64), nu=1).tolist() == list(phi)


@given(key_width=st.integers(2, 6), data=st.data())
def test_dpfp_features_span_2_K_nu_dimensions_for_nu_below_K(key_width, data):
    nu = data.draw(st.integers(1, key_width - 1))
    dimensions = 2 * key_width * nu
    phi = dpfp(gaussian(20 * dimensions, key_width), nu)
    assert phi.shape[-1] == dimensions
    assert int(torch.linalg.matrix_rank(phi)) == dimensions


@pytest.mark.parametrize("key_width", [2, 3, 5])
def test_dpfp_features_beyond_nu_K_minus_1_add_no_dimension(key_width):
    phi = dpfp(gaussian(2000, key_width), 2 * key_width - 1)
    assert int(torch.linalg.matrix_rank(phi)) == 2 * key_width * (key_width - 1)


@pytest.mark.parametrize("key_width", [2, 3, 8])
def test_the_dpfp_shift_by_K_is_zero(key_width):
    # r_i and r_(i+K) are relu(x) and relu(-x) of the same component
    phi = dpfp(gaussian(50, key_width), key_width)
    assert float(phi[:, -2 * key_width :].abs().max()) == 0


@given(key_width=st.integers(2, 8), data=st.data())
def test_dpfp_shifts_j_and_2K_minus_j_give_the_same_products(key_width, data):
    shift = data.draw(st.integers(1, key_width))
    width = 2 * key_width
    blocks = dpfp(gaussian(3, key_width), width - 1).split(width, dim=-1)
    # r_i r_(i-j) at place i is r_(i-j) r_((i-j) - (2K-j)) at place i - j
    assert torch.equal(blocks[shift - 1], torch.roll(blocks[width - shift - 1], shift, dims=-1))


@pytest.mark.parametrize(("key_width", "is_zero"), [(3, True), (5, True), (2, False), (4, False)])
def test_alternating_signs_give_dpfp_nothing_at_odd_K(key_width, is_zero):
    # x = (1, -1, 1): r = (1, 0, 1, 0, 1, 0), no two neighbours; at even K the two halves of r meet: (1, 0, 0, 1)
    x = torch.tensor([(-1.0) ** i for i in range(key_width)], dtype=torch.float64)
    assert bool((dpfp(x, 1) == 0).all()) == is_zero


def test_a_zero_feature_vector_does_not_break_the_sum_normalisation():
    zero = torch.zeros(1, 4, 1, 3, dtype=torch.float64)
    zero[..., 0], zero[..., 1], zero[..., 2] = 1, -1, 1
    values, memory = find("dpfp-nu1+delta").apply(
        "recurrent", zero, zero, torch.ones(1, 4, 1, 2).double(), zero[..., 0]
    )
    assert float(values.abs().max()) == 0
    assert float(memory["S"].abs().max()) == 0


def test_dpfp_keeps_the_sign_of_its_input():
    # relu(-x), not -relu(x): the other reading gives phi(x) = 0 for every negative x
    x = -gaussian(4).abs()
    assert float(dpfp(x, 1).sum()) > 0


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("nu", [1, 2, 3])
def test_the_dpfp_kernel_is_the_product_of_the_features(nu, queries):
    q, k = gaussian(2, queries, 3, 8, part="q"), gaussian(2, 7, 3, 8, part="k")
    expected = torch.einsum("b n h d, b t h d -> b n h t", dpfp(q, nu), dpfp(k, nu))
    torch.testing.assert_close(MAPS["dpfp"].kernel(q, k, nu=nu), expected, **EXACT)


@pytest.mark.parametrize("nu", [1, 2, 7])
def test_the_dpfp_kernel_has_the_gradient_of_the_features(nu):
    q, k = gaussian(2, 1, 3, 8, part="q"), gaussian(2, 5, 3, 8, part="k")
    q[..., 2] = 0  # no sign of its own
    q.requires_grad_(), k.requires_grad_()
    weights = gaussian(2, 1, 3, 5, part="w")
    fast = torch.autograd.grad((MAPS["dpfp"].kernel(q, k, nu=nu) * weights).sum(), (q, k))
    plain = torch.einsum("b n h d, b t h d -> b n h t", dpfp(q, nu), dpfp(k, nu))
    torch.testing.assert_close(fast, torch.autograd.grad((plain * weights).sum(), (q, k)), **EXACT)


@pytest.mark.parametrize("queries", [1, 3])
def test_the_elu1_kernel_is_the_product_of_the_features_and_has_their_gradient(queries):
    q, k = gaussian(2, queries, 3, 8, part="q").requires_grad_(), gaussian(2, 7, 3, 8, part="k").requires_grad_()
    plain = torch.einsum("b n h d, b t h d -> b n h t", MAPS["elu1"].features(q), MAPS["elu1"].features(k))
    found = MAPS["elu1"].kernel(q, k)
    torch.testing.assert_close(found, plain, **EXACT)
    weights = gaussian(*found.shape, part="w")
    fast = torch.autograd.grad((found * weights).sum(), (q, k))
    torch.testing.assert_close(fast, torch.autograd.grad((plain * weights).sum(), (q, k)), **EXACT)


# favor


def test_rows_of_a_favor_draw_are_orthogonal_within_a_block_of_K():
    drawn = MAPS["favor"].sample(seeds.generator("draw"), 2, 4, m=10).double()  # blocks of 4, 4 and 2
    for block in drawn.split(4, dim=1):
        products = block @ block.mT
        lengths = products.diagonal(dim1=-2, dim2=-1)
        beside = products - torch.diag_embed(lengths)
        # drawn in float32
        assert float(beside.abs().max()) < TOLERANCES[torch.float32].relative * float(lengths.max())
    assert drawn.shape == (2, 10, 4)


def test_heads_and_generators_get_draws_of_their_own():
    sample = MAPS["favor"].sample
    first = sample(seeds.generator("one"), 2, 4, m=4)
    assert not torch.equal(first[0], first[1])
    assert torch.equal(first, sample(seeds.generator("one"), 2, 4, m=4))
    assert not torch.equal(first, sample(seeds.generator("two"), 2, 4, m=4))


def test_lengths_of_favor_rows_are_those_of_gaussian_vectors():
    # the mean of |x|^2 for x ~ N(0, I) in 8 dimensions is 8, its variance 2 * 8 = 16
    drawn = MAPS["favor"].sample(seeds.generator("lengths"), 40, 8, m=64).double()
    squares = (drawn * drawn).sum(-1).flatten()
    assert float(squares.mean()) == pytest.approx(8, abs=5 * math.sqrt(16 / squares.numel()))


def test_the_mean_of_favor_kernels_over_draws_approaches_exp_q_k():
    heads, key_width = 4000, 4  # every head has a draw of its own
    q, k = 0.5 * gaussian(key_width, part="q"), 0.5 * gaussian(key_width, part="k")
    drawn = MAPS["favor"].sample(seeds.generator("mean"), heads, key_width, m=4).double()
    phi_q, phi_k = (MAPS["favor"].features(x.expand(1, 1, heads, key_width), drawn, m=4) for x in (q, k))
    kernels = (phi_q * phi_k).sum(-1).flatten()
    expected = math.exp(float(q @ k))
    error = float(kernels.std()) / math.sqrt(heads)
    assert error < 0.02 * expected
    assert float(kernels.mean()) == pytest.approx(expected, abs=5 * error)


def test_favor_features_are_the_published_formula():
    x, drawn = gaussian(1, 1, 1, 3), gaussian(1, 2, 3, part="R")
    projected = drawn[0] @ x.flatten()
    factor = math.exp(-0.5 * float(x.flatten() @ x.flatten())) / math.sqrt(2 * 2)
    expected = factor * torch.cat([projected.exp(), (-projected).exp()])
    torch.testing.assert_close(MAPS["favor"].features(x, drawn, m=2).flatten(), expected, **EXACT)


def test_the_scaled_form_gives_what_unscaled_features_of_shorter_inputs_give():
    # maxima cancel between numerator and denominator, so +scaled is the plain form on inputs times K^-1/4
    plain, scaled = find("performer-m16"), find("performer-m16+scaled")
    q, k, v = gaussian(2, 30, 2, 4, part="q"), gaussian(2, 30, 2, 4, part="k"), gaussian(2, 30, 2, 3, part="v")
    drawn = plain.draws.sample(seeds.generator("draw"), 2, 4)
    expected, _ = plain.apply("recurrent", q * 4**-0.25, k * 4**-0.25, v, draws=drawn)
    found, memory = scaled.apply("chunkwise", q, k, v, draws=drawn)
    # epsilon stands beside denominators of another size
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert memory["level"].shape == (2, 2)


def test_the_scaled_form_stays_finite_where_the_published_one_underflows():
    # |k|^2 = 64 * 100: exp(-3200) is zero in float64, and with it every feature of the published form
    q = k = torch.full((1, 3, 1, 64), 10.0, dtype=torch.float64)
    v = gaussian(1, 3, 1, 2)
    published, scaled = find("performer-m8"), find("performer-m8+scaled")
    drawn = published.draws.sample(seeds.generator("draw"), 1, 64)
    assert float(published.apply("recurrent", q, k, v, draws=drawn)[0].abs().max()) == 0
    # equal keys have equal weights: the mean of the values so far
    expected = v.cumsum(1) / torch.arange(1, 4).view(1, 3, 1, 1)
    found, _ = scaled.apply("recurrent", q, k, v, draws=drawn)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_the_running_maximum_of_the_scaled_form_is_carried_and_never_falls():
    scaled = find("performer-m8+scaled")
    k = gaussian(1, 20, 1, 4, part="k")
    drawn = scaled.draws.sample(seeds.generator("draw"), 1, 4)
    _, first = scaled.apply("recurrent", k[:, :10], k[:, :10], k[:, :10], draws=drawn)
    _, second = scaled.apply("recurrent", 0 * k[:, 10:], 0 * k[:, 10:], k[:, 10:], memory=first, draws=drawn)
    own = MAPS["favor"].log_features(k[:, :10] * 4**-0.25, drawn, m=8).amax((1, 3))
    torch.testing.assert_close(first["level"], own, **EXACT)
    # phi(0) has the exponent -ln(2m) / 2
    expected = torch.maximum(own, torch.tensor(-0.5 * math.log(16), dtype=torch.float64))
    torch.testing.assert_close(second["level"], expected, **EXACT)


@pytest.mark.parametrize("queries", [1, 3])
def test_the_favor_kernel_is_the_product_of_the_features(queries):
    q, k = gaussian(2, queries, 2, 4, part="q").requires_grad_(), gaussian(2, 5, 2, 4, part="k").requires_grad_()
    drawn = MAPS["favor"].sample(seeds.generator("kernel"), 2, 4, m=6).double()
    phi_q, phi_k = (MAPS["favor"].features(x, drawn, m=6) for x in (q, k))
    product = torch.einsum("b n h d, b t h d -> b n h t", phi_q, phi_k)
    found = MAPS["favor"].kernel(q, k, drawn, m=6)
    torch.testing.assert_close(found, product, **EXACT)
    direction = gaussian(*found.shape, part="direction")
    for mine, plain in zip(
        torch.autograd.grad(found, (q, k), direction), torch.autograd.grad(product, (q, k), direction), strict=True
    ):
        torch.testing.assert_close(mine, plain, **EXACT)


def test_the_gradient_of_the_favor_kernel_is_that_of_small_differences():
    q, k = gaussian(2, 1, 1, 3, part="q").requires_grad_(), gaussian(2, 4, 1, 3, part="k").requires_grad_()
    drawn = MAPS["favor"].sample(seeds.generator("kernel"), 1, 3, m=5).double()
    assert torch.autograd.gradcheck(lambda q, k: MAPS["favor"].kernel(q, k, drawn, m=5), (q, k))


def test_favor_features_of_long_keys_are_next_to_nothing_and_no_nan():
    # |k| = 80: exp(-3200) is 0 in float32; what is kept in its place is far below any epsilon
    k = torch.full((1, 2, 1, 64), 10.0, requires_grad=True)
    q = torch.ones(1, 1, 1, 64, requires_grad=True)
    drawn = MAPS["favor"].sample(seeds.generator("long"), 1, 64, m=8)
    found = MAPS["favor"].kernel(q, k, drawn, m=8)
    assert 0 <= float(found.detach().max()) < 1e-35
    assert all(bool(torch.isfinite(one).all()) for one in torch.autograd.grad(found.sum(), (q, k)))
    assert float(MAPS["favor"].features(k, drawn, m=8).detach().max()) < 1e-35


@pytest.mark.parametrize(("name", "redraw"), [("performer-m8", "step"), ("performer-m8+fixeddraws", "never")])
def test_a_performer_says_when_it_draws_anew(name, redraw):
    assert find(name).draws.redraw == redraw
    assert find("linear").draws is None


# blocks


@given(batch=st.integers(1, 300), numbers=st.integers(1, 200_000))
def test_blocks_cover_the_batch_once_and_fit_the_cache_where_one_sequence_does(batch, numbers):
    blocks = [range(batch)[block] for block in cache_blocks(batch, numbers, torch.device("cpu"))]
    assert [index for block in blocks for index in block] == list(range(batch))
    assert all(len(block) * numbers <= CACHED_NUMBERS or len(block) == 1 for block in blocks)


def test_a_gpu_takes_the_batch_as_one_block():
    assert list(cache_blocks(300, 10**6, torch.device("cuda"))) == [slice(0, 300)]
