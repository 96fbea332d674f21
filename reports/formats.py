"""The report for machines: its tables as Markdown, everything as JSON, its rows as CSV."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attnbench.harness.rows import Row
from attnbench.reports.board import board, board_table
from attnbench.reports.failures import failures_of
from attnbench.reports.grids import Cell, Table, tables
from attnbench.reports.parts import parts_of
from attnbench.reports.provenance import RunFacts, facts_of
from attnbench.reports.published import published
from attnbench.reports.tables import SuiteFacts, frame, metric_words
from attnbench.reports.verdict_board import records_of, verdict_board

FORMATS = ("html", "md", "json", "csv")


def as_csv(rows: Sequence[Row]) -> str:
    """One line a metric of an attempt, a column for each field and each setting; samples and facts as JSON."""
    data = frame(rows)
    for name in ("samples", "facts"):
        data[name] = [json.dumps(dict(one) if isinstance(one, Mapping) else list(one)) for one in data[name]]
    return data.to_csv(index=False, lineterminator="\n")


def as_json(rows: Sequence[Row], suites: Sequence[SuiteFacts], runs: Sequence[RunFacts], title: str) -> str:
    """Runs, verdicts, tables by suite and conditions, and the rows."""
    used = {row.run_id for row in rows}
    listed = {
        "title": title,
        "runs": [_run(run) for run in runs if run.id in used],
        "verdicts": records_of(verdict_board(rows)),
        "suites": [
            {
                "suite": part.suite.name,
                "question": part.suite.question,
                "scale": part.conditions.scale,
                "device": part.conditions.device,
                "testbed": part.conditions.testbed,
                "tables": [_table(table) for table in tables(part.rows, part.suite, published())],
            }
            for part in parts_of(rows, suites)
        ],
        "rows": [_row(row) for row in rows],
    }
    return json.dumps(listed, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def as_markdown(rows: Sequence[Row], suites: Sequence[SuiteFacts], title: str) -> str:
    """The verdicts in short, the summary, and the tables of each suite with the failures in words."""
    return "\n".join(_markdown(rows, suites, title))


def _markdown(rows: Sequence[Row], suites: Sequence[SuiteFacts], title: str) -> Iterator[str]:
    yield f"# {_escaped(title)}\n"
    if not rows:
        yield "Nothing is stored for this. `attnbench run` measures.\n"
        return
    counts = verdict_board(rows).counts
    yield f"Published claims: {', '.join(f'{count} {ruling}' for ruling, count in counts.items())}.\n"
    parts = parts_of(rows, suites)
    yield from _markdown_table(board_table(*board(parts)), "##")
    for part in parts:
        yield f"## {_escaped(part.suite.title)}: {_escaped(str(part.conditions))}\n"
        yield f"{_escaped(part.suite.question)}\n"
        for table in tables(part.rows, part.suite, published()):
            yield from _markdown_table(table, "###")
        for failure in failures_of(part.rows, part.suite.axis):
            yield f"- {_escaped(failure.variant)}, {failure.places}: {_escaped(failure.words)}"
        yield ""


def _markdown_table(table: Table, level: str) -> Iterator[str]:
    yield f"{level} {_escaped(table.title)}\n"
    columns = [f"{metric_words(table.axis)} {name}" if table.axis else name for name in table.columns]
    heads = [*map(metric_words, table.heads), *columns, *(["remarks"] if table.has_remarks else [])]
    yield _markdown_row(heads)
    yield _markdown_row(["---"] * len(table.heads) + ["---:"] * len(columns) + ["---"] * table.has_remarks)
    for line in table.lines:
        remarks = ["; ".join(line.remarks)] if table.has_remarks else []
        yield _markdown_row([*line.labels, *(_words(cell) for cell in line.cells), *remarks])
    yield ""
    if table.notes:
        yield f"{_escaped('. '.join(table.notes))}.\n"


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell if set(cell) <= {'-', ':'} else _escaped(cell) for cell in cells)} |"


def _words(cell: Cell) -> str:
    words = [cell.text, f"({cell.spread})" if cell.spread else "", cell.lost, cell.mark]
    words.append(f"published {cell.published_text}" if cell.published else "")
    return " ".join(filter(None, words))


def _escaped(text: str) -> str:
    """A text that Markdown shows as it is: no markup, no formula, no further cell, no further line."""
    for letter in "\\`*_[]|$":
        text = text.replace(letter, f"\\{letter}")
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return " ".join(text.splitlines())


def _table(table: Table) -> dict[str, Any]:
    return {
        "title": table.title,
        "notes": table.notes,
        "heads": table.heads,
        "axis": table.axis,
        "columns": table.columns,
        "lines": [{"labels": line.labels, "cells": [_cell(cell) for cell in line.cells]} for line in table.lines],
    }


def _cell(cell: Cell) -> dict[str, Any]:
    theirs = cell.published
    return {
        "metric": cell.metric,
        "text": cell.text,
        "value": cell.value,
        "low": cell.low,
        "high": cell.high,
        "spread": cell.spread_kind,
        "n": cell.n,
        "counted": cell.counted,
        "words": cell.words,
        "mark": cell.mark,
        "published": None if theirs is None else {"value": theirs.value, "source": theirs.source, "note": theirs.note},
        "attempts": cell.attempts,
    }


def _row(row: Row) -> dict[str, Any]:
    fields = {name: getattr(row, name) for name in Row.__dataclass_fields__}
    shown = {"point": dict(row.point), "facts": dict(row.facts), "started_at": row.started_at.isoformat()}
    return {**fields, **shown, "status": row.status.value, "samples": list(row.samples)}


def _run(run: RunFacts) -> dict[str, Any]:
    return {
        "id": run.id,
        "command": run.command,
        "started_at": run.started_at.isoformat(),
        "ended_at": run.ended_at.isoformat() if run.ended_at else None,
        "state": str(run.state),
        **dict(facts_of(run)),
    }
