import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from attnbench.harness import seeds
from attnbench.variants import find
from attnbench.variants.xl import VARIANT, Layer, aligned, build, sinusoids


def layer_of(width: int = 4, heads: int = 2, *parts: seeds.Part) -> Layer:
    """The first of two layers, in float64."""
    return build(width, heads, 2, seeds.generator("xl", *parts))[0].double()


def gaussian(*shape: int, part: str = "x") -> Tensor:
    return torch.randn(*shape, generator=seeds.generator("xl", part), dtype=torch.float64)


def by_hand(layer: Layer, x: Tensor, states: Tensor) -> Tensor:
    """The formula of section 3.3 in loops over batch, head, query and key, every distance projected on its own."""
    width, (heads, K) = x.shape[-1], layer.u.shape
    W_q, W_k, W_v = layer.into.split(width, dim=1)
    past = states.shape[1] - x.shape[1]
    y = []
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            read = []
            for h in range(heads):
                own = slice(h * K, (h + 1) * K)
                q = (x[b, t] @ W_q)[own]
                scores = []
                for j in range(past + t + 1):
                    angle = torch.tensor([(past + t - j) * 10_000 ** (-c / width) for c in range(0, width, 2)]).double()
                    r = torch.cat([angle.sin(), angle.cos()])
                    content = (q + layer.u[h]) @ (states[b, j] @ W_k)[own]
                    position = (q + layer.w[h]) @ (r @ layer.from_distance)[own]
                    scores.append((content + position) / math.sqrt(K))
                weights = torch.softmax(torch.stack(scores), 0)
                values = torch.stack([(states[b, j] @ W_v)[own] for j in range(past + t + 1)])
                read.append(weights @ values)
            y.append(torch.cat(read) @ layer.out)
    return torch.stack(y).reshape(x.shape)


def changed(layer: Layer, **parameters: Tensor) -> Layer:
    """The layer with other parameters."""
    for name, parameter in parameters.items():
        setattr(layer, name, nn.Parameter(parameter.double()))
    return layer


@pytest.mark.parametrize("form", ["recurrent", "parallel"])
@pytest.mark.parametrize("past", [0, 1, 3])
def test_the_formula_is_that_of_section_3_3(form, past):
    # heads of two widths of their own: a mixed-up axis shows
    layer = changed(layer_of(6, 2), u=gaussian(2, 3, part="u"), w=gaussian(2, 3, part="w"))
    x, before = gaussian(2, 4, 6), gaussian(2, past, 6, part="before")
    found, memory = VARIANT.apply_layer(form, layer, x, {"x": before} if past else None)
    states = torch.cat([before, x], dim=1)
    torch.testing.assert_close(found, by_hand(layer, x, states), rtol=1e-6, atol=1e-7)
    assert torch.equal(memory["x"], states)


def test_a_token_on_its_own_reads_its_own_value():
    layer, x = layer_of(), gaussian(3, 1, 4)
    # one weight, which is one whatever the score: y = x W_v W_o
    y, _ = VARIANT.apply_layer("parallel", layer, x)
    torch.testing.assert_close(y, x @ layer.into[:, 8:] @ layer.out)


def test_without_queries_and_biases_everything_before_weighs_alike():
    layer = layer_of()
    into = torch.cat([torch.zeros(4, 4), layer.into[:, 4:].detach()], dim=1)
    layer = changed(layer, into=into, u=torch.zeros(2, 2), w=torch.zeros(2, 2))
    x = gaussian(1, 5, 4)
    y, _ = VARIANT.apply_layer("parallel", layer, x)
    mean = x.cumsum(1) / torch.arange(1, 6)[:, None]
    torch.testing.assert_close(y, mean @ layer.into[:, 8:] @ layer.out)


