"""What a language model would cost is what it costs."""

import math
from pathlib import Path

import pytest
import torch

from attnbench.harness.costs import counted_flops
from attnbench.harness.lab import Lab
from attnbench.harness.models import Decoder, count_parameters
from attnbench.harness.spec import Case, Point, Setting
from attnbench.suites import language_modelling, unbounded_context
from attnbench.suites.tasks.language.points import shape_of
from attnbench.suites.tasks.language.recording import text_of
from attnbench.variants import find

MODULES = {module.SUITE.name: module for module in (language_modelling, unbounded_context)}


def lab_of(
    suite: str, name: str, form: str, scale: str = "smoke", cache: Path | None = None, **changed: Setting
) -> Lab:
    declared = MODULES[suite].SUITE
    point = Point({**declared.scales[scale].points_of(name)[0], **changed})
    return Lab(Case(suite, name, form, point, 0, scale), find(name), cache=cache, evaluation=declared.evaluation)


@pytest.mark.parametrize(
    ("name", "form"), [("softmax", "parallel"), ("delta", "chunkwise"), ("performer-m8", "chunkwise")]
)
def test_a_step_costs_what_torch_counts_in_a_real_one(name: str, form: str) -> None:
    lab = lab_of("language_modelling", name, form, layers=3)
    point, shape = lab.case.point, shape_of(lab.case.point)
    model = Decoder(lab.mechanism(), form, shape, lab.generator("init"))
    draws = [lab.draws(shape.heads, shape.head_width, layer=layer) for layer in range(3)]
    words = torch.randint(shape.vocabulary, (point.integer("batch"), point.integer("context") + 1))
    step = counted_flops(lambda: model.nll(words[:, :-1], words[:, 1:], draws=draws)[0].mean().backward())
    cost = language_modelling.cost(lab)
    assert cost.flops == step * point.integer("steps")
    assert cost.parameters == count_parameters(model)
    assert cost.tokens == point.integer("steps") * words[:, 1:].numel()


def test_every_token_of_the_held_out_parts_is_scored_as_often_as_it_is_read() -> None:
    lab = lab_of("language_modelling", "softmax", "sdpa", context=32, stride=16, steps=10, evaluate_every=4, warm_up=1)
    text = text_of(lab)
    test, validation = text.test.tokens, text.validation.tokens
    # training looks at the validation text after steps 4, 8 and 10; the last window or segment may be shorter
    segments, windows = test + 3 * validation, test + validation - 2 * 32
    found = language_modelling.cost(lab).evaluation_tokens
    assert segments + windows <= found - 2 * 16 < segments + windows + 32 + 2 * 16


@pytest.mark.parametrize("suite", sorted(MODULES))
def test_the_lengths_of_a_text_that_is_published_with_its_counts_are_known_beforehand(
    suite: str, tmp_path: Path
) -> None:
    changed: dict[str, Setting] = {"data": "wikitext-103", "tokeniser": "words"}
    lab = lab_of(suite, "delta", "chunkwise", cache=tmp_path, **changed)
    assert MODULES[suite].cost(lab).evaluation_tokens > 245_569 + 217_646


@pytest.mark.parametrize("suite", sorted(MODULES))
def test_scoring_a_text_that_is_not_here_is_left_out(suite: str, tmp_path: Path) -> None:
    cost = MODULES[suite].cost(lab_of(suite, "delta", "chunkwise", cache=tmp_path, data="web-bible"))
    assert (cost.evaluation_tokens, cost.evaluation_flops) == (0, 0)
    assert cost.flops > 0


def test_a_memory_that_grows_costs_what_is_read_of_it_and_one_that_does_not_costs_nothing_more() -> None:
    costs = {
        name: [
            unbounded_context.cost(lab_of("unbounded_context", name, form, memory=memory, evaluation_memory=memory))
            for memory in (0, 32, 64)
        ]
        for name, form in (("xl", "parallel"), ("delta", "chunkwise"))
    }
    none, some, twice = (one.flops for one in costs["xl"])
    # a token stands for all that are remembered: of how it came to be only its own cost is in here
    assert none < some < twice
    assert math.isclose(twice - some, some - none, rel_tol=0.1)
    assert costs["xl"][0].evaluation_flops < costs["xl"][1].evaluation_flops < costs["xl"][2].evaluation_flops
    assert costs["delta"][0] == costs["delta"][1] == costs["delta"][2]
