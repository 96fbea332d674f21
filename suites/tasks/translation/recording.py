"""What is kept of a translator: scores with their intervals and signatures, speed and memory, curves, and its translations.

Of the test part's text only a few samples are kept, the translations as they are, and what each sentence adds to BLEU:
enough to score again where the text is, and to hold two systems against each other where it is not.
"""

import json
from collections.abc import Mapping

from attnbench.harness import bleu as counted
from attnbench.harness.data.catalogue import data_set
from attnbench.harness.data.fetch import load
from attnbench.harness.data.pairs import ParallelCorpus, pairs, pairs_hash
from attnbench.harness.lab import Lab
from attnbench.harness.models import Translator, count_parameters
from attnbench.harness.spec import Point
from attnbench.suites.tasks.translation import scores
from attnbench.suites.tasks.translation.decoding import Translated, bytes_of, translate
from attnbench.suites.tasks.translation.training import Trained

METRICS = (
    "bleu",
    "chrf",
    "compound_split_bleu",
    "validation_bleu",
    "validation_nats",
    "decoded_words_per_second",
    "hypothesis_state_bytes",
    "source_state_bytes",
    "parameters",
    "observed_tokens_per_second",
    "test_pairs",
    "removed_pairs",
)
FORMS = ("sdpa", "chunkwise", "gram", "parallel", "recurrent")
CURVE_POINTS = 100
SHOWN = 6


def text_of(lab: Lab) -> ParallelCorpus:
    """The text of a case, split and encoded."""
    point = lab.case.point
    name = point.text("data")
    return pairs(
        load(name, cache=lab.cache, offline=True),
        vocabulary=point.integer("vocabulary"),
        held_out=data_set(name).held_out,
        cache=lab.cache,
    )


def data_of(point: Point) -> tuple[str, ...]:
    """The data sets of a point."""
    return (point.text("data"),)


def hash_of_data(point: Point, hashes: Mapping[str, str]) -> str:
    """The hash of a point's text, split and encoded."""
    name = point.text("data")
    return pairs_hash(hashes[name], vocabulary=point.integer("vocabulary"), held_out=data_set(name).held_out)


def record(lab: Lab, text: ParallelCorpus, trained: Trained) -> None:
    """A trained translator, on the test part or the first `test_pairs` of it."""
    point = lab.case.point
    asked = range(min(point.integer("test_pairs") or len(text.test), len(text.test)))
    found = translate(
        trained.model,
        text.test.source,
        trained.draws,
        beam=point.integer("beam"),
        penalty=point.number("length_penalty"),
        numbers=asked,
    )
    hypotheses = [text.decode(one.tokens) for one in found.hypotheses]
    references = [text.test.references[number] for number in asked]
    _record_scores(lab, hypotheses, references)
    lab.record("test_pairs", len(references))
    lab.record("removed_pairs", text.removed)
    lab.record("decoded_words_per_second", sum(len(one.split()) for one in hypotheses) / found.seconds)
    if point.text("choose") == "bleu":
        lab.record("validation_bleu", _validation_bleu(lab, text, trained))
    _record_state(lab, trained.model, trained, found)
    _record_training(lab, text, trained)
    shown = [
        {"source": text.test.sources[number], "reference": references[number], "translation": hypotheses[number]}
        for number in spread(len(references), SHOWN)
    ]
    lab.artefact(counted.SAMPLES, "application/json", json.dumps(shown, ensure_ascii=False))
    lab.artefact(counted.HYPOTHESES, "text/plain", "\n".join(hypotheses))


def _validation_bleu(lab: Lab, text: ParallelCorpus, trained: Trained) -> float:
    """BLEU of the validation part, searched for as the test part is."""
    point = lab.case.point
    beam, penalty = point.integer("beam"), point.number("length_penalty")
    found = translate(trained.model, text.validation.source, trained.draws, beam=beam, penalty=penalty)
    return scores.bleu([text.decode(one.tokens) for one in found.hypotheses], text.validation.references).value


def _record_scores(lab: Lab, hypotheses: list[str], references: list[str]) -> None:
    statistics = scores.bleu_statistics(hypotheses, references)
    found = {
        "bleu": scores.bleu(hypotheses, references),
        "chrf": scores.chrf(hypotheses, references),
        "compound_split_bleu": scores.compound_split_bleu(hypotheses, references),
    }
    for name, score in found.items():
        lab.record(name, score.value, counted.interval(statistics) if name == "bleu" else ())
    lab.artefact(counted.STATISTICS, "application/json", counted.to_json(statistics))
    signatures = {name: score.signature for name, score in found.items()}
    lab.artefact(counted.SIGNATURES, "application/json", json.dumps(signatures))


def _record_state(lab: Lab, model: Translator, trained: Trained, found: Translated) -> None:
    """Bytes at `longest` tokens, and after each token of a translation."""
    import torch

    with torch.no_grad():
        row = torch.zeros(1, lab.case.point.integer("longest"), dtype=torch.long, device=lab.device)
        model.eval()
        source = model.remember(row, trained.draws)
        _, target = model.read_on(row, source, trained.draws)
    lab.record("hypothesis_state_bytes", bytes_of(target))
    lab.record("source_state_bytes", bytes_of(source))
    tokens = range(1, len(found.state_bytes) + 1)
    lab.curve(
        "hypothesis_state_bytes", "token", [float(one) for one in tokens], [float(one) for one in found.state_bytes]
    )


def _record_training(lab: Lab, text: ParallelCorpus, trained: Trained) -> None:
    training = trained.training
    lab.record("validation_nats", min(loss for _, loss in trained.losses))
    lab.record("parameters", count_parameters(trained.model))
    lab.record("training_steps", training.steps)
    lab.record("training_seconds", training.training_seconds + training.evaluation_seconds)
    losses = training.training_losses
    read = training.steps * lab.case.point.integer("tokens_per_update")
    lab.record("observed_tokens_per_second", read / training.training_seconds)
    kept = range(0, len(losses), max(1, len(losses) // CURVE_POINTS))
    lab.curve("training_loss", "step", [one + 1 for one in kept], [losses[one] for one in kept])
    lab.curve("validation_loss", "step", [step for step, _ in trained.losses], [loss for _, loss in trained.losses])
    if lab.case.point.text("choose") == "bleu":
        lab.curve(
            "validation_bleu", "step", [step for step, _ in training.curve], [100 - one for _, one in training.curve]
        )


def spread(count: int, wanted: int) -> list[int]:
    """At most `wanted` numbers below `count`, evenly spread."""
    return [place * count // min(wanted, count) for place in range(min(wanted, count))]