def test_w_alone_weighs_by_distance_and_not_by_content():
    # q = 0, u = 0, one head of width 2: p_d = r_d = (sin d, cos d), w = (0, c sqrt 2), so the score is c cos d
    c = 3.0
    layer = layer_of(2, 1)
    into = torch.cat([torch.zeros(2, 2), gaussian(2, 2, part="keys"), torch.eye(2)], dim=1)
    layer = changed(
        layer,
        into=into,
        out=torch.eye(2),
        from_distance=torch.eye(2),
        u=torch.zeros(1, 2),
        w=torch.tensor([[0.0, c * math.sqrt(2)]]),
    )
    x = gaussian(1, 3, 2)
    y, _ = VARIANT.apply_layer("parallel", layer, x)
    score = [math.exp(c * math.cos(d)) for d in (2, 1, 0)]
    expected = sum(s * x[0, j] for j, s in enumerate(score)) / sum(score)
    torch.testing.assert_close(y[0, 2], expected)


def test_u_alone_weighs_by_content_and_not_by_distance():
    layer = layer_of()
    into = torch.cat([torch.zeros(4, 4), layer.into[:, 4:].detach()], dim=1)
    layer = changed(layer, into=into, u=gaussian(2, 2, part="u"), w=torch.zeros(2, 2))
    x = gaussian(1, 4, 4)
    last, _ = VARIANT.apply_layer("parallel", layer, x)
    shuffled, _ = VARIANT.apply_layer("parallel", layer, x[:, [2, 0, 1, 3]])
    torch.testing.assert_close(shuffled[:, -1], last[:, -1])


def test_the_order_of_earlier_tokens_matters():
    layer, x = layer_of(), gaussian(1, 4, 4)
    last, _ = VARIANT.apply_layer("parallel", layer, x)
    shuffled, _ = VARIANT.apply_layer("parallel", layer, x[:, [2, 0, 1, 3]])
    assert not torch.allclose(shuffled[:, -1], last[:, -1], rtol=1e-3, atol=1e-3)
    assert find("xl").has_positions
    assert not find("softmax").has_positions


def test_only_the_distance_counts_and_not_the_position():
    # the same text after the same text: what a token reads there does not know how long the memory was cut before
    layer, x = layer_of(), gaussian(1, 6, 4)
    assert VARIANT.keep is not None
    _, memory = VARIANT.apply_layer("parallel", layer, x[:, :4])
    found, _ = VARIANT.apply_layer("parallel", layer, x[:, 4:], VARIANT.keep(memory, 2))
    expected, _ = VARIANT.apply_layer("parallel", layer, x[:, 2:])
    torch.testing.assert_close(found, expected[:, 2:])


@settings(max_examples=25)
@given(tokens=st.integers(1, 6), past=st.integers(0, 6))
def test_the_shift_puts_each_query_beside_its_distances(tokens, past):
    total = past + tokens
    # every query is asked about distances total-1 ... 0, and the score names the distance
    scores = torch.arange(total - 1, -1, -1).expand(2, 3, tokens, total)
    found = aligned(scores)
    for t in range(tokens):
        # query t is token past + t; state j of it or before is past + t - j away
        assert torch.equal(found[1, 2, t, : past + t + 1], torch.arange(past + t, -1, -1))


def test_distances_are_sinusoids_of_falling_frequency():
    # width 4: frequencies 10000^0 = 1 and 10000^(-2/4) = 1/100; sines, then cosines
    found = sinusoids(torch.tensor([0.0, 3.0]).double(), 4)
    assert found[0].tolist() == [0, 0, 1, 1]
    assert found[1].tolist() == pytest.approx([math.sin(3), math.sin(0.03), math.cos(3), math.cos(0.03)])
    # an odd width has one cosine less
    assert sinusoids(torch.zeros(1), 5).tolist() == [[0, 0, 0, 1, 1]]


