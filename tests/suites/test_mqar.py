"""Keys are written before they are asked for, targets are what a dict says, gaps follow the power law, the model recalls."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy import stats
from torch import Tensor

from attnbench.harness.errors import BadParameter
from attnbench.harness.lab import Lab
from attnbench.harness.models import Shape, count_parameters
from attnbench.harness.seeds import generator
from attnbench.harness.spec import Case, Point
from attnbench.suites.mqar import SUITE, cross_entropy, measure, training_batch
from attnbench.suites.tasks.recall import Convolution, Recaller, Recalls, Sampler
from attnbench.variants import find

SMOKE = SUITE.scales["smoke"].points[0]


@some.composite
def samplers(draw: some.DrawFn) -> Sampler:
    pairs = draw(some.integers(1, 6))
    return Sampler(
        vocabulary=draw(some.integers(2 * pairs + 2, 40)),
        length=2 * draw(some.integers(2 * pairs, 2 * pairs + 8)),
        pairs=pairs,
        power=draw(some.sampled_from([0.01, 0.5, 1.0])),
        filler=draw(some.sampled_from(["blank", "random"])),
    )


@settings(deadline=None, max_examples=60)
@given(samplers(), some.integers(0, 1000))
def test_every_query_has_the_target_that_a_dict_of_what_was_written_gives(sampler: Sampler, seed: int) -> None:
    asked = sampler(generator("test", seed), 3)
    assert asked.tokens.shape == (3, sampler.length)
    written = 2 * sampler.pairs
    for tokens, places, targets in zip(
        asked.tokens.tolist(), asked.positions.tolist(), asked.targets.tolist(), strict=True
    ):
        memory = dict(zip(tokens[0:written:2], tokens[1:written:2], strict=True))
        assert [memory[tokens[place]] for place in places] == targets
        assert sorted(tokens[place] for place in places) == sorted(memory), "each key is asked for once"
        assert all(place >= written and place % 2 == 0 for place in places)
        assert len(set(places)) == sampler.pairs


@settings(deadline=None, max_examples=60)
@given(samplers(), some.integers(0, 1000))
def test_keys_and_values_have_halves_of_the_vocabulary_and_fillers_are_never_a_key(sampler: Sampler, seed: int) -> None:
    asked = sampler(generator("test", seed), 3)
    half, written = sampler.vocabulary // 2, 2 * sampler.pairs
    for tokens, places in zip(asked.tokens.tolist(), asked.positions.tolist(), strict=True):
        keys, values = set(tokens[0:written:2]), set(tokens[1:written:2])
        assert len(keys) == len(values) == sampler.pairs
        assert all(1 <= key < half for key in keys)
        assert all(half <= value < sampler.vocabulary for value in values)
        fillers = {token for place, token in enumerate(tokens) if place >= written and place not in places}
        assert not fillers & keys
        assert all(0 <= token < sampler.vocabulary for token in fillers)
        assert sampler.filler == "random" or fillers <= {0}


def gaps_of(asked: Recalls, sampler: Sampler) -> Tensor:
    return (asked.positions - 2 * sampler.pairs) // 2


def test_gaps_of_a_single_pair_follow_the_power_law() -> None:
    sampler = Sampler(vocabulary=64, length=66, pairs=1, power=0.01, filler="blank")
    gaps = gaps_of(sampler(generator("gaps"), 20_000), sampler)
    law = [(gap + 1) ** (0.01 - 1) for gap in range(32)]
    expected = [20_000 * one / sum(law) for one in law]
    observed = torch.bincount(gaps.flatten(), minlength=32).tolist()
    assert stats.chisquare(observed, expected).pvalue > 0.001


def test_a_second_gap_follows_the_law_of_those_that_are_left() -> None:
    # power 0: weights 1, 1/2, 1/3 for the gaps 0, 1, 2, so p = 6/11, 3/11, 2/11, and the second is j with the
    # probability of the sum over first ones i: p_i p_j / (1 - p_i)
    sampler = Sampler(vocabulary=16, length=10, pairs=2, power=0.0, filler="blank")
    gaps = gaps_of(sampler(generator("gaps"), 20_000), sampler)
    assert gaps.max() == 2
    p = (6 / 11, 3 / 11, 2 / 11)
    expected = [20_000 * p[i] * p[j] / (1 - p[i]) for i, j in itertools.permutations(range(3), 2)]
    observed = [int(((gaps[:, 0] == i) & (gaps[:, 1] == j)).sum()) for i, j in itertools.permutations(range(3), 2)]
    assert sum(observed) == 20_000
    assert stats.chisquare(observed, expected).pvalue > 0.001


def test_random_filler_is_any_token_but_the_keys_equally_often() -> None:
    sampler = Sampler(vocabulary=10, length=40, pairs=2, power=1.0, filler="random")
    asked = sampler(generator("filler"), 500)
    counts = torch.zeros(10)
    for tokens, places in zip(asked.tokens, asked.positions, strict=True):
        # seen from the keys: the n-th of the eight tokens that are no key of the sequence
        others = [token for token in range(10) if token not in tokens[0:4:2]]
        for place in set(range(4, 40)) - set(places.tolist()):
            counts[others.index(int(tokens[place]))] += 1
    assert counts.sum() == 500 * 34
    assert stats.chisquare(counts[:8].tolist()).pvalue > 0.001


def test_keys_and_values_are_drawn_equally_often() -> None:
    sampler = Sampler(vocabulary=12, length=16, pairs=2, power=1.0, filler="blank")
    asked = sampler(generator("symbols"), 5_000)
    assert stats.chisquare(torch.bincount(asked.tokens[:, 0:4:2].flatten())[1:].tolist()).pvalue > 0.001
    assert stats.chisquare(torch.bincount(asked.targets.flatten())[6:].tolist()).pvalue > 0.001


def test_the_same_seed_gives_the_same_sequences_and_another_one_others() -> None:
    sampler = Sampler(vocabulary=64, length=32, pairs=4, power=0.01, filler="random")
    first, again, other = (sampler(generator("data", seed), 4).tokens for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def lab_of(name: str, form: str, seed: int = 0, **changed: int | float | str) -> Lab:
    return Lab(Case("mqar", name, form, Point({**SMOKE, **changed}), seed, "smoke"), find(name))


def recorded(lab: Lab) -> dict[str, float]:
    return {one.metric: one.value for one in lab.measurements}


def read_by(monkeypatch: pytest.MonkeyPatch, lab: Lab) -> Tensor:
    """All tokens that the model of a case is shown."""
    seen: list[Tensor] = []
    answers = Recaller.answers

    def watched(self: Recaller, asked: Recalls, draws: list[Tensor | None]) -> Tensor:
        seen.append(asked.tokens)
        return answers(self, asked, draws)

    with monkeypatch.context() as patched:
        patched.setattr(Recaller, "answers", watched)
        measure(lab)
    return torch.cat(seen)


def test_all_variants_read_the_same_sequences_and_another_seed_gives_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = (("softmax", "sdpa"), ("delta", "chunkwise"), ("performer-m8", "chunkwise"))
    first, *others = (read_by(monkeypatch, lab_of(name, form, steps=4, target=2.0)) for name, form in cases)
    for other in others:
        assert torch.equal(first, other)
    assert not torch.equal(first, read_by(monkeypatch, lab_of("softmax", "sdpa", seed=1, steps=4, target=2.0)))


def test_a_training_set_is_gone_through_again_and_without_one_no_sequence_comes_twice() -> None:
    lab = lab_of("linear", "recurrent")
    sampler = Sampler(vocabulary=32, length=16, pairs=2, power=0.01, filler="random")
    # 20 examples in batches of 8: 8, 8 and 4, then the first again
    seen = [training_batch(lab, sampler, step, 8, 20).tokens for step in range(1, 5)]
    assert [len(batch) for batch in seen] == [8, 8, 4, 8]
    assert torch.equal(seen[0], seen[3])
    assert not torch.equal(seen[0], seen[1])
    fresh = torch.cat([training_batch(lab, sampler, step, 8, 0).tokens for step in range(1, 20)])
    assert len(fresh.unique(dim=0)) == len(fresh)


def recaller(name: str, first_layer: str) -> Recaller:
    shape = Shape(vocabulary=20, width=8, layers=2, heads=2, feed_forward=0)
    return Recaller(find(name), "recurrent", shape, first_layer, generator("init")).double()


@pytest.mark.parametrize("first_layer", ["convolution", "attention"])
@pytest.mark.parametrize("name", ["softmax", "linear", "delta", "gated"])
def test_a_later_token_does_not_change_earlier_states(name: str, first_layer: str) -> None:
    model = recaller(name, first_layer)
    tokens = torch.randint(20, (1, 9), generator=generator("tokens"))
    changed = tokens.clone()
    changed[0, 6] = (changed[0, 6] + 1) % 20
    draws: list[Tensor | None] = [None] * len(model.attentions)
    before, after = model(tokens, draws), model(changed, draws)
    torch.testing.assert_close(before[:, :6], after[:, :6], rtol=1e-9, atol=1e-10)
    assert not torch.allclose(before[:, 6:], after[:, 6:])


def test_the_convolution_sees_two_tokens_back_and_is_gated_by_this_one() -> None:
    layer = Convolution(1, generator("init"))
    with torch.no_grad():
        layer.kernel.copy_(torch.tensor([[[100.0, 10.0, 1.0]]]))  # two back, one back, this one
        layer.gate.fill_(2.0)
        layer.gate_bias.fill_(1.0)
    # x + (100 x_{t-2} + 10 x_{t-1} + x_t) (2 x_t + 1) at x = 1, 2, 3
    expected = [1 + 1 * 3, 2 + 12 * 5, 3 + 123 * 7]
    assert layer(torch.tensor([[[1.0], [2.0], [3.0]]])).flatten().tolist() == expected


def test_parameters_are_those_counted_by_hand() -> None:
    # embedding 20 x 8; attention: q k v 8 x 24, out 8 x 8; three norms of 2 x 8; convolution: 8 x 3 + 8, gate 8 x 8 + 8
    attention, around = 8 * 24 + 8 * 8, 20 * 8 + 3 * 2 * 8
    assert count_parameters(recaller("linear", "attention")) == around + 2 * attention
    assert count_parameters(recaller("linear", "convolution")) == around + attention + 8 * 3 + 8 + 8 * 8 + 8
    # beta: one row of 8 a head and layer
    assert count_parameters(recaller("delta", "attention")) == around + 2 * (attention + 8 * 2)


def test_variants_start_from_the_same_weights() -> None:
    linear, delta = (dict(recaller(name, "attention").named_parameters()) for name in ("linear", "delta"))
    assert set(linear) < set(delta)
    for name, weight in linear.items():
        assert torch.equal(weight, delta[name])


def test_only_the_answers_to_queries_enter_the_loss() -> None:
    model = recaller("linear", "convolution")
    asked = Sampler(vocabulary=20, length=12, pairs=2, power=0.01, filler="random")(generator("data"), 3)
    scores = model(asked.tokens, [None]) @ model.embedding.T
    expected = 0.0
    for row in range(3):
        for place, target in zip(asked.positions[row].tolist(), asked.targets[row].tolist(), strict=True):
            expected -= scores[row, place].log_softmax(0)[target].item() / 6
    assert cross_entropy(model.answers(asked, [None]), asked.targets).item() == pytest.approx(expected, rel=1e-9)


def test_a_case_records_its_metrics_and_its_learning_curves() -> None:
    lab = lab_of("delta", "chunkwise")
    measure(lab)
    found = recorded(lab)
    assert set(SUITE.metrics) <= set(found)
    # one layer, one head, a memory of 16 x 16
    assert found["state_floats"] == find("delta").state_floats(16, 16, 16) == 256
    curves = {curve.name: curve for curve in lab.curves}
    assert set(curves) == {"recall_accuracy", "evaluation_loss"}
    assert curves["recall_accuracy"].x == curves["evaluation_loss"].x == (10, 20)
    assert curves["recall_accuracy"].y[-1] == found["recall_accuracy"]
    assert curves["evaluation_loss"].y[-1] == found["recall_loss"]


def test_two_layers_of_attention_have_twice_the_memory() -> None:
    lab = lab_of("delta", "chunkwise", first_layer="attention", steps=1)
    measure(lab)
    assert recorded(lab)["state_floats"] == 2 * 256


def test_the_same_case_twice_gives_the_same_numbers() -> None:
    first, second = lab_of("performer-m8", "chunkwise"), lab_of("performer-m8", "chunkwise")
    measure(first)
    measure(second)
    assert first.curves == second.curves


def test_softmax_attention_learns_to_recall_and_stops_at_the_target() -> None:
    lab = lab_of("softmax", "sdpa", steps=600, evaluate_every=50, batch=32, learning_rate=0.02, target=0.9)
    measure(lab)
    found = recorded(lab)
    assert found["recall_accuracy"] >= 0.9
    assert found["training_steps"] < 600


def test_accuracy_is_the_fraction_of_right_answers_in_sequences_not_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def knowing(self: Recaller, asked: Recalls, draws: object) -> Tensor:
        """The right answer to the first query of a sequence, and token 0 to the second."""
        scores = torch.nn.functional.one_hot(asked.targets * torch.tensor([1, 0]), self.shape.vocabulary)
        return scores * 9.0 + 0 * self.embedding.sum()

    monkeypatch.setattr(Recaller, "answers", knowing)
    lab = lab_of("linear", "chunkwise", steps=1)
    measure(lab)
    assert recorded(lab)["recall_accuracy"] == 0.5


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (
            {"pairs": 5},
            "pairs are at least 1 and the length is even and at least 4 tokens a pair, here 4 x 5 = 20; "
            "got 5 pairs and a length of 16. Use 4 pairs or fewer, and an even length.",
        ),
        (
            {"length": 17},
            "pairs are at least 1 and the length is even and at least 4 tokens a pair, here 4 x 2 = 8; "
            "got 2 pairs and a length of 17. Use 4 pairs or fewer, and an even length.",
        ),
        (
            {"vocabulary": 5},
            "keys are half of the vocabulary without token 0, so 2 pairs need a vocabulary of at least 6; got 5.",
        ),
        ({"evaluation_examples": 0}, "evaluation_examples is at least 1; got 0."),
        ({"filler": "noise"}, "filler is one of blank, random; got 'noise'."),
        ({"first_layer": "mlp"}, "first_layer is one of convolution, attention; got 'mlp'."),
    ],
)
def test_settings_that_do_not_go_together_are_refused(changed: dict[str, int | str], says: str) -> None:
    with pytest.raises(BadParameter) as refused:
        SUITE.check(Point({**SMOKE, **changed}))
    assert str(refused.value) == says


def test_the_smallest_vocabulary_and_length_are_enough() -> None:
    SUITE.check(Point({**SMOKE, "pairs": 4, "vocabulary": 10}))
    asked = Sampler(vocabulary=10, length=16, pairs=4, power=0.01, filler="random")(generator("data"), 5)
    assert asked.tokens[:, 0:8:2].sort(1).values.tolist() == [[1, 2, 3, 4]] * 5
    assert asked.positions.sort(1).values.tolist() == [[8, 10, 12, 14]] * 5


def test_every_point_of_every_scale_is_possible() -> None:
    for grid in SUITE.scales.values():
        for point in grid.points:
            SUITE.check(point)
        for variant in map(find, grid.variants):
            for key_width in {point.integer("key_width") for point in grid.points}:
                variant.check(key_width)


def test_the_paper_scale_is_the_published_grid() -> None:
    points = SUITE.scales["paper"].points
    tasks = {(point["length"], point["pairs"]) for point in points}
    assert tasks == {(64, 4), (128, 8), (256, 16), (512, 64)}
    assert {point["key_width"] for point in points} == {64, 128, 256, 512}
    # np.logspace(-4, -2, 4)
    rates = sorted({point.number("learning_rate") for point in points})
    assert rates == pytest.approx([1e-4, 4.6416e-4, 2.1544e-3, 1e-2], rel=1e-4)
    assert len(points) == 4 * 4 * 4
    for point in points:
        assert (point["vocabulary"], point["examples"], point["evaluation_examples"]) == (8192, 100_000, 3000)
        # 64 times through the training set
        batches = -(-100_000 // point.integer("batch"))
        assert point["steps"] == 64 * batches
        assert point["evaluate_every"] == batches
