"""The encoder-decoder: one step at a time equals the whole text, the encoder sees both ways, the big model has its parameters."""

from dataclasses import replace

import pytest
import torch

from attnbench.harness import seeds
from attnbench.harness.models import Mechanisms, Translator, TranslatorDraws, TranslatorShape, count_parameters
from attnbench.variants import find
from attnbench.variants.errors import Unsupported
from attnbench.variants.registry import listed

FORMS = ("sdpa", "chunkwise", "gram", "parallel")
# a layer of its own reads causally only
BOTH_WAYS = [name for name in listed() if find(name).read is not None]
SHAPE = TranslatorShape(60, 16, 2, 2, 32)


def model_of(name, *, encoder=None, cross=None, shape=SHAPE, dtype=torch.float64):
    """A translator of a variant, its draws, and three sources and targets."""
    variant = find(name)
    form = next(form for form in FORMS if form in variant.forms)
    mechanisms = Mechanisms(variant, form, find(encoder or name), find(cross or name))

    def draws(place, of):
        return [
            of.draws and of.draws.sample(seeds.generator("test", place, layer), shape.heads, shape.head_width)
            for layer in range(shape.layers)
        ]

    model = Translator(mechanisms, shape, seeds.generator("test")).to(dtype)
    found = TranslatorDraws(
        draws("encoder", mechanisms.encoder), draws("decoder", variant), draws("cross", mechanisms.cross)
    )
    words = seeds.generator("test", "words")
    source = torch.randint(shape.vocabulary, (3, 7), generator=words)
    target = torch.randint(shape.vocabulary, (3, 70), generator=words)
    return model, found, source, target


def stepped(model, draws, source, target):
    """The hidden states of a text that is read token by token."""
    remembered, memories, states = model.remember(source, draws), None, []
    for place in range(target.shape[1]):
        state, memories = model.read_on(target[:, place : place + 1], remembered, draws, memories, place, "step")
        states.append(state)
    return torch.cat(states, dim=1)


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_one_step_at_a_time_gives_what_teacher_forcing_gives(name):
    model, draws, source, target = model_of(name)
    whole, _ = model.read_on(target, model.remember(source, draws), draws)
    torch.testing.assert_close(stepped(model, draws, source, target), whole, rtol=1e-7, atol=1e-7)


def test_a_decoder_that_is_a_whole_layer_steps_too_beside_softmax():
    model, draws, source, target = model_of("xl", encoder="softmax", cross="softmax")
    whole, _ = model.read_on(target, model.remember(source, draws), draws)
    torch.testing.assert_close(stepped(model, draws, source, target), whole, rtol=1e-7, atol=1e-7)


def test_a_variant_that_cannot_read_without_writing_is_refused_as_an_encoder():
    with pytest.raises(Unsupported, match="xl has no way to write a whole text and then read it"):
        model_of("xl", cross="softmax")


@pytest.mark.parametrize("name", ["softmax", "linear", "delta", "dpfp-nu1", "performer-m16"])
def test_the_encoder_sees_what_comes_later_and_the_decoder_does_not(name):
    model, draws, source, target = model_of(name)
    before, _ = model.read_on(target, model.remember(source, draws), draws)
    other = source.clone()
    other[:, -1] = (other[:, -1] + 1) % 60
    moved, _ = model.read_on(target, model.remember(other, draws), draws)
    # the very first target token reads the last source token
    assert (moved[:, 0] - before[:, 0]).abs().max() > 1e-6
    later = target.clone()
    later[:, 40] = (later[:, 40] + 1) % 60
    changed, _ = model.read_on(later, model.remember(source, draws), draws)
    torch.testing.assert_close(changed[:, :40], before[:, :40])
    assert (changed[:, 40:] - before[:, 40:]).abs().max() > 1e-6


