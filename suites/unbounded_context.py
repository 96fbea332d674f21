"""What perplexity does a language model reach when its memory is carried on for ever?

The text is read in contiguous streams, segment after segment, and what the attention remembers is handed on: a memory of
fixed size as it is, one that grows cut to its last `memory` tokens. Gradients end at a segment's beginning, and the memory
is emptied at each new pass through the text. Held-out text is read once from its beginning to its end, at batch 1, in
segments of `evaluation_context` tokens, and every token counts. The models know no absolute positions.

`segment_word_perplexity` is the same model with its memory emptied before each segment: what carrying brings, or breaks.

At `paper` scale the models, the text and the training are those of the paper's Table 4. Transformer-XL (`xl`) is trained
once with a memory and a context of 384 and scored with four sizes of both.

Source: arXiv:2102.11174, section 6.3, Table 4, appendix F.
"""

import math

from torch import Tensor

from attnbench.harness.costs import Cost
from attnbench.harness.data.corpus import Split
from attnbench.harness.errors import BadParameter
from attnbench.harness.lab import Lab
from attnbench.harness.models import Decoder
from attnbench.harness.spec import Grid, Point, Setting, Suite
from attnbench.suites.tasks.language import points, recording
from attnbench.suites.tasks.language.costing import Lengths, Reading, cost_of
from attnbench.suites.tasks.language.recording import CURVE_POINTS
from attnbench.suites.tasks.language.scoring import Draws, Scored, carried, segments
from attnbench.suites.tasks.language.training import autocast, preceded, train_model


def check(point: Point) -> None:
    """Refuse settings that do not go together. Raises BadParameter."""
    points.check(point)
    if point.text("order") != "streams":
        raise BadParameter(f"a memory is carried along streams, so order is streams; got {point.text('order')}.")


def _carried(point: Point, memory: int = 0, evaluation: tuple[int, int] | None = None) -> Point:
    """The point with a memory carried in training, and scored with (memory, context) as trained if nothing else is said."""
    kept, context = evaluation or (memory, point.integer("context"))
    more: dict[str, Setting] = {"memory": memory, "evaluation_memory": kept, "evaluation_context": context}
    return Point({**point, "positions": "none", "order": "streams", **more})


_SMOKE = points.tiny()
_QUICK = points.point(context=64, batch=16, width=64, key_width=16, feed_forward=256, steps=500, evaluate_every=500)
# many segments a stream, so that what a memory has become after thousands of tokens is seen
_STANDARD = points.point(context=128, batch=8, steps=6000, evaluate_every=1000, learning_rate=2e-3)
_XL = points.medium(steps=200_000, warm_up=1000)

SUITE = Suite(
    name="unbounded_context",
    title="Unbounded context",
    question="What perplexity does a language model reach when its memory is carried on for ever?",
    source="arXiv:2102.11174, section 6.3",
    module=__name__,
    axis="evaluation_context",
    metrics=recording.METRICS,
    scales={
        "smoke": Grid(
            variants=("linear", "delta", "xl"),
            points=(_carried(_SMOKE),),
            points_for={"xl": (_carried(_SMOKE, 32), _carried(_SMOKE, 32, (8, 8)))},
            timeout_seconds=120,
            seconds_per_case=2,
        ),
        "quick": Grid(
            variants=("linear", "linear+noattnnorm", "dpfp-nu1+delta", "delta", "xl"),
            points=(_carried(_QUICK),),
            points_for={"xl": (_carried(_QUICK, 64),)},
            timeout_seconds=600,
            seconds_per_case=20,
        ),
        "standard": Grid(
            variants=("linear", "delta", "linear+noattnnorm", "dpfp-nu1+delta", "xl"),
            points=(_carried(_STANDARD),),
            points_for={"xl": (_carried(_STANDARD, 128),)},
            seeds_for={"linear": (0, 1), "delta": (0, 1)},
            timeout_seconds=3600,
            seconds_per_case=550,
        ),
        "paper": Grid(
            variants=(
                "linear",
                "linear+noattnnorm",
                "delta",
                "dpfp-nu1",
                "dpfp-nu1+delta",
                "performer-m16+delta",
                "xl",
            ),
            points=(_carried(points.medium()),),
            points_for={
                "xl": tuple(
                    _carried(_XL, 384, evaluation) for evaluation in ((15, 1), (64, 64), (128, 128), (384, 384))
                )
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
    evaluation=("evaluation_memory", "evaluation_context"),
    spreads=True,
)


def measure(lab: Lab) -> None:
    """Perplexities of a trained model whose memory is carried, or of a floor on the same text."""
    text = recording.text_of(lab)
    if lab.variant is None:
        recording.record_floor(lab, text)
        return
    point = lab.case.point
    context, memory = point.integer("context"), point.integer("memory")
    seen, remembered = point.integer("evaluation_context"), point.integer("evaluation_memory")

    def as_trained(model: Decoder, tokens: Tensor, draws: Draws) -> Scored:
        return carried(model, tokens, context, memory, draws)

    trained = train_model(lab, text, as_trained, carries=True)

    def scored(split: Split) -> Scored:
        return carried(trained.model, preceded(text, split), seen, remembered, trained.draws)

    with autocast(lab.device, point):
        test = scored(text.test)
        recording.record_model(
            lab,
            text,
            trained,
            test=test,
            validation=scored(text.validation),
            in_segments=segments(trained.model, preceded(text, text.test), context, trained.draws),
            tokens=remembered + seen,
        )
    lab.curve("carried_loss", "token", *test.along(CURVE_POINTS))


def cost(lab: Lab) -> Cost:
    """What a case takes."""
    point = lab.case.point
    context, memory = point.integer("context"), point.integer("memory")
    seen, remembered = point.integer("evaluation_context"), point.integer("evaluation_memory")

    def readings(text: Lengths) -> list[Reading]:
        return [
            Reading(math.ceil(text.looks * text.validation / context), context, context, memory),
            Reading(math.ceil((text.test + text.validation) / seen), seen, seen, remembered),
            Reading(math.ceil(text.test / context), context, context),
        ]

    return cost_of(lab, readings, memory)
