"""Translations as they came out: a few of each variant beside source and reference, and the signatures of their scores.

What models and people wrote is shown as text, whatever it holds.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from attnbench.harness.bleu import SAMPLES, SIGNATURES
from attnbench.harness.rows import Artefact, Row
from attnbench.reports.grids import Line, Table
from attnbench.reports.passage import Passage
from attnbench.reports.tables import metric_words, order


def translations_passage(rows: Sequence[Row], texts: Mapping[int, Sequence[Artefact]]) -> tuple[Passage, ...]:
    """The sample translations under one set of conditions, a table a source; nothing without any."""
    attempts = {row.attempt_id: row for row in rows if row.attempt_id in texts}
    # source and reference -> the label of an attempt -> its translation
    samples: dict[tuple[str, str], dict[tuple[str, str], str]] = {}
    signatures: dict[str, None] = {}
    for row in sorted(attempts.values(), key=lambda row: (order(row.variant), row.seed, row.attempt_id)):
        label = (row.variant, _where(row, attempts.values()))
        for one in _loaded(texts[row.attempt_id], SAMPLES, []):
            samples.setdefault((one["source"], one["reference"]), {})[label] = one["translation"]
        for name, signature in _loaded(texts[row.attempt_id], SIGNATURES, {}).items():
            signatures[f"{metric_words(name)}: {signature}"] = None
    if not samples:
        return ()
    tables = tuple(_table(source, reference, found) for (source, reference), found in samples.items())
    words = (f"Scores are signed: {'; '.join(signatures)}.",) if signatures else ()
    return (Passage("Translations", words, tables, open_tables=3),)


def _table(source: str, reference: str, found: Mapping[tuple[str, str], str]) -> Table:
    has_places = any(place for _, place in found)
    lines = tuple(
        Line(variant, (variant, *([place] if has_places else []), text), ()) for (variant, place), text in found.items()
    )
    heads = ("variant", *(["where"] if has_places else []), "translation")
    return Table(source, (f"Reference: {reference.removesuffix('.')}",), heads, "", (), lines)


def _where(row: Row, rows: Any) -> str:
    """The seed and the settings in which the attempts of this variant differ; empty where there is one."""
    own = [one for one in rows if one.variant == row.variant]
    if len(own) == 1:
        return ""
    names = [name for name in row.point if len({one.point.get(name) for one in own}) > 1]
    told = [f"{metric_words(name)} {row.point[name]}" for name in names]
    return ", ".join([*told, *([f"seed {row.seed}"] if len({one.seed for one in own}) > 1 else [])])


def _loaded(texts: Sequence[Artefact], name: str, without: Any) -> Any:
    """What the text of that name holds."""
    return next((json.loads(one.text) for one in texts if one.name == name), without)
