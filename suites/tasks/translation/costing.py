"""What training and scoring a translator takes, without its text: pairs have the mean length of the text's, Zipf's words.

The mean is known of a text that is in the cache; of another the published 30 tokens a side of WMT stand for it. A batch's
peak is that of pairs of that length.
"""

import math
from dataclasses import replace

from torch import Tensor, nn

from attnbench.harness.costs import Cost, Evaluation, of_training, zipf_words
from attnbench.harness.data.catalogue import data_set
from attnbench.harness.data.fetch import is_cached
from attnbench.harness.lab import Lab
from attnbench.harness.models import Translator
from attnbench.suites.tasks.language.training import autocast
from attnbench.suites.tasks.translation.points import shape_of
from attnbench.suites.tasks.translation.recording import text_of
from attnbench.suites.tasks.translation.training import draws_of, mechanisms_of

# tokens a side of a WMT pair in 32K joint pieces; the longer side has some more
PUBLISHED_LENGTH = 33


def cost_of(lab: Lab) -> Cost:
    """The cost of a case: training, the looks at the validation text, and a search on the test text.

    A hypothesis that is searched for costs about what a pass over it does, so a beam costs as many passes as it is wide.
    """
    point, draws, shape = lab.training_point, draws_of(lab, "cost"), shape_of(lab.case.point)
    mechanisms = mechanisms_of(point, lab.mechanism(), lab.case.form)
    length, held_out = _lengths(lab)

    def nll(model: nn.Module, sequences: int) -> Tensor:
        assert isinstance(model, Translator)
        device = next(model.parameters()).device
        source, target = (zipf_words(shape.vocabulary, sequences, length).to(device) for _ in range(2))
        return model.nll(source, target, target, draws, point.number("smoothing"))

    def loss(model: nn.Module, sequences: int) -> Tensor:
        with autocast(lab.device, point):
            return nll(model, sequences).mean()

    evaluations = []
    if held_out is not None:
        test, validation = held_out
        test = min(test, lab.case.point.integer("test_pairs") or test)
        looks = math.ceil(point.integer("steps") / min(point.integer("evaluate_every"), point.integer("steps")))
        passes = looks * validation * (2 if point.text("choose") == "bleu" else 1)
        passes += test * lab.case.point.integer("beam")
        evaluations.append(Evaluation(lambda model: nll(model, 1), passes, passes * length))
    processes = lab.case.processes
    return of_training(
        lambda layers: Translator(mechanisms, replace(shape, layers=layers), lab.generator("init")),
        loss,
        layers=shape.layers,
        batch=max(1, point.integer("tokens_per_update") // length),
        at_once=max(1, min(point.integer("tokens_at_once"), point.integer("tokens_per_update") // processes) // length),
        tokens=length,
        steps=point.integer("steps"),
        evaluations=evaluations,
        device=lab.device,
    )


def _lengths(lab: Lab) -> tuple[int, tuple[int, int] | None]:
    """The mean length of the longer side of a training pair, and how many pairs are in the test and the validation part."""
    point = lab.case.point
    data = data_set(point.text("data"))
    if is_cached(data.name, lab.cache):
        text = text_of(lab)
        lengths = [max(pair) for pair in zip(text.train.source.lengths, text.train.target.lengths, strict=True)]
        return min(round(sum(lengths) / len(lengths)), point.integer("longest")), (len(text.test), len(text.validation))
    length = min(PUBLISHED_LENGTH, point.integer("longest"))
    if data.hub is None or data.hub.lines is None:
        return length, None
    _, validation, test = data.hub.lines
    return length, (test, validation)
