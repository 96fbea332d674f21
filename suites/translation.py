"""How well does an encoder-decoder translate when its attention is swapped?

A Transformer is trained on pairs of English and German sentences; a beam search translates those it has not seen, and
BLEU compares that with what people wrote. The decoder's causal self-attention is the variant's. Two settings of a point say
what stands at the two other places:

    encoder=same       the variant without causality: a layer writes its whole text, then every token reads what that left.
                       The delta rule corrects in the order of the text, so what comes last is held best
    encoder=softmax    softmax attention both ways
    cross=softmax      each target token looks at all of the source
    cross=same         each layer writes the encoded source once into a memory of the variant's, which target tokens read

Decoding carries the variant's memory: of one size for all but softmax, whose keys and values grow with the translation.

At `paper` scale model, text and training are those of the paper's Table 1: Transformer (big) on WMT14. It does not say whether
attention to the source is swapped; here it is not.

Source: arXiv:2102.11174, section 6.2, Table 1, appendix E.
"""

from attnbench.harness.costs import Cost
from attnbench.harness.lab import Lab
from attnbench.harness.spec import Grid, Suite
from attnbench.suites.tasks.translation import points, recording
from attnbench.suites.tasks.translation.costing import cost_of
from attnbench.suites.tasks.translation.training import train_model

SUITE = Suite(
    name="translation",
    title="Translation",
    question="How well does an encoder-decoder translate when its attention is swapped?",
    source="arXiv:2102.11174, section 6.2",
    module=__name__,
    axis="layers",
    metrics=recording.METRICS,
    scales={
        "smoke": Grid(
            variants=("softmax", "linear", "delta"),
            points=(points.tiny(),),
            timeout_seconds=120,
            seconds_per_case=3,
        ),
        "quick": Grid(
            variants=("softmax", "linear", "performer-m16", "dpfp-nu1", "delta"),
            points=(points.numbers(),),
            timeout_seconds=900,
            seconds_per_case=25,
        ),
        "standard": Grid(
            variants=("softmax", "linear", "performer-m16", "dpfp-nu1", "delta"),
            points=(points.point(),),
            timeout_seconds=7200,
            seconds_per_case=1400,
        ),
        # d_dot of the paper's Table 6 is per head: 64, 256, 512 and 256, 512 at a head width of 64
        "paper": Grid(
            variants=(
                "softmax",
                "linear",
                "performer-m32",
                "performer-m128",
                "performer-m256",
                "dpfp-nu2",
                "dpfp-nu4",
            ),
            points=(points.big(),),
            timeout_seconds=30 * 24 * 3600,
            seconds_per_case=96 * 3600,
        ),
    },
    forms=recording.FORMS,
    data=recording.data_of,
    data_hash=recording.hash_of_data,
    check=points.check,
    evaluation=("beam", "length_penalty", "test_pairs"),
    spreads=True,
)


def measure(lab: Lab) -> None:
    """Scores of a trained translator, and what it takes to decode with it."""
    text = recording.text_of(lab)
    recording.record(lab, text, train_model(lab, text))


def cost(lab: Lab) -> Cost:
    """What a case takes."""
    return cost_of(lab)
