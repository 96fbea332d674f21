"""The rows inside the page: all that a number hangs on, as JSON in which each text stands once.

    {"texts": [...], "runs": [...], "attempts": {column: [...]}, "rows": {column: [...]}, "artefacts": {...}}

Columns of names hold places in `texts`; those of numbers hold them whole, so that what is read back equals the database.
`templates/page.js` reads it: the panel behind each number, and its rows as CSV.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attnbench.harness.rows import Artefact, Row
from attnbench.reports.measured import is_shipped
from attnbench.reports.provenance import RunFacts, facts_of
from attnbench.reports.tables import metric_words

# Longer texts are cut: a page is to be mailed, and the database has the whole.
_LONGEST_TEXT = 4000
_NAMED = ("suite", "variant", "form", "scale", "device", "reason", "code_hash", "data_hash", "testbed")


def embedded(
    rows: Sequence[Row],
    runs: Sequence[RunFacts],
    commands: Mapping[int, str],
    texts: Mapping[int, Sequence[Artefact]],
) -> str:
    """The JSON text, safe inside a script element: no character of it can end or open one.

    `commands` ask attempts again, `texts` are theirs.
    """
    data = columns_of(rows, commands)
    data["runs"] = [_run(run) for run in runs if run.id in {row.run_id for row in rows}]
    data["artefacts"] = {
        str(number): [[one.name, one.media_type, one.text[:_LONGEST_TEXT], len(one.text)] for one in theirs]
        for number, theirs in texts.items()
    }
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def columns_of(rows: Sequence[Row], commands: Mapping[int, str]) -> dict[str, Any]:
    """The rows by column: attempts, and their numbers."""
    texts: dict[str, int] = {}

    def place(text: str) -> int:
        return texts.setdefault(text, len(texts))

    tried = {row.attempt_id: row for row in rows}
    places = {number: index for index, number in enumerate(tried)}
    listed = list(tried.values())
    attempts: dict[str, list[Any]] = {name: [place(getattr(row, name)) for row in listed] for name in _NAMED}
    attempts |= {
        "id": [row.attempt_id for row in listed],
        "run": [place(row.run_id) for row in listed],
        "point": [place(row.point.json()) for row in listed],
        "status": [place(row.status.value) for row in listed],
        "seed": [row.seed for row in listed],
        "threads": [row.threads for row in listed],
        "seconds": [row.seconds for row in listed],
        "started": [place(row.started_at.isoformat()) for row in listed],
        "facts": [place(json.dumps(dict(row.facts))) for row in listed],
        "command": [place(commands.get(row.attempt_id, "")) for row in listed],
        "shipped": [int(is_shipped(row)) for row in listed],
    }
    measured = [row for row in rows if row.metric]
    numbers = {
        "attempt": [places[row.attempt_id] for row in measured],
        "metric": [place(row.metric) for row in measured],
        "unit": [place(row.unit) for row in measured],
        "better": [place(row.better) for row in measured],
        "value": [row.value for row in measured],
        "samples": [list(row.samples) for row in measured],
    }
    return {"texts": list(texts), "attempts": attempts, "rows": numbers}


def _run(run: RunFacts) -> dict[str, Any]:
    return {
        "id": run.id,
        "command": run.command,
        "started": run.started_at.isoformat(),
        "ended": run.ended_at.isoformat() if run.ended_at else "",
        "state": str(run.state),
        "facts": [[metric_words(name), value] for name, value in facts_of(run)],
        "environment": _sorted(run.environment.items()),
        "commit": run.commit,
        "is_dirty": run.is_dirty,
    }


def _sorted(pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
    return [[name, value] for name, value in sorted(pairs)]
