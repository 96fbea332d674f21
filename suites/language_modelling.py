"""What perplexity does a language model reach when its attention is swapped?

A decoder-only Transformer on real English text, word perplexity out: every variant with the same widths, the same batches
and the same number of steps. The held-out text is scored in windows of the training length that move by `stride` tokens;
of each but the first only the last `stride` positions count. Beside the models stand two floors that know no context or
one token of it; a model above the bigram's has learned nothing that compares attention.

At `paper` scale the models, the text and the training are those of the paper's Tables 2, 3 and 5: a small model with a
context of 256 and a medium one with 384, WikiText-103 word by word, a stride of 1.

Source: arXiv:2102.11174, section 6.3, Tables 2, 3 and 5.
"""

import math

from torch import Tensor

from attnbench.harness.costs import Cost
from attnbench.harness.errors import BadParameter
from attnbench.harness.lab import Lab
from attnbench.harness.models import Decoder
from attnbench.harness.spec import Grid, Point, Suite
from attnbench.suites.tasks.language import points, recording
from attnbench.suites.tasks.language.costing import Lengths, Reading, cost_of
from attnbench.suites.tasks.language.scoring import Draws, Scored, segments, sliding
from attnbench.suites.tasks.language.training import autocast, preceded, train_model


def check(point: Point) -> None:
    """Refuse settings that do not go together. Raises BadParameter."""
    points.check(point)
    context, stride = point.integer("context"), point.integer("stride")
    if stride > context:
        raise BadParameter(
            f"stride is at most the context of {context} tokens, or tokens would not be scored; got {stride}."
        )


_SMALL, _MEDIUM = points.small(stride=1), points.medium(stride=1)
_MEDIUM_WITHOUT_POSITIONS = points.medium(stride=1, positions="none")

SUITE = Suite(
    name="language_modelling",
    title="Language modelling",
    question="What perplexity does a language model reach when its attention is swapped?",
    source="arXiv:2102.11174, section 6.3",
    module=__name__,
    axis="context",
    metrics=recording.METRICS,
    scales={
        "smoke": Grid(
            variants=("softmax", "linear", "delta", "xl"),
            points=(points.tiny(stride=16),),
            timeout_seconds=120,
            seconds_per_case=2,
        ),
        "quick": Grid(
            variants=("softmax", "linear", "performer-m16", "dpfp-nu1", "delta"),
            points=(points.point(stride=64),),
            timeout_seconds=900,
            seconds_per_case=75,
        ),
        # a context eight times the head width, and steps enough to get far below the bigram floor
        "standard": Grid(
            variants=("softmax", "linear", "delta", "performer-m16", "dpfp-nu1+delta"),
            points=(points.point(context=256, steps=4000, evaluate_every=500, stride=64),),
            seeds_for={"softmax": (0, 1), "linear": (0, 1), "delta": (0, 1)},
            timeout_seconds=3600,
            seconds_per_case=750,
        ),
        "paper": Grid(
            variants=(
                "softmax",
                "linear",
                "delta",
                "performer-m8",
                "performer-m8+delta",
                "performer-m16",
                "performer-m16+delta",
                "dpfp-nu1",
                "dpfp-nu1+delta",
                "delta+attnnorm",
                "delta+nosumnorm",
                "delta+fixedbeta",
            ),
            points=(_SMALL,),
            points_for={
                "softmax": (_SMALL, _MEDIUM),
                "linear": (_SMALL, _MEDIUM),
                "delta": (_SMALL, _MEDIUM, _MEDIUM_WITHOUT_POSITIONS),
                "performer-m16": (_SMALL, _MEDIUM),
                "performer-m16+delta": (_SMALL, _MEDIUM),
                "delta+attnnorm": (_MEDIUM, _MEDIUM_WITHOUT_POSITIONS),
                "delta+nosumnorm": (_MEDIUM,),
            },
            timeout_seconds=14 * 24 * 3600,
            seconds_per_case=48 * 3600,
        ),
    },
    forms=recording.FORMS,
    references=tuple(recording.FLOORS),
    data=recording.data_of,
    data_hash=recording.hash_of_data,
    check=check,
    evaluation=("stride",),
    spreads=True,
)


def measure(lab: Lab) -> None:
    """Perplexities of a trained model, or of a floor on the same text."""
    text = recording.text_of(lab)
    if lab.variant is None:
        recording.record_floor(lab, text)
        return
    context, stride = lab.case.point.integer("context"), lab.case.point.integer("stride")

    def in_segments(model: Decoder, tokens: Tensor, draws: Draws) -> Scored:
        return segments(model, tokens, context, draws)

    trained = train_model(lab, text, in_segments, carries=False)
    test, validation = preceded(text, text.test), preceded(text, text.validation)
    with autocast(lab.device, lab.case.point):
        recording.record_model(
            lab,
            text,
            trained,
            test=sliding(trained.model, test, context, stride, trained.draws),
            validation=sliding(trained.model, validation, context, stride, trained.draws),
            in_segments=segments(trained.model, test, context, trained.draws),
            tokens=context,
        )


def cost(lab: Lab) -> Cost:
    """What a case takes."""
    context, stride = lab.case.point.integer("context"), lab.case.point.integer("stride")

    def windows(tokens: int) -> Reading:
        return Reading(1 + math.ceil(max(0, tokens - context) / stride), context, stride)

    def readings(text: Lengths) -> list[Reading]:
        in_segments = text.test + text.looks * text.validation
        return [
            Reading(math.ceil(in_segments / context), context, context),
            windows(text.test),
            windows(text.validation),
        ]

    return cost_of(lab, readings)
