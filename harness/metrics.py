"""The metrics: name, unit, direction, definition, source. A number without an entry here cannot be stored."""

from dataclasses import dataclass
from typing import Literal

from attnbench.harness.errors import UnknownMetric, did_you_mean

Better = Literal["lower", "higher", "neither"]


@dataclass(frozen=True)
class Metric:
    """One measured quantity. `better` says which direction is the good one; a plain fact has neither."""

    name: str
    unit: str
    better: Better
    definition: str
    source: str = ""
    # of one attempt the raw samples are the ends of an interval; this says which
    interval: str = ""
    # a number below this compares nothing, whatever is better
    compares_from: float | None = None


_PAPER = "arXiv:2102.11174"

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "retrieval_loss",
            "1",
            "lower",
            "Smallest evaluation loss of the run: half the squared error between the value read and the one-hot value "
            "that was stored, mean over queries. Reading zero gives 0.5.",
            f"{_PAPER}, section 6.1",
        ),
        Metric("last_retrieval_loss", "1", "lower", "Evaluation loss at the last step of the run.", _PAPER),
        Metric(
            "retrieval_accuracy",
            "fraction",
            "higher",
            "Fraction of queries whose largest output component is the stored value, at the step of the best loss.",
        ),
        Metric(
            "recall_accuracy",
            "fraction",
            "higher",
            "Fraction of queries in unseen sequences whose most likely answer, of the whole vocabulary, is the value "
            "written with the key, at the last evaluation.",
            "arXiv:2312.04927",
        ),
        Metric(
            "recall_loss", "nat", "lower", "Mean cross-entropy of the right value over those queries, at the same time."
        ),
        Metric(
            "distinct_keys", "keys", "neither", "Mean number of different keys in an evaluation sequence: the load."
        ),
        Metric(
            "feature_width",
            "features",
            "neither",
            "Width D of the feature vectors of one head, d_dot: no more than D of them can be orthogonal.",
            f"{_PAPER}, section 4.1",
        ),
        Metric(
            "feature_rank",
            "features",
            "neither",
            "Dimensions that the features of D + 64 Gaussian keys span: the rank of their matrix in float64.",
        ),
        Metric(
            "denominator_at_start",
            "1",
            "neither",
            "Median over queries of z . phi(q), what a read is divided by before an epsilon (1e-6) is added, at initialisation.",
            f"{_PAPER}, section 3.2",
        ),
        Metric("denominator_at_end", "1", "neither", "The same median after the last training step."),
        Metric("training_steps", "steps", "neither", "Optimiser steps until the run stopped."),
        Metric("training_seconds", "s", "neither", "Wall time of the training loop, evaluation included."),
        Metric(
            "milliseconds_per_step",
            "ms",
            "neither",
            "Training time over training steps, evaluation excluded. Taken beside other cases: an orientation.",
        ),
        Metric(
            "observed_tokens_per_second",
            "tokens/s",
            "neither",
            "Training tokens over the time of the training steps. Taken beside other cases: an orientation.",
        ),
        Metric("parameters", "parameters", "neither", "Trained parameters of the model."),
        Metric(
            "state_floats",
            "floats",
            "neither",
            "Numbers that a read of the whole model looks at, for one sequence: the memory of fixed size, by the declared size "
            "that is checked, or keys and values of all tokens that it sees.",
            f"{_PAPER}, appendix F",
        ),
        Metric(
            "carried_floats",
            "floats",
            "neither",
            "Numbers in the tensors that the whole model hands on from one segment to the next, for one sequence, counted there.",
        ),
        Metric(
            "word_perplexity",
            "1",
            "lower",
            "exp(total negative log-likelihood of the test text / number of its words, one end of line a line included), by the "
            "weights that did best on the validation text. Does not depend on the tokeniser.",
            f"{_PAPER}, section 6.3",
        ),
        Metric(
            "validation_word_perplexity", "1", "lower", "The same of the validation text.", f"{_PAPER}, section 6.3"
        ),
        Metric(
            "segment_word_perplexity",
            "1",
            "lower",
            "The same of the test text in segments of the context, each read from nothing.",
        ),
        Metric(
            "token_perplexity",
            "1",
            "lower",
            "exp(mean negative log-likelihood of a subword). Comparable only under one tokeniser.",
        ),
        Metric(
            "bits_per_byte",
            "bit",
            "lower",
            "Total negative log-likelihood in bits over the bytes of the test text.",
        ),
        Metric(
            "training_loss",
            "nat",
            "lower",
            "Mean cross-entropy of a subword over the last tenth of the training steps.",
        ),
        Metric(
            "bleu",
            "1",
            "higher",
            "sacreBLEU of the test text's translations: detokenised, cased, tokens of 13a; its signature is kept beside it. The "
            "interval is 95 % of a bootstrap over sentences.",
            "arXiv:1804.08771",
            interval="95 % of a bootstrap over sentences",
            # arXiv:1804.08771 and the suite's own runs: below, translations share little more than frequent words
            compares_from=5.0,
        ),
        Metric("validation_bleu", "1", "higher", "The same of the validation text, where it chose the weights."),
        Metric("chrf", "1", "higher", "sacreBLEU's chrF of the same translations: F2 of six orders of characters."),
        Metric(
            "compound_split_bleu",
            "1",
            "higher",
            "BLEU of the same translations as older papers count it: Moses' tokens, hyphens inside words split off. For German 0.7 to "
            "1.0 above BLEU, and comparable with nothing else.",
            "arXiv:1706.03762, section 6.1",
        ),
        Metric(
            "validation_nats",
            "nat",
            "lower",
            "Smallest mean negative log-likelihood of a validation token on the way, without label smoothing.",
        ),
        Metric(
            "decoded_words_per_second",
            "words/s",
            "higher",
            "Words of the test text's translations over the time of the search for them. Taken beside other cases: an orientation.",
        ),
        Metric(
            "hypothesis_state_bytes",
            "B",
            "lower",
            "Bytes of the decoder's own memory, all layers, of one hypothesis after as many tokens as a training pair may have.",
        ),
        Metric(
            "source_state_bytes",
            "B",
            "lower",
            "Bytes of what all layers of the decoder read of one source that is as long.",
        ),
        Metric("test_pairs", "pairs", "neither", "Pairs that the scores are of."),
        Metric(
            "removed_pairs",
            "pairs",
            "neither",
            "Training pairs left out since one of their sides is in the validation or test text too, but for case and spaces.",
        ),
        Metric(
            "classification_accuracy",
            "fraction",
            "higher",
            "Fraction of held-out samples whose class has the highest score, after the last training step.",
            "arXiv:2011.04006, section 3",
        ),
        Metric(
            "classification_loss",
            "nat",
            "lower",
            "Mean cross-entropy of the class of a held-out sample, after the last training step.",
        ),
        Metric(
            "training_tokens_per_second",
            "tokens/s",
            "higher",
            "Tokens over the median time of one attention operation, forward and backward.",
        ),
        Metric(
            "prefill_tokens_per_second",
            "tokens/s",
            "higher",
            "Tokens over the median time of one attention operation, forward without gradients.",
        ),
        Metric(
            "decode_tokens_per_second",
            "tokens/s",
            "higher",
            "Tokens over median time, one token at a time with the memory carried.",
        ),
        Metric(
            "model_training_tokens_per_second",
            "tokens/s",
            "higher",
            "Tokens over the median time of a training step of a whole language model, with Adam and without reading a text.",
            f"{_PAPER}, section 6.3",
        ),
        Metric(
            "roofline_fraction",
            "fraction",
            "higher",
            "Least time over median time. The least time is that of the FLOPs that the form carries out at the device's measured rate "
            "of matrix products, or of the bytes that cannot be left out at its rate of copying, whichever is longer.",
        ),
        Metric(
            "training_peak_bytes",
            "B",
            "lower",
            "Largest number of bytes held by tensors in one attention operation, forward and backward, beyond what was held before it.",
        ),
        Metric(
            "prefill_peak_bytes",
            "B",
            "lower",
            "Largest number of bytes held by tensors in one attention operation, forward without gradients, beyond what was held before it.",
        ),
        Metric(
            "model_peak_bytes",
            "B",
            "lower",
            "Largest number of bytes held by tensors in a training step of a whole language model, its weights, gradients and the "
            "two moments of Adam included.",
        ),
        Metric(
            "predicted_peak_bytes",
            "B",
            "lower",
            "The same peak, of operation or model, predicted on tensors that have sizes and no contents.",
        ),
        Metric(
            "prediction_error",
            "fraction",
            "neither",
            "Predicted over measured peak, minus one. Above zero more was predicted than was held.",
        ),
        Metric(
            "decode_state_bytes",
            "B",
            "lower",
            "Bytes of the memory that decoding carries from token to token, at the context length of the case.",
        ),
    )
}


def metric(name: str) -> Metric:
    """The metric called `name`. Raises UnknownMetric."""
    if name not in METRICS:
        raise UnknownMetric(f"no metric '{name}'. {did_you_mean(name, METRICS)}")
    return METRICS[name]