def test_a_gradient_reaches_the_projections_through_a_memory_that_is_a_constant():
    layer, before = layer_of(), gaussian(1, 3, 4, part="before")
    # a token of zeros has no query, key or value, so whatever W_k (by way of u) and W_v learn comes from the memory
    y, _ = VARIANT.apply_layer("parallel", layer, torch.zeros(1, 1, 4).double(), {"x": before})
    (gradient,) = torch.autograd.grad(y.sum(), layer.into)
    W_q, W_k, W_v = gradient.split(4, dim=1)
    assert float(W_q.abs().max()) == 0
    assert float(W_k.abs().max()) > 0
    assert float(W_v.abs().max()) > 0


def test_a_memory_passes_a_gradient_on_until_it_is_detached():
    layer, x = layer_of(), gaussian(1, 4, 4).requires_grad_()
    _, memory = VARIANT.apply_layer("parallel", layer, x[:, :2])
    y, _ = VARIANT.apply_layer("parallel", layer, x[:, 2:], memory)
    (through,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    assert float(through[:, :2].abs().min()) > 0
    y, _ = VARIANT.apply_layer("parallel", layer, x[:, 2:], {"x": memory["x"].detach()})
    (cut,) = torch.autograd.grad(y.sum(), x)
    assert float(cut[:, :2].abs().max()) == 0


def test_the_layers_of_a_model_share_u_and_w_and_nothing_else():
    first, second = build(4, 2, 2, seeds.generator("xl"))
    assert first.u is second.u
    assert first.w is second.w
    assert first.u is not first.w
    for name in ("into", "out", "from_distance"):
        assert not torch.equal(getattr(first, name), getattr(second, name))


def test_the_parameters_at_the_published_size():
    # 16 layers at width 256, 8 heads of 32: W_q, W_k, W_v, W_o and W_r a layer; u and w once
    layers = nn.ModuleList(build(256, 8, 16, seeds.generator("xl")))
    shapes = {name: tuple(parameter.shape) for name, parameter in layers[0].named_parameters()}
    assert shapes == {"u": (8, 32), "w": (8, 32), "into": (256, 768), "out": (256, 256), "from_distance": (256, 256)}
    assert sum(parameter.numel() for parameter in layers.parameters()) == 16 * (4 * 256**2 + 256**2) + 2 * 256


def test_parameters_are_determined_by_the_generator_alone():
    first, again, other = (layer_of(8, 2, part) for part in ("one", "one", "another"))
    for name, parameter in first.named_parameters():
        assert torch.equal(parameter, dict(again.named_parameters())[name])
        assert not torch.equal(parameter, dict(other.named_parameters())[name])


def test_the_state_is_one_hidden_state_a_token():
    # 8 heads of K = 32, 5 tokens: 5 hidden states of 256
    assert 8 * VARIANT.state_floats(32, 32, 5) == 5 * 256
    _, memory = VARIANT.apply_layer("parallel", layer_of(8, 2), gaussian(1, 5, 8))
    assert memory["x"].numel() == 2 * VARIANT.state_floats(4, 4, 5)


@pytest.mark.parametrize("form", ["recurrent", "parallel"])
def test_scores_are_computed_in_float32_under_autocast(form):
    layer = build(8, 2, 1, seeds.generator("xl"))[0]
    x = torch.randn(1, 5, 8, generator=seeds.generator("xl", "single"))
    seen: set[torch.dtype] = set()
    softmax = torch.softmax

    class Watching(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func in (softmax, Tensor.softmax):
                seen.add(args[0].dtype)
            return func(*args, **(kwargs or {}))

    with torch.autocast("cpu", dtype=torch.bfloat16), Watching():
        y, memory = VARIANT.apply_layer(form, layer, x)
    assert seen == {torch.float32}
    assert y.dtype == torch.bfloat16
    assert memory["x"].dtype == torch.float32
    exact, _ = VARIANT.apply_layer(form, layer, x)
    apart = (y.float() - exact).detach().abs().max()
    assert float(apart) < 0.02 * float(exact.detach().abs().max())
