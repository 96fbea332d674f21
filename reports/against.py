"""Published against measured: the released training runs of one suite beside ours under their protocol.

pairs and rule      reports/agreement.py
table               variant by variant, how many agree, differ, were left out
list                the runs that differ, both numbers, and what the rows say about why
figure              small multiples: published as a line, each measured seed as a point
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from attnbench.harness.rows import Row
from attnbench.reports.agreement import (
    ABSOLUTE_TOLERANCE,
    LOGGED,
    RELATIVE_TOLERANCE,
    SOLVED,
    Difference,
    Outcome,
    Pair,
    pairs,
)
from attnbench.reports.figures import Figure, svg_text
from attnbench.reports.grids import Cell, Line, Table, metric_head
from attnbench.reports.numbers import setting_written
from attnbench.reports.palette import Look
from attnbench.reports.panels import Panel, panels_drawn
from attnbench.reports.passage import Passage, loss_cell
from attnbench.reports.published import LoggedRun, logged_runs
from attnbench.reports.tables import SuiteFacts, metric_words, order

_TITLE = "Published against measured"
# Losses below stand on the lower edge of the figure: one that retrieves is as good as any other.
_LOSS_FLOOR = 1e-4
# How far along the axis a published run counts as near the point where its variant stops retrieving, in steps of the logs.
_NEAR_STEPS = 2


def against_passage(
    rows: Sequence[Row], suite: SuiteFacts, looks: Mapping[str, Look], prefix: str
) -> tuple[Passage, ...]:
    """The comparison for one suite under one set of conditions; nothing where no row has the published protocol."""
    found = pairs(rows, [run for run in logged_runs() if run.suite == suite.name])
    if not any(pair.measured or pair.endings for pair in found):
        return ()
    listed = (differences(found), left_out(found))
    shown = (counts(found), *(table for table in listed if table.lines))
    is_open = 2 if listed[0].lines else 1
    return (Passage(_TITLE, (_in_words(found),), shown, (_figure(found, looks, prefix),), is_open),)


def _in_words(found: Sequence[Pair]) -> str:
    outcomes = Counter(pair.agreement.outcome for pair in found)
    agree = outcomes[Outcome.BOTH_RETRIEVE] + outcomes[Outcome.BOTH_FAIL]
    compared = agree + outcomes[Outcome.DIFFERS]
    words = (
        f"Of the {len(found)} released training runs of this section, {compared} are compared with runs of the same variant, "
        f"length and protocol (protocol=code: what the released code does): {agree} agree, {outcomes[Outcome.DIFFERS]} differ."
    )
    for outcome, said in (
        (Outcome.BOTH_DIVERGED, "Ended in NaN on both sides, a class of its own"),
        (Outcome.EXCLUDED, "Left out by rule, and listed"),
        (Outcome.NOT_MEASURED, "Not measured here"),
    ):
        if outcomes[outcome]:
            words += f" {said}: {outcomes[outcome]}."
    return words


def counts(found: Sequence[Pair]) -> Table:
    """How the runs of each variant compare, and of all together; a column that is zero everywhere is left out."""
    variants = _variants(found)
    counted = [_counted([pair for pair in found if pair.variant == variant]) for variant in variants]
    names = [name for name in _counted(found) if name in _ALWAYS or any(one[name] for one in counted)]
    lines = [
        Line(variant, (variant,), tuple(map(_count_cell, (one[name] for name in names))))
        for variant, one in zip((*variants, "all"), (*counted, _counted(found)), strict=True)
    ]
    notes = (
        f"Two runs agree if both retrieve (best loss ≤ {SOLVED:g}), or both fail with best losses that lie within "
        f"{ABSOLUTE_TOLERANCE:g} of each other or within {100 * RELATIVE_TOLERANCE:g} % of the published one",
        "Several seeds of ours count as one by their median; each published run is one seed",
    )
    return Table("How many agree", notes, ("variant",), "", tuple(names), tuple(lines))


_ALWAYS = frozenset({"released runs", "agree", "differ"})


def _counted(some: Sequence[Pair]) -> dict[str, list[Pair]]:
    def outcome(*asked: Outcome) -> list[Pair]:
        return [pair for pair in some if pair.agreement.outcome in asked]

    def differing(way: Difference) -> list[Pair]:
        return [pair for pair in some if pair.agreement.difference is way]

    return {
        "released runs": list(some),
        "agree": outcome(Outcome.BOTH_RETRIEVE, Outcome.BOTH_FAIL),
        "both retrieve": outcome(Outcome.BOTH_RETRIEVE),
        "both fail": outcome(Outcome.BOTH_FAIL),
        "differ": outcome(Outcome.DIFFERS),
        "only measured retrieves": differing(Difference.MEASURED_RETRIEVES),
        "only published retrieves": differing(Difference.MEASURED_FAILS),
        "both fail, losses apart": differing(Difference.LOSS_DIFFERS),
        "only measured diverged": differing(Difference.MEASURED_DIVERGED),
        "NaN on both sides": outcome(Outcome.BOTH_DIVERGED),
        "excluded": outcome(Outcome.EXCLUDED),
        "not measured": outcome(Outcome.NOT_MEASURED),
    }


def _count_cell(some: Sequence[Pair]) -> Cell:
    attempts = tuple(number for pair in some for number in pair.attempts)
    return Cell("runs", setting_written(len(some)), value=float(len(some)), attempts=attempts)


def differences(found: Sequence[Pair]) -> Table:
    """The runs that differ, with both numbers and what the rows say about why."""
    differing = [pair for pair in found if pair.agreement.outcome is Outcome.DIFFERS]
    lines = []
    for pair in sorted(differing, key=lambda pair: (order(pair.variant), pair.at)):
        cells = (
            loss_cell([pair.published.best_loss], source=pair.published.source),
            Cell(
                "training_steps",
                setting_written(pair.published.steps),
                value=float(pair.published.steps),
                source=pair.published.source,
            ),
            loss_cell(list(pair.losses.values()), pair.attempts),
            _steps_cell(pair),
        )
        why = (str(pair.agreement.difference), *reasons(pair, found))
        lines.append(Line(pair.variant, (pair.variant, setting_written(pair.at)), cells, remarks=why))
    axis = found[0].published.axis if found else ""
    notes = (
        "Best losses and the steps after which the runs stopped; of several seeds the median, below it smallest and largest",
    )
    columns = ("published loss", "published steps", "measured loss", "measured steps")
    return Table("The runs that differ, and why", notes, ("variant", axis), "", columns, tuple(lines))


def left_out(found: Sequence[Pair]) -> Table:
    """The published runs that are compared with nothing, by rule."""
    lines = [
        Line(
            pair.variant,
            (pair.variant, setting_written(pair.at)),
            (
                loss_cell([pair.published.best_loss], source=pair.published.source),
                loss_cell(list(pair.losses.values()), pair.attempts),
            ),
            remarks=(pair.agreement.reason or "both runs ended in NaN",),
        )
        for pair in sorted(found, key=lambda pair: (order(pair.variant), pair.at))
        if pair.agreement.outcome in {Outcome.EXCLUDED, Outcome.BOTH_DIVERGED}
    ]
    axis = found[0].published.axis if found else ""
    notes = ("Best losses before the run broke off or became NaN",)
    return Table(
        "Released runs that ended in NaN or broke off",
        notes,
        ("variant", axis),
        "",
        ("published loss", "measured loss"),
        tuple(lines),
    )


def reasons(pair: Pair, found: Sequence[Pair]) -> tuple[str, ...]:
    """What is known about why a pair differs, from its neighbours along the axis, its seeds, and how its runs stopped."""
    said = []
    theirs = sorted((one.published for one in found if one.variant == pair.variant), key=lambda run: run.at)
    near = _breaking_at(pair.at, theirs)
    if near:
        said.append(near)
    seeds = [loss <= SOLVED for loss in pair.losses.values()]
    if any(seeds) and not all(seeds):
        said.append(f"{sum(seeds)} of our {len(seeds)} seeds retrieve")
    elif len(seeds) == 1:
        said.append("one seed on either side")
    losses = [loss for loss in (*pair.losses.values(), pair.published.best_loss) if loss is not None]
    if all(loss <= 10 * SOLVED for loss in losses):
        said.append(f"no loss is above {10 * SOLVED:g}, ten times the {SOLVED:g} that runs have to reach")
    if pair.published.remark:
        said.append(f"published: {pair.published.remark}")
    return (*said, *_stopped(pair))


def _breaking_at(at: int, runs: Sequence[LoggedRun]) -> str:
    """In words, if the published runs beside this one scatter between success and failure."""
    place = next((place for place, run in enumerate(runs) if run.at == at), None)
    if place is None:
        return ""
    beside = runs[max(0, place - _NEAR_STEPS) : place + _NEAR_STEPS + 1]
    sides = {run.at: run.best_loss is not None and run.best_loss <= SOLVED for run in beside if run.is_complete}
    if len(set(sides.values())) < 2:
        return ""
    failing = ", ".join(setting_written(length) for length, retrieves in sides.items() if not retrieves)
    holding = ", ".join(setting_written(length) for length, retrieves in sides.items() if retrieves)
    return f"near the breaking point: published runs beside it retrieve at {holding} and fail at {failing}"


def _stopped(pair: Pair) -> list[str]:
    """How the measured runs that did not retrieve came to an end, those that ended alike together."""
    ends: dict[str, list[int]] = {}
    for run in pair.measured:
        if not math.isfinite(run.best_loss):
            ends.setdefault("diverged", []).append(run.seed)
        elif run.best_loss > SOLVED and run.steps is not None:
            spent = run.steps == LOGGED.settings["max_steps"]
            ending = "spent all of its steps" if spent else f"stopped by patience at step {setting_written(run.steps)}"
            ends.setdefault(ending, []).append(run.seed)
    return [
        f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))} of ours {ending}"
        for ending, seeds in ends.items()
    ]


def _variants(found: Sequence[Pair]) -> list[str]:
    return sorted({pair.variant for pair in found}, key=order)


def _steps_cell(pair: Pair) -> Cell:
    steps = [run.steps for run in pair.measured if run.steps is not None]
    if not steps:
        return Cell("training_steps", "not recorded")
    middle, low, high = median(steps), min(steps), max(steps)
    spread = f"{setting_written(low)} – {setting_written(high)}" if low != high else ""
    return Cell("training_steps", setting_written(middle), value=middle, spread=spread, attempts=pair.attempts)


def _figure(found: Sequence[Pair], looks: Mapping[str, Look], prefix: str) -> Figure:
    drawn = [variant for variant in _variants(found) if any(pair.losses for pair in found if pair.variant == variant)]
    panels = [_panel([pair for pair in found if pair.variant == variant], looks[variant]) for variant in drawn]
    axis = metric_words(found[0].published.axis)
    said = [pair.agreement.agrees for pair in found if pair.agreement.agrees is not None]
    alt = (
        f"{_TITLE}: best loss against {axis}, one small figure a variant: {', '.join(drawn)}. "
        f"{sum(said)} of {len(said)} measured lengths agree with the published run. Lower is better."
    )
    svg = svg_text(
        lambda: panels_drawn(
            panels, axis, metric_head("retrieval_loss"), floor=_LOSS_FLOOR, level=("retrieves", SOLVED)
        ),
        f"{prefix}-against",
        alt,
    )
    caption = (
        f"Line: the best loss of the released run. Points: ours, a seed each. Ringed: the two differ by the rule of the table. "
        f"Losses below {_LOSS_FLOOR:g} stand on the lower edge; runs that diverged are not drawn."
    )
    return Figure("retrieval_loss", f"{_TITLE}: best loss", svg, alt, caption)


def _panel(theirs: Sequence[Pair], look: Look) -> Panel:
    def points(some: Sequence[Pair]) -> tuple[tuple[float, float], ...]:
        return tuple((pair.at, loss) for pair in some for _, loss in sorted(pair.losses.items()) if math.isfinite(loss))

    logs = sorted((pair.published for pair in theirs if pair.published.is_complete), key=lambda run: run.at)
    return Panel(
        theirs[0].variant,
        look,
        tuple((run.at, run.best_loss) for run in logs if run.best_loss is not None),
        points(theirs),
        points([pair for pair in theirs if pair.agreement.outcome is Outcome.DIFFERS]),
    )
