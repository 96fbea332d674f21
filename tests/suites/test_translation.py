"""Translation from the data to the rows: updates, the search, scores that can be counted again, and what it costs."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from attnbench.harness import bleu as counted
from attnbench.harness.costs import counted_flops
from attnbench.harness.data.tokenisers import END_OF_LINE
from attnbench.harness.errors import BadParameter
from attnbench.harness.lab import Lab
from attnbench.harness.models import Translator, count_parameters
from attnbench.harness.spec import Case, Point
from attnbench.harness.training import train
from attnbench.suites import translation
from attnbench.suites.tasks.translation import points, recording, scores, training
from attnbench.suites.tasks.translation.batches import Updates, batch_of, cut, padded_tokens
from attnbench.suites.tasks.translation.decoding import longest_translation, translate
from attnbench.suites.tasks.translation.training import draws_of, loss_of, mechanisms_of, train_model
from attnbench.suites.tasks.translation.training import warm_up_then_inverse_root as rate
from attnbench.variants import find

SUITE = translation.SUITE
FORM = {"softmax": "sdpa"}


def smoke_lab(name, scale="smoke", cache=None, **changed):
    point = Point({**SUITE.scales[scale].points_of(name)[0], **changed})
    case = Case(SUITE.name, name, FORM.get(name, "chunkwise"), point, 0, scale)
    return Lab(case, find(name), cache=cache, evaluation=SUITE.evaluation)


@pytest.fixture(scope="module")
def text():
    return recording.text_of(smoke_lab("linear"))


def model_of(lab):
    point = lab.training_point
    mechanisms = mechanisms_of(point, lab.mechanism(), lab.case.form)
    return Translator(mechanisms, points.shape_of(point), lab.generator("init"))


@pytest.fixture(scope="module")
def recorded():
    lab = smoke_lab("delta", choose="bleu")
    translation.measure(lab)
    return lab


def of(lab):
    return {one.metric: one.value for one in lab.measurements}


def kept(lab, name):
    return next(one.text for one in lab.artefacts if one.name == name)


def test_the_scores_of_the_stored_translations_are_the_stored_scores(recorded, text):
    hypotheses = kept(recorded, counted.HYPOTHESES).split("\n")
    references = text.test.references[:16]
    found = of(recorded)
    assert found["test_pairs"] == len(hypotheses) == 16
    for name in ("bleu", "chrf", "compound_split_bleu"):
        assert found[name] == getattr(scores, name)(hypotheses, references).value
        assert (
            json.loads(kept(recorded, counted.SIGNATURES))[name]
            == getattr(scores, name)(hypotheses, references).signature
        )
    statistics = counted.from_json(kept(recorded, counted.STATISTICS))
    assert (statistics == scores.bleu_statistics(hypotheses, references)).all()
    assert counted.bleu_of(statistics) == pytest.approx(found["bleu"])
    (samples,) = (one.samples for one in recorded.measurements if one.metric == "bleu")
    assert samples == counted.interval(statistics)


def test_samples_have_their_source_and_reference(recorded, text):
    for one in json.loads(kept(recorded, counted.SAMPLES)):
        number = text.test.sources.index(one["source"])
        assert one["reference"] == text.test.references[number]
        assert one["translation"] == kept(recorded, counted.HYPOTHESES).split("\n")[number]


def test_every_metric_of_the_suite_is_recorded_and_the_curves_of_training(recorded):
    assert {one.metric for one in recorded.measurements} >= set(SUITE.metrics)
    curves = {curve.name: curve for curve in recorded.curves}
    assert curves["validation_loss"].x == curves["validation_bleu"].x == (3, 6)
    assert of(recorded)["validation_nats"] == min(curves["validation_loss"].y)
    # the memory of the delta rule is as large after one token as after all
    assert set(curves["hypothesis_state_bytes"].y) == {of(recorded)["hypothesis_state_bytes"]}


def test_all_variants_read_the_same_batches_and_start_alike():
    one, other = smoke_lab("softmax"), smoke_lab("delta")
    assert one.seed("data", "pairs", 0) == other.seed("data", "pairs", 0)
    assert one.seed("init") == other.seed("init")


def test_the_beam_changes_only_what_is_searched_for():
    assert smoke_lab("linear", beam=1).seed("init") == smoke_lab("linear", beam=2).seed("init")


# batches and updates


def updates_of(text, *, at_once=256, per_update=512, longest=100):
    def order(what, epoch, count):
        return np.random.default_rng([epoch, len(what)]).permutation(count)

    return Updates(text.train, at_once, per_update, longest, order)


def test_a_batch_has_sources_of_one_length_and_no_more_tokens_than_it_may(text):
    batches = cut(text.train, np.arange(len(text.train)), 256)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(text.train)))
    for numbers in batches:
        assert len(set(text.train.source.lengths[numbers])) == 1
        assert padded_tokens(text.train, numbers) <= 256 or len(numbers) == 1


def test_an_update_holds_what_it_may_and_an_epoch_every_pair_at_most_once(text):
    updates = updates_of(text)
    first = [updates.at(step) for step in range(1, 400)]
    assert updates.at(1) is not first[0]
    assert [one.tolist() for one in updates.at(1)] == [one.tolist() for one in first[0]]
    epoch = updates._before[1]
    seen = np.concatenate([numbers for update in first[: min(epoch, 399)] for numbers in update])
    assert len(set(seen.tolist())) == len(seen)
    sizes = [sum(padded_tokens(text.train, numbers) for numbers in update) for update in first]
    assert max(sizes) <= 512
    assert np.mean(sizes) > 400


def test_what_an_update_reads_hangs_on_the_step_alone(text):
    late = updates_of(text, per_update=60_000)
    again = updates_of(text, per_update=60_000)
    wanted = [[one.tolist() for one in late.at(step)] for step in range(1, 12)]
    assert [one.tolist() for one in again.at(11)] == wanted[10]
    assert [one.tolist() for one in again.at(2)] == wanted[1]
    assert late._before[2] < 11


def test_long_pairs_are_not_read_and_none_short_enough_is_an_error(text):
    updates = updates_of(text, longest=20)
    assert max(text.train.source.lengths[one].max() for step in range(1, 30) for one in updates.at(step)) <= 20
    with pytest.raises(BadParameter, match="no training pair has at most 2 tokens a side"):
        updates_of(text, longest=2)


def test_targets_begin_with_an_end_and_what_fills_them_up_does_not_count(text):
    numbers = max(cut(text.train, np.arange(len(text.train)), 512), key=len)
    batch = batch_of(text.train, numbers, torch.device("cpu"))
    assert (batch.target[:, 0] == END_OF_LINE).all()
    assert (batch.target[:, 1:] == batch.follows[:, :-1]).all()
    for row, number in enumerate(numbers.tolist()):
        line = text.train.target.line(number).tolist()
        assert batch.follows[row][batch.counts[row]].tolist() == line
    assert batch.tokens == text.train.target.lengths[numbers].sum()


@pytest.mark.parametrize("name", ["softmax", "delta"])
def test_a_pair_costs_the_same_whatever_stands_beside_it(name, text):
    lab = smoke_lab(name)
    model, draws = model_of(lab).double().eval(), draws_of(lab, "evaluation")
    numbers = max(cut(text.train, np.arange(len(text.train)), 512), key=len)[:8]
    together = batch_of(text.train, numbers, torch.device("cpu"))
    nats = (model.nll(together.source, together.target, together.follows, draws) * together.counts).sum(1)
    for row, number in enumerate(numbers):
        alone = batch_of(text.train, np.array([number]), torch.device("cpu"))
        torch.testing.assert_close(model.nll(alone.source, alone.target, alone.follows, draws).sum(), nats[row])


# training


def test_the_rate_rises_to_one_and_falls_with_the_root_of_the_step():
    assert [rate(step, 4) for step in (1, 4, 16, 64)] == [0.25, 1, 0.5, 0.25]


def test_parts_of_an_update_give_the_gradient_of_the_whole(text, monkeypatch):
    seen = {}

    def once(losses_of_step, evaluate, optimiser, stopping, **how):
        for part in losses_of_step(1):
            part.backward()
        seen[stopping] = [one.grad.clone() for group in optimiser.param_groups for one in group["params"]]
        return train(losses_of_step, evaluate, optimiser, replace(stopping, max_steps=1, evaluate_every=1))

    monkeypatch.setattr(training, "train", once)
    lab = smoke_lab("linear", smoothing=0.0)
    train_model(lab, text)
    model, draws = model_of(lab), draws_of(lab, "training", 1)
    order = torch.randperm(len(text.train), generator=lab.generator("data", "pairs", 0)).numpy()
    assert len(order) == len(text.train)
    updates = Updates(
        text.train,
        256,
        512,
        100,
        lambda what, epoch, n: torch.randperm(n, generator=lab.generator("data", what, epoch)).numpy(),
    )
    batches = updates.at(1)
    assert len(batches) > 1
    nats = tokens = 0
    for numbers in batches:
        batch = batch_of(text.train, numbers, torch.device("cpu"))
        nats = nats + (model.nll(batch.source, batch.target, batch.follows, draws) * batch.counts).sum()
        tokens += batch.tokens
    (nats / tokens).backward()
    (found,) = seen.values()
    for one, right in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(one, right.grad, rtol=1e-4, atol=1e-6)


def test_the_best_weights_are_kept_unless_the_last_are_averaged(text):
    lab = smoke_lab("linear", steps=6, evaluate_every=2, learning_rate=0.5, warm_up=1)
    found = train_model(lab, text)
    # so large a rate makes it worse after some time; what is kept is as good as the best
    kept_loss = loss_of(found.model, text.validation, found.draws, 256)
    assert kept_loss == pytest.approx(min(loss for _, loss in found.losses), rel=1e-5)
    averaged = train_model(smoke_lab("linear", steps=6, evaluate_every=2, average=3), text)
    last = train_model(smoke_lab("linear", steps=6, evaluate_every=2, average=2), text)
    assert any(
        (one != other).any() for one, other in zip(averaged.model.parameters(), last.model.parameters(), strict=True)
    )


def test_an_average_is_the_mean_of_the_weights_at_the_last_evaluations(text, monkeypatch):
    states = []

    def watched(model, *rest):
        states.append({name: one.clone() for name, one in model.state_dict().items()})
        return loss_of(model, *rest)

    monkeypatch.setattr(training, "loss_of", watched)
    found = train_model(smoke_lab("linear", steps=6, evaluate_every=2, average=2), text)
    assert len(states) == 3
    for name, one in found.model.state_dict().items():
        torch.testing.assert_close(one, (states[1][name] + states[2][name]) / 2)


def test_patience_ends_a_training_that_gets_no_better(text):
    lab = smoke_lab("linear", steps=40, evaluate_every=1, patience=2, learning_rate=1.0, warm_up=1)
    found = train_model(lab, text)
    assert found.training.ending == "patience"
    assert found.training.steps < 40


# decoding


@pytest.mark.parametrize("name", ["softmax", "linear", "delta"])
def test_beam_one_is_greedy_and_stands_alone_what_it_is_in_a_batch(name, text):
    lab = smoke_lab(name)
    model, draws = model_of(lab).eval(), draws_of(lab, "evaluation")
    numbers = [0, 3, 5, 8]
    found = translate(model, text.test.source, draws, numbers=numbers)
    for number, hypothesis in zip(numbers, found.hypotheses, strict=True):
        source = torch.from_numpy(text.test.source.line(number).astype(np.int64)).unsqueeze(0)
        tokens = [END_OF_LINE]
        with torch.no_grad():
            while len(tokens) <= longest_translation(source.shape[1]):
                # teacher forcing on what was chosen so far
                hidden, _ = model.read_on(torch.tensor([tokens]), model.remember(source, draws), draws)
                tokens.append(int(model.words.log_probabilities(hidden[0, -1]).argmax()))
                if tokens[-1] == END_OF_LINE:
                    break
        assert (
            hypothesis.tokens
            == tuple(one for one in tokens[1:] if one != END_OF_LINE)[: longest_translation(source.shape[1])]
        )


def test_a_beam_finds_texts_that_are_at_least_as_likely_as_greedy_ones(text):
    lab = smoke_lab("linear")
    model, draws = model_of(lab), draws_of(lab, "evaluation")
    greedy, wide = (
        translate(model, text.test.source, draws, beam=beam, penalty=0.0, numbers=range(12)) for beam in (1, 8)
    )
    better = [
        two.log_probability >= one.log_probability - 1e-5
        for one, two in zip(greedy.hypotheses, wide.hypotheses, strict=True)
    ]
    assert sum(better) >= 11


def test_decoding_leaves_a_model_in_training_as_it_was(text):
    lab = smoke_lab("linear", dropout=0.5)
    model, draws = model_of(lab).train(), draws_of(lab, "evaluation")
    assert (
        translate(model, text.test.source, draws, numbers=[0]).hypotheses
        == translate(model, text.test.source, draws, numbers=[0]).hypotheses
    )
    assert model.training


# points and costs


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"data": "web-bible"}, "needs a text in two languages, and 'web-bible' is in one"),
        ({"encoder": "linear"}, "no encoder 'linear'"),
        ({"cross": "delta"}, "no cross 'delta'"),
        ({"choose": "luck"}, "no choose 'luck'"),
        ({"width": 48}, "width is heads times key_width, here 2 x 16 = 32, got 48"),
        ({"vocabulary": 100}, "so at least 300; got 100"),
        ({"smoothing": 1.0}, "smoothing is a share from 0 to below 1"),
        ({"beta2": 1.0}, "beta2 is a number between 0 and 1"),
        ({"longest": 300}, "tokens_at_once has room for one pair of the longest, here 300 tokens a side; got 256"),
        ({"tokens_per_update": 128}, "at least the tokens of one pass, here 256; got tokens_per_update=128"),
        ({"warm_up": 9}, "warm_up is at most the 6 steps, got 9"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(changed, words):
    with pytest.raises(BadParameter, match=words):
        SUITE.check(Point({**points.tiny(), **changed}))


@pytest.mark.parametrize("scale", SUITE.scales)
def test_every_point_of_the_suite_can_be_asked(scale):
    for point in SUITE.scales[scale].points:
        SUITE.check(point)


def test_a_language_model_does_not_read_pairs():
    from attnbench.suites.tasks.language import points as of_language

    with pytest.raises(BadParameter, match="'bible-en-de' holds pairs in two"):
        of_language.check(of_language.tiny(data="bible-en-de"))


def test_places_of_attention_are_the_variants_or_softmax():
    lab = smoke_lab("delta", encoder="softmax", cross="same")
    model = model_of(lab)
    assert model.encoder[0].attention.variant.name == "softmax"
    assert model.decoder[0].attention.variant.name == "delta"
    assert model.decoder[0].cross.variant.name == "delta"


def test_a_step_costs_what_torch_counts_in_a_real_one(text):
    lab = smoke_lab("delta", layers=3)
    cost = translation.cost(lab)
    model, draws = model_of(lab), draws_of(lab, "training", 1)
    # as many pairs of the mean length as an update holds
    longer = np.maximum(text.train.source.lengths, text.train.target.lengths)
    length = round(longer.mean())
    words = torch.randint(400, (512 // length, length))
    step = counted_flops(lambda: model.nll(words, words, words, draws, 0.1).mean().backward())
    assert cost.flops == 6 * step
    assert cost.parameters == count_parameters(model)
    assert cost.tokens == 6 * words.numel()
    # the test text by a beam of 2, and the validation text after steps 3 and 6
    assert cost.evaluation_tokens == (2 * 16 + 2 * len(text.validation)) * length


def test_the_paper_scale_is_costed_without_its_text(tmp_path):
    cost = translation.cost(smoke_lab("linear", "paper", tmp_path))
    assert cost.parameters == 209_838_080
    # 33 tokens a pair stand for those of WMT
    assert cost.tokens == 39_000 * (172_032 // 33) * 33
    assert cost.evaluation_tokens > 0
    # weights, gradients and moments alone are 3.4 GB
    assert 3.4e9 < cost.training_bytes < 40e9


@dataclass(frozen=True)
class Rank:
    """One of several processes, as far as the parts of an update hang on it."""

    rank: int
    count: int


def test_several_processes_share_the_passes_of_an_update_and_their_mean_is_the_whole(text, monkeypatch):
    sums = {}

    def first_step(losses_of_step, *rest, processes, **how):
        parts = [float(part.detach()) for part in losses_of_step(1)]
        sums[processes] = (sum(parts), len(parts))
        raise StopIteration

    monkeypatch.setattr(training, "train", first_step)
    for who in (Rank(0, 1), Rank(0, 2), Rank(1, 2)):
        with pytest.raises(StopIteration):
            train_model(replace(smoke_lab("linear"), processes=who), text)
    (alone, passes), (one, some), (other, rest) = sums.values()
    assert (one + other) / 2 == pytest.approx(alone)
    assert some + rest == passes > 1
