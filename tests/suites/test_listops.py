"""Padding is not seen, batches are of similar length, floors are counted by hand, and all variants read the same lists."""

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from attnbench.harness.errors import BadParameter
from attnbench.harness.lab import Lab
from attnbench.harness.models import Shape
from attnbench.harness.plan import preferred_form
from attnbench.harness.seeds import generator
from attnbench.harness.spec import Case, Point
from attnbench.suites import listops
from attnbench.suites.listops import (
    FLOORS,
    SUITE,
    Batch,
    Reader,
    accuracy,
    answered,
    batches_of_similar_length,
    counted,
    measure,
    warm_up_then_root,
)
from attnbench.suites.tasks.nested_lists import END, MAX, MIN, PADDING, VOCABULARY, Bounds, Sample, samples
from attnbench.variants import find

CPU = torch.device("cpu")
VARIANTS = ("softmax", "linear", "performer-m8", "dpfp-nu1", "delta", "delta+l2norm", "gated", "fwm", "fwp1991")
SMOKE = SUITE.scales["smoke"].points[0]


class Watcher(Reader):
    """A reader that keeps the batches it is trained on."""

    seen: list[Tensor]

    def forward(self, batch: Batch, draws: object = None) -> Tensor:
        if torch.is_grad_enabled():
            type(self).seen.append(torch.cat([batch.tokens.flatten(), batch.lengths, batch.values]))
        return super().forward(batch, draws)  # type: ignore[arg-type]


def reader(name: str) -> Reader:
    variant = find(name)
    form = preferred_form(SUITE, SMOKE, variant)
    return Reader(variant, form, Shape(VOCABULARY, 16, 2, 2, 16), generator("init"), generator("head"))


def draws_for(name: str) -> list[Tensor | None]:
    random = find(name).draws
    return [None if random is None else random.sample(generator("draws", layer), 2, 8) for layer in range(2)]


def lists(count: int, shortest: int = 4, longest: int = 30) -> list[Sample]:
    return samples(Bounds(shortest, longest), count, generator("lists"))


def smoke_lab(name: str, **changed: int) -> Lab:
    point = Point({**SMOKE, **changed})
    if name in SUITE.references:
        return Lab(Case("listops", name, "count", point, 0, "smoke"), None)
    variant = find(name)
    return Lab(Case("listops", name, preferred_form(SUITE, point, variant), point, 0, "smoke"), variant)


def recorded(lab: Lab) -> dict[str, float]:
    return {one.metric: one.value for one in lab.measurements}


def test_a_batch_is_padded_behind_the_ends_of_its_lists() -> None:
    batch = Batch.of([Sample((MAX, 1, 2, END), 2), Sample((MIN, 3, 4, 5, 6, END), 3)], CPU)
    assert batch.tokens.tolist() == [[MAX, 1, 2, END, PADDING, PADDING], [MIN, 3, 4, 5, 6, END]]
    assert batch.lengths.tolist() == [4, 6]
    assert batch.values.tolist() == [2, 3]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_list_has_the_same_scores_alone_and_beside_a_longer_one(name: str) -> None:
    model, draws = reader(name), draws_for(name)
    short, long = Sample((MAX, 1, 2, END), 2), max(lists(50), key=lambda one: len(one.tokens))
    together = model(Batch.of([short, long], CPU), draws)
    for row, one in enumerate((short, long)):
        torch.testing.assert_close(together[row], model(Batch.of([one], CPU), draws)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_what_the_padding_is_changes_no_score_and_no_gradient(name: str) -> None:
    draws = draws_for(name)
    batch = Batch.of([Sample((MAX, 1, 2, END), 2), Sample((MIN, *range(8), END), 0)], CPU)
    other = replace(batch, tokens=torch.where(batch.tokens == PADDING, MIN, batch.tokens))
    found = []
    for one in (batch, other):
        model = reader(name)
        scores = model(one, draws)
        scores.square().sum().backward()  # type: ignore[no-untyped-call]
        found.append((scores, model.decoder.words.weight.grad))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-4, atol=1e-5)
    assert found[0][1] is not None
    assert not found[0][1][PADDING].any()


