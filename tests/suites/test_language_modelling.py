"""Floors stand beside models, all variants read the same batches, and what is recorded agrees with itself."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from attnbench.harness import seeds
from attnbench.harness.lab import Lab
from attnbench.harness.models import Decoder, Memories
from attnbench.harness.spec import Case, Point, Setting
from attnbench.suites import language_modelling, unbounded_context
from attnbench.suites.tasks.language import training
from attnbench.suites.tasks.language.recording import text_of
from attnbench.suites.tasks.language.training import warm_up_then_cosine
from attnbench.variants import find

LIMITED, CARRIED = language_modelling.SUITE, unbounded_context.SUITE
MODULES = {LIMITED.name: language_modelling, CARRIED.name: unbounded_context}


class Watcher(Decoder):
    """A decoder that keeps the batches it is trained on, and whether it was handed a memory."""

    seen: list[Tensor]
    had_memory: list[bool]

    def nll(
        self,
        tokens: Tensor,
        targets: Tensor,
        memories: Memories | None = None,
        draws: Sequence[Tensor | None] | None = None,
    ) -> tuple[Tensor, list[object]]:
        if self.training:
            type(self).seen.append(tokens)
            type(self).had_memory.append(memories is not None)
        return super().nll(tokens, targets, memories, draws)  # type: ignore[return-value]


def smoke_lab(name: str, form: str, suite: str = LIMITED.name, **changed: Setting) -> Lab:
    declared = MODULES[suite].SUITE
    point = Point({**declared.scales["smoke"].points_of(name)[0], **changed})
    return Lab(
        Case(suite, name, form, point, 0, "smoke"),
        None if form == "count" else find(name),
        evaluation=declared.evaluation,
    )


class SameParts(Lab):
    """A lab whose random parts do not hang on the point."""

    def generator(self, *parts: seeds.Part) -> torch.Generator:
        return seeds.generator("the same", *parts)


def with_same_parts(lab: Lab) -> Lab:
    return SameParts(lab.case, lab.variant, evaluation=lab.evaluation)


def measured(lab: Lab) -> dict[str, float]:
    MODULES[lab.case.suite].measure(lab)
    return {one.metric: one.value for one in lab.measurements}


@pytest.mark.parametrize(
    ("suite", "name", "form"),
    [
        (LIMITED.name, "delta", "chunkwise"),
        (LIMITED.name, "xl", "parallel"),
        (CARRIED.name, "linear", "chunkwise"),
        (CARRIED.name, "xl", "parallel"),
    ],
)
def test_a_model_records_perplexities_that_agree_with_one_another(suite: str, name: str, form: str) -> None:
    lab = smoke_lab(name, form, suite)
    found = measured(lab)
    assert set(MODULES[suite].SUITE.metrics) <= set(found)
    assert 1 < found["token_perplexity"] < 1000
    assert math.log(found["word_perplexity"]) > math.log(found["token_perplexity"])
    curves = {curve.name: curve for curve in lab.curves}
    assert curves["training_loss"].x[0] == 1
    assert curves["perplexity_by_position"].x[0] == 1
    assert curves["perplexity_by_position"].x[-1] == 32
    assert ("carried_loss" in curves) is (suite == CARRIED.name)


def test_sizes_of_the_memory_are_those_counted_by_hand() -> None:
    # one layer of two heads, 16 wide, context and memory of 32 tokens: S and z of linear, S of delta, keys and values
    for name, form, suite, looked_at, carried in (
        ("linear", "chunkwise", LIMITED.name, 2 * (16 * 16 + 16), 2 * (16 * 16 + 16)),
        ("delta", "chunkwise", CARRIED.name, 2 * 16 * 16, 2 * 16 * 16),
        ("softmax", "sdpa", LIMITED.name, 2 * 32 * 32, 2 * 32 * 32),
        # hidden states are carried, keys and values of memory and segment looked at
        ("xl", "parallel", CARRIED.name, 2 * 32 * 64, 32 * 32),
    ):
        found = measured(smoke_lab(name, form, suite))
        assert (found["state_floats"], found["carried_floats"]) == (looked_at, carried)


@pytest.mark.parametrize("suite", [LIMITED.name, CARRIED.name])
def test_the_floors_are_rows_of_the_same_text_and_the_bigram_is_the_harder_one(suite: str) -> None:
    floors = {name: measured(smoke_lab(name, "count", suite)) for name in MODULES[suite].SUITE.references}
    for metric in ("word_perplexity", "validation_word_perplexity"):
        assert 1 < floors["bigram"][metric] < floors["unigram"][metric]


@pytest.mark.parametrize("suite", [LIMITED.name, CARRIED.name])
def test_all_variants_read_the_same_batches(monkeypatch: pytest.MonkeyPatch, suite: str) -> None:
    monkeypatch.setattr(training, "Decoder", Watcher)
    batches = []
    for name, form in (("linear", "chunkwise"), ("delta", "chunkwise"), ("performer-m8", "chunkwise")):
        Watcher.seen, Watcher.had_memory = [], []
        measured(smoke_lab(name, form, suite))
        batches.append(torch.stack(Watcher.seen))
    assert batches[0].shape == (10, 8, 32)
    assert torch.equal(batches[0], batches[1])
    assert torch.equal(batches[0], batches[2])


def test_a_memory_is_carried_from_step_to_step_but_not_from_pass_to_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "Decoder", Watcher)
    # so large a batch that the text has few segments
    Watcher.seen, Watcher.had_memory = [], []
    measured(smoke_lab("delta", "chunkwise", CARRIED.name, batch=1000))
    segments = next(step for step in range(1, 10) if torch.equal(Watcher.seen[step], Watcher.seen[0]))
    assert Watcher.had_memory == [step % segments > 0 for step in range(10)]
    Watcher.seen, Watcher.had_memory = [], []
    measured(smoke_lab("delta", "chunkwise"))
    assert not any(Watcher.had_memory)


@pytest.mark.parametrize("suite", [LIMITED.name, CARRIED.name])
def test_a_step_in_parts_gives_the_losses_of_a_step_in_one(suite: str) -> None:
    losses = []
    for parts in (1, 4):
        lab = with_same_parts(smoke_lab("delta", "chunkwise", suite, accumulation=parts))
        measured(lab)
        losses.append(next(curve for curve in lab.curves if curve.name == "training_loss").y)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_the_same_case_twice_gives_the_same_numbers() -> None:
    found = []
    for _ in range(2):
        lab = smoke_lab("linear", "chunkwise", dropout=0.1)
        found.append((measured(lab)["word_perplexity"], lab.curves))
    assert found[0] == found[1]


def test_matrix_products_in_bfloat16_stay_near_those_in_float32() -> None:
    first, second = (
        measured(with_same_parts(smoke_lab("delta", "chunkwise", precision=one))) for one in ("float32", "bfloat16")
    )
    assert second["token_perplexity"] == pytest.approx(first["token_perplexity"], rel=0.02)
    assert second["token_perplexity"] != first["token_perplexity"]


def test_the_weights_that_did_best_are_the_ones_scored() -> None:
    # a rate so high that the model is not best at its last evaluation
    lab = smoke_lab("linear", "chunkwise", CARRIED.name, learning_rate=3.0, evaluate_every=1)
    found = measured(lab)
    curve = next(curve for curve in lab.curves if curve.name == "validation_loss")
    assert min(curve.y) < curve.y[-1]
    text = text_of(lab).validation
    assert found["validation_word_perplexity"] == pytest.approx(text.word_perplexity(min(curve.y) * text.tokens))


def test_the_learning_rate_rises_to_one_and_falls_to_zero() -> None:
    rates = [warm_up_then_cosine(step, 200, 10) for step in range(1, 201)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == 1
    assert rates[-1] == pytest.approx(0, abs=1e-12)
    assert rates[9:] == sorted(rates[9:], reverse=True)