def test_the_delta_rule_of_an_encoder_writes_in_order_and_every_token_reads_the_last_memory():
    model, _, source, _ = model_of("delta")
    attention = model.encoder[0].attention
    x = model.words.embed(source)
    heads = (3, 7, 2, 8)
    k, v = (part.reshape(heads) for part in (x @ attention.into).chunk(2, dim=-1))
    q, beta = (x @ attention.ask).reshape(heads), torch.sigmoid(x @ attention.strength)
    # the weights that each query puts on the written values, asked after the last write
    weights = find("delta").readout(q, k, beta)
    expected = torch.einsum("b n h t, b t h v -> b n h v", weights, v).reshape(3, 7, 16) @ attention.out
    torch.testing.assert_close(attention.read(x, attention.write(x, None), None), expected)
    # another order of the same tokens leaves another memory, which the sum rule does not
    turned = attention.write(x.flip(1), None)["S"]
    assert (turned - attention.write(x, None)["S"]).abs().max() > 1e-3
    summing = model_of("linear")[0].encoder[0].attention
    torch.testing.assert_close(summing.write(x.flip(1), None)["S"], summing.write(x, None)["S"])


def test_a_memory_of_one_source_serves_several_hypotheses_side_by_side():
    model, draws, source, target = model_of("linear")
    remembered = model.remember(source, draws)
    thrice = [{name: one.repeat_interleave(3, 0) for name, one in memory.items()} for memory in remembered]
    rows = target[:, :5].repeat_interleave(3, 0)
    rows[1::3] = (rows[1::3] + 1) % 60
    torch.testing.assert_close(model.read_on(rows, remembered, draws)[0], model.read_on(rows, thrice, draws)[0])


def test_the_memory_of_a_linear_variant_has_one_size_and_that_of_softmax_grows():
    for name, grows in (("delta", False), ("linear", False), ("softmax", True)):
        model, draws, source, target = model_of(name)
        remembered = model.remember(source, draws)
        sizes = [
            sum(
                one.numel()
                for memory in model.read_on(target[:, :tokens], remembered, draws)[1]
                for one in memory.values()
            )
            for tokens in (10, 20)
        ]
        assert sizes[1] == sizes[0] * (2 if grows else 1)


def test_smoothed_labels_are_any_word_for_a_share_of_the_time():
    model, draws, source, target = model_of("linear")
    given, follows = target[:, :-1], target[:, 1:]
    hidden, _ = model.read_on(given, model.remember(source, draws), draws)
    every = -model.words.log_probabilities(hidden)
    right = every.gather(-1, follows.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(model.nll(source, given, follows, draws), right)
    torch.testing.assert_close(model.nll(source, given, follows, draws, 0.1), 0.9 * right + 0.1 * every.mean(-1))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_what_every_variant_has_starts_alike(norm):
    shape = replace(SHAPE, norm=norm)
    softmax, delta = (dict(model_of(name, shape=shape)[0].named_parameters()) for name in ("softmax", "delta"))
    assert all((delta[name] == one).all() for name, one in softmax.items())
    assert all(name.endswith("strength") for name in delta.keys() - softmax.keys())


def test_transformer_big_has_its_parameters(monkeypatch):
    # width D = 1024, inner F = 4096, 6 + 6 layers, one matrix of 32,768 words; attention has no biases
    D, F, words = 1024, 4096, 32_768
    attention, feed_forward, norm = 4 * D * D, 2 * D * F + F + D, 2 * D
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    expected = words * D + 6 * (encoder + decoder)
    assert expected == 209_838_080
    shape = TranslatorShape(words, D, 6, 16, F, norm="post", activation="relu")
    softmax = find("softmax")
    # nothing is drawn on the meta device, so the CPU's generator is let be
    monkeypatch.setattr(torch, "randn", lambda *sizes, generator: torch.empty(*sizes, device="meta"))
    with torch.device("meta"):
        model = Translator(Mechanisms(softmax, "sdpa", softmax, softmax), shape, torch.Generator())
    assert all(one.is_meta for one in model.parameters())
    assert count_parameters(model) == expected
