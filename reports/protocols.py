"""Two protocols of one suite beside each other: what the paper says (`text`) and what its code does (`code`).

In setting 2 they are not the same question. Both train on sequences of 2S writes under S keys. The paper evaluates such
sequences too; its code evaluates sequences of S writes, where fewer keys have had two values.
"""

import math
from collections.abc import Iterator, Sequence
from statistics import median

from attnbench.harness.rows import Row, Status
from attnbench.harness.spec import Setting
from attnbench.reports.grids import Cell, Line, Table
from attnbench.reports.numbers import setting_written, written
from attnbench.reports.passage import Passage, ending_cell, loss_cell
from attnbench.reports.published import LoggedRun, logged_runs
from attnbench.reports.tables import NOT_SET, SuiteFacts, metric_words, order

_PROTOCOLS = ("code", "text")
_TITLE = "What the paper says and what its code does"

# (variant, axis value, protocol) -> the values of one metric, a seed each
_Values = dict[tuple[str, Setting, str], list[float]]


def protocols_passage(rows: Sequence[Row], suite: SuiteFacts) -> tuple[Passage, ...]:
    """Both protocols beside each other, at the axis values that have rows of both; nothing without any."""
    losses = _losses(rows, suite.axis)
    both = sorted({at for _, at, protocol in losses if protocol == "text"}, key=order)
    both = [at for at in both if any(key[1:] == (at, "code") for key in losses)]
    variants = sorted({key[0] for key in losses if key[1] in both}, key=order)
    if not both:
        return ()
    asked: dict[tuple[str, Setting, str], list[Row]] = {}
    for row in rows:
        key = (row.variant, row.point.get(suite.axis, ""), str(row.point.get("protocol", "")))
        asked.setdefault(key, []).append(row)
    logs = {(run.variant, run.at): run for run in logged_runs() if run.suite == suite.name}
    lines = tuple(
        Line(variant, (variant,), tuple(cell for at in both for cell in _cells(variant, at, losses, logs, asked)))
        for variant in variants
    )
    axis = metric_words(suite.axis)
    columns = tuple(f"{axis} {setting_written(at)}, {what}" for at in both for what in ("published", *_PROTOCOLS))
    notes = (
        "Best losses, the median of the seeds, below it smallest and largest",
        "Published: one seed of the released code",
    )
    table = Table("Best loss under both protocols", notes, ("variant",), "", columns, lines)
    return (Passage(_TITLE, (_in_words(rows, suite.axis, both[0], losses, logs),), (table,)),)


def _cells(
    variant: str,
    at: Setting,
    losses: _Values,
    logs: dict[tuple[str, int], LoggedRun],
    asked: dict[tuple[str, Setting, str], list[Row]],
) -> Iterator[Cell]:
    log = logs.get((variant, at)) if isinstance(at, int) else None
    theirs = log.best_loss if log is not None and log.is_complete else None
    yield Cell("retrieval_loss", NOT_SET) if theirs is None else loss_cell([theirs], source=log.source if log else "")
    for protocol in _PROTOCOLS:
        key = (variant, at, protocol)
        behind = asked.get(key, [])
        attempts = dict.fromkeys(row.attempt_id for row in behind)
        yield loss_cell(losses[key], attempts) if key in losses else ending_cell("retrieval_loss", behind)


def _in_words(
    rows: Sequence[Row], axis: str, at: Setting, losses: _Values, logs: dict[tuple[str, int], LoggedRun]
) -> str:
    words = (
        "Both protocols train on sequences of 2S writes under S keys, so that most keys get a new value on the way. The paper "
        "evaluates sequences of that length too (text); the released code evaluates sequences of S writes (code), where more "
        "keys have had one value only, and a rule that cannot replace a value still reads those right."
    )
    load = _values(rows, axis, "distinct_keys")
    means = {
        protocol: [value for key, values in load.items() if key[1:] == (at, protocol) for value in values]
        for protocol in _PROTOCOLS
    }
    if all(means.values()) and isinstance(at, int):
        code, text = (sum(means[protocol]) / len(means[protocol]) for protocol in _PROTOCOLS)
        words += (
            f" At S = {at}, {code:.1f} different keys are written in {at} writes of the one, {text:.1f} in {2 * at} of the "
            f"other: {at / code:.1f} against {2 * at / text:.1f} values a key."
        )
    pair = _largest_gap(at, losses)
    if pair is not None:
        variant, code, text = pair
        log = logs.get((variant, at)) if isinstance(at, int) else None
        logged = f", {written(log.best_loss, '1')} in the released log" if log is not None and log.best_loss else ""
        words += f" The largest gap is that of {variant}: {written(text, '1')} under text, {written(code, '1')} under code{logged}."
    return words


def _largest_gap(at: Setting, losses: _Values) -> tuple[str, float, float] | None:
    gaps = [
        (variant, median(losses[variant, at, "code"]), median(values))
        for (variant, where, protocol), values in losses.items()
        if where == at and protocol == "text" and (variant, at, "code") in losses
    ]
    above = [gap for gap in gaps if gap[1] < gap[2] < math.inf]
    # in units of the loss of reading nothing; a loss far above it says that a rule explodes
    return max(above, key=lambda gap: (min(gap[2], 0.5) - min(gap[1], 0.5), gap[0]), default=None)


def _losses(rows: Sequence[Row], axis: str) -> _Values:
    """The best losses; infinite for a seed that diverged where others did not."""
    found = _values(rows, axis, "retrieval_loss")
    diverged = {row.attempt_id: row for row in rows if row.status is Status.DIVERGED}
    for row in diverged.values():
        key = (row.variant, row.point.get(axis, ""), str(row.point.get("protocol", "")))
        if key in found:
            found[key].append(math.inf)
    return found


def _values(rows: Sequence[Row], axis: str, metric: str) -> _Values:
    found: _Values = {}
    for row in rows:
        protocol, at = row.point.get("protocol"), row.point.get(axis)
        if row.metric != metric or row.status is not Status.OK or row.value is None or not math.isfinite(row.value):
            continue
        if isinstance(protocol, str) and protocol in _PROTOCOLS and at is not None:
            found.setdefault((row.variant, at, protocol), []).append(row.value)
    return found