def test_answers_come_in_the_order_of_the_lists_whatever_their_lengths() -> None:
    model, drawn = reader("linear"), lists(120)
    answers, loss = answered(model, drawn, [None, None], CPU)
    alone = [model(Batch.of([one], CPU))[0].detach() for one in drawn]
    assert answers == [int(scores.argmax()) for scores in alone]
    surprise = [-float(scores.log_softmax(0)[one.value]) for scores, one in zip(alone, drawn, strict=True)]
    assert loss == pytest.approx(sum(surprise) / 120, rel=1e-5)


@given(st.integers(1, 70), st.integers(1, 8))
def test_each_pass_has_every_list_once_but_for_those_that_fill_no_batch(count: int, batch: int) -> None:
    batch = min(batch, count)
    drawn = [Sample((MAX, number, END), 0) for number in range(count)]
    batches = batches_of_similar_length(drawn, batch, generator("order", count, batch))
    for _ in range(2):
        one_pass = [next(batches) for _ in range(count // batch)]
        assert {len(one) for one in one_pass} == {batch}
        seen = Counter(one.tokens for part in one_pass for one in part)
        assert set(seen.values()) == {1}


def test_lists_of_a_batch_are_of_similar_length_and_batches_come_mixed() -> None:
    drawn = lists(32 * 8, 10, 60)
    batches = batches_of_similar_length(drawn, 8, generator("order"))
    lengths = [[len(one.tokens) for one in next(batches)] for _ in range(32)]
    # one stretch: sorted by its shortest lists, the batches do not overlap, and they did not come like that
    ranges = sorted((min(one), max(one)) for one in lengths)
    assert all(before[1] <= after[0] for before, after in pairwise(ranges))
    assert lengths != sorted(lengths)
    again = batches_of_similar_length(drawn, 8, generator("order"))
    assert [[len(one.tokens) for one in next(again)] for _ in range(32)] == lengths


def test_floors_are_what_hand_counting_gives() -> None:
    training = [Sample((MAX, 9, 1, END), 9), Sample((MAX, 9, 2, END), 9), Sample((MAX, 3, 2, END), 3)]
    training += [Sample((MIN, 3, 4, END), 3), Sample((MIN, 3, 5, END), 3), Sample((MIN, 1, 5, END), 1)]
    test = [Sample((MAX, 9, 4, END), 9), Sample((MIN, 1, 4, END), 1), Sample((12, 3, 3, END), 3)]
    # 3 three times, 9 twice, 1 once; under MAX 9, under MIN 3, and an operator that never came has the majority
    assert counted(training, test, FLOORS["majority"]) == [3, 3, 3]
    assert counted(training, test, FLOORS["first_operator"]) == [9, 3, 3]
    assert accuracy([9, 3, 3], test) == pytest.approx(2 / 3)
    # of two values as frequent the smaller
    assert counted(training[:1] + training[2:3], test[:1], FLOORS["majority"]) == [3]


def test_the_first_operator_is_the_harder_floor() -> None:
    floors = {}
    for name in SUITE.references:
        lab = smoke_lab(name, training_lists=2000, evaluation_lists=500)
        measure(lab)
        floors[name] = recorded(lab)["classification_accuracy"]
        assert [curve.name for curve in lab.curves] == ["accuracy_by_depth"]
    assert 0.1 < floors["majority"] < floors["first_operator"] < 0.5


def test_training_validation_and_test_lists_are_all_different(monkeypatch: pytest.MonkeyPatch) -> None:
    given_lists: list[list[Sample]] = []
    monkeypatch.setattr(listops, "_measure_model", lambda lab, *parts: given_lists.extend(parts))
    measure(smoke_lab("linear"))
    assert [len(part) for part in given_lists] == [64, 32, 32]
    assert len({one.tokens for part in given_lists for one in part}) == 128


def test_a_model_records_what_the_suite_declares() -> None:
    lab = smoke_lab("delta")
    measure(lab)
    found = recorded(lab)
    assert set(SUITE.metrics) <= set(found)
    assert 0 <= found["classification_accuracy"] <= 1
    # a model that has learned nothing yet spreads about ln 10 nats
    assert found["classification_loss"] == pytest.approx(math.log(10), abs=1)
    # K = V = 8, two heads, one layer
    assert found["state_floats"] == 2 * 8 * 8
    curves = {curve.name: curve for curve in lab.curves}
    assert set(curves) == {"evaluation_loss", "evaluation_accuracy", "training_loss", "accuracy_by_depth"}
    assert all(curves[name].x == (5, 10) for name in ("evaluation_loss", "evaluation_accuracy", "training_loss"))
    assert curves["accuracy_by_depth"].x[0] == 1


def test_all_variants_read_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listops, "Reader", Watcher)
    batches = []
    for name in ("softmax", "delta", "performer-m8"):
        Watcher.seen = []
        measure(smoke_lab(name))
        batches.append(torch.cat(Watcher.seen))
        assert len(Watcher.seen) == 10
    assert torch.equal(batches[0], batches[1])
    assert torch.equal(batches[0], batches[2])


def test_the_head_starts_alike_for_variants_that_draw_more() -> None:
    assert torch.equal(reader("linear").head, reader("delta").head)


def test_the_same_case_twice_gives_the_same_numbers() -> None:
    found = []
    for _ in range(2):
        lab = smoke_lab("linear")
        measure(lab)
        found.append((recorded(lab)["classification_loss"], lab.curves))
    assert found[0] == found[1]


def test_training_gets_above_the_floor_of_short_lists() -> None:
    # one operator and two to six digits, or two operators and three or four
    point = {"shortest": 4, "longest": 8, "training_lists": 1000, "evaluation_lists": 100}
    lab = smoke_lab("linear", **point, width=32, key_width=16, steps=120, evaluate_every=120, batch=32)
    floor = smoke_lab("first_operator", **point)
    measure(lab)
    measure(floor)
    assert recorded(lab)["classification_accuracy"] > recorded(floor)["classification_accuracy"]


def test_the_learning_rate_rises_to_one_and_falls_with_the_root_of_the_step() -> None:
    assert warm_up_then_root(1, 100) == pytest.approx(0.01)
    assert warm_up_then_root(100, 100) == 1
    assert warm_up_then_root(400, 100) == pytest.approx(0.5)


def test_the_paper_scale_has_the_published_rate_at_every_step() -> None:
    (point,) = SUITE.scales["paper"].points
    for step in (1, 1000, 5000):
        # 0.05 x min(1, step / 1000) / sqrt(max(step, 1000))
        published = 0.05 * min(1, step / 1000) / math.sqrt(max(step, 1000))
        ours = point.number("learning_rate") * warm_up_then_root(step, point.integer("warm_up"))
        assert ours == pytest.approx(published, rel=1e-4)


def test_the_points_of_every_scale_go_together() -> None:
    for grid in SUITE.scales.values():
        for point in grid.points:
            SUITE.check(point)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"heads": 4}, "width is heads times key_width, here 4 x 8 = 32, got 16."),
        ({"batch": 65}, "a batch of 65 needs as many training lists, got 64."),
        ({"shortest": 3}, "the shortest list is 4 tokens, as [MAX 1 2 ]; got 3."),
        ({"longest": 5}, "the longest list has at least as many tokens as the shortest, 6; got 5."),
        (
            {"shortest": 4, "longest": 4, "training_lists": 137},
            "there is room for 200 different lists of 4 to 4 tokens, got 201 samples. Allow longer lists.",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(changed: dict[str, int], says: str) -> None:
    with pytest.raises(BadParameter) as refused:
        SUITE.check(Point({**SMOKE, **changed}))
    assert str(refused.value) == says
