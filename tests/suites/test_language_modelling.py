"""Every token is scored once, floors stand beside models, and all variants read the same batches."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from attnbench.harness.data.corpus import END_OF_LINE, Split
from attnbench.harness.errors import BadParameter
from attnbench.harness.lab import Lab
from attnbench.harness.models import Decoder, Shape
from attnbench.harness.seeds import generator
from attnbench.harness.spec import Case, Point
from attnbench.suites import language_modelling
from attnbench.suites.language_modelling import SUITE, measure, total_nll, warm_up_then_cosine
from attnbench.variants import find


class Watcher(Decoder):
    """A decoder that keeps the batches it is trained on."""

    seen: list[Tensor]

    def loss(self, tokens: Tensor, targets: Tensor, draws: object = None) -> Tensor:
        type(self).seen.append(tokens)
        return super().loss(tokens, targets, draws)  # type: ignore[arg-type]


def split_of(tokens: int) -> Split:
    stream = torch.randint(2, 20, (tokens,), generator=generator("text")).numpy().astype(np.int32)
    return Split(stream, (tokens,), words=tokens, utf8_bytes=2 * tokens)


def model() -> Decoder:
    return Decoder(find("linear"), "recurrent", Shape(20, 8, 1, 2, 16), generator("init")).double()


@pytest.mark.parametrize(("context", "stride"), [(40, 1), (8, 8), (8, 3), (8, 1), (1, 1), (37, 5), (100, 50)])
def test_every_token_is_scored_once_with_the_context_that_the_windows_give(context: int, stride: int) -> None:
    split = split_of(37)
    stream = [END_OF_LINE, *split.stream.tolist()]
    expected, scored = 0.0, min(context, 37)
    contexts = list(range(1, scored + 1))
    while scored < 37:
        end = min(scored + stride, 37)
        contexts += [min(context, 37) - (end - position) for position in range(scored + 1, end + 1)]
        scored = end
    decoder = model()
    for position, length in enumerate(contexts, start=1):
        before = torch.tensor([stream[position - length : position]])
        scores = decoder.logits(decoder(before)[0])[0, -1]
        expected -= scores.log_softmax(-1)[stream[position]].item()
    # positions of the model start at zero in each window, as they do here
    with torch.no_grad():
        assert total_nll(decoder, split, context, stride, [None]) == pytest.approx(expected, rel=1e-9)


def smoke_lab(name: str, form: str) -> Lab:
    case = Case("language_modelling", name, form, SUITE.scales["smoke"].points[0], 0, "smoke")
    return Lab(case, None if form == "count" else find(name))


def recorded(lab: Lab) -> dict[str, float]:
    return {one.metric: one.value for one in lab.measurements}


def test_a_model_records_perplexities_that_agree_with_one_another() -> None:
    lab = smoke_lab("delta", "chunkwise")
    measure(lab)
    found = recorded(lab)
    assert set(SUITE.metrics) <= set(found)
    assert 1 < found["token_perplexity"] < 1000
    assert math.log(found["word_perplexity"]) > math.log(found["token_perplexity"])
    (curve,) = lab.curves
    assert curve.x[0] == 1


def test_the_floors_are_rows_of_the_same_text_and_the_bigram_is_the_harder_one() -> None:
    floors = {}
    for name in SUITE.references:
        lab = smoke_lab(name, "count")
        measure(lab)
        floors[name] = recorded(lab)["word_perplexity"]
    assert 1 < floors["bigram"] < floors["unigram"]


def test_all_variants_read_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_modelling, "Decoder", Watcher)
    batches = []
    for name, form in (("softmax", "sdpa"), ("delta", "chunkwise"), ("performer-m8", "chunkwise")):
        Watcher.seen = []
        measure(smoke_lab(name, form))
        batches.append(torch.stack(Watcher.seen))
    assert batches[0].shape == (10, 8, 32)
    assert torch.equal(batches[0], batches[1])
    assert torch.equal(batches[0], batches[2])


def test_the_same_case_twice_gives_the_same_numbers() -> None:
    losses = []
    for _ in range(2):
        lab = smoke_lab("linear", "chunkwise")
        measure(lab)
        losses.append((recorded(lab)["word_perplexity"], lab.curves))
    assert losses[0] == losses[1]


def test_the_learning_rate_rises_to_one_and_falls_to_zero() -> None:
    rates = [warm_up_then_cosine(step, 200) for step in range(1, 201)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == 1
    assert rates[-1] == pytest.approx(0, abs=1e-12)
    assert rates[9:] == sorted(rates[9:], reverse=True)


def test_a_point_of_every_scale_has_a_key_width_that_the_heads_really_get() -> None:
    for grid in SUITE.scales.values():
        for point in grid.points:
            assert isinstance(point, Point)
            assert point.integer("width") == point.integer("heads") * point.integer("key_width")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"stride": 33}, "stride is at most the context of 32 tokens, or tokens would not be scored; got 33."),
        ({"heads": 4}, "width is heads times key_width, here 4 x 16 = 64, got 32."),
        ({"vocabulary": 10}, "a vocabulary has room for every byte and character, so at least 400; got 10."),
    ],
)
def test_settings_that_do_not_go_together_are_refused(changed: dict[str, int], says: str) -> None:
    with pytest.raises(BadParameter) as refused:
        SUITE.check(Point({**SUITE.scales["smoke"].points[0], **changed}))
    assert str(refused.value) == says
