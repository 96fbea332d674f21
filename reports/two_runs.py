"""Two runs held against each other on a page: ratios with intervals, drawn and as tables, and what the runs are."""

import math
from collections.abc import Mapping, Sequence

from attnbench.harness.metrics import METRICS
from attnbench.harness.rows import Row
from attnbench.reports.comparison import Compared, Comparison, compare, remarks_of, tables_of
from attnbench.reports.figures import Figure, svg_text
from attnbench.reports.fronts import Change, changes_drawn
from attnbench.reports.numbers import setting_written
from attnbench.reports.palette import Look
from attnbench.reports.passage import Passage
from attnbench.reports.provenance import RunFacts
from attnbench.reports.tables import metric_words

_DRAWN = 40
_FIELDS = ("suite", "scale", "device", "threads", "metric", "variant")


def two_runs_passage(rows: Sequence[Row], a: RunFacts, b: RunFacts, looks: Mapping[str, Look]) -> Passage:
    """B against A. `rows` are all attempts of both. Raises BadParameter where they have no case in common."""
    found = compare(rows, {"run": a.id}, {"run": b.id})
    words = (_named("A", a), _named("B", b), _counted(found), *remarks_of(found))
    figures = (_figure(found.cases, looks),) if found.cases else ()
    return Passage("Run B against run A", words, tables_of(found.cases), figures)


def _named(side: str, run: RunFacts) -> str:
    commit = f"at commit {run.commit[:12]}" if run.commit else "at a commit that is not recorded"
    changes = " with changes that are in no commit" if run.is_dirty else ""
    where = run.machine.get("cpu", "a processor that is not recorded")
    return f"{side}: {run.id}, from {run.started_at:%Y-%m-%d %H:%M} UTC on {where}, {commit}{changes}: {run.command}"


def _counted(found: Comparison) -> str:
    better = sum(_speaks_for_b(case) is True for case in found.cases)
    worse = sum(_speaks_for_b(case) is False for case in found.cases)
    told = [case for case in found.cases if case.ratio.low is not None]
    return (
        f"{len(found.cases)} numbers in common: {better} better in B and {worse} worse, by more than their intervals; "
        f"{len(told) - sum(case.ratio.is_apart for case in told)} not told apart; {len(found.cases) - len(told)} with one reading "
        "a side, so no interval."
    )


def _speaks_for_b(case: Compared) -> bool | None:
    """Whether the interval says that B is better; None where it says nothing, or nothing is better."""
    metric = str(dict(case.key).get("metric", ""))
    better = METRICS[metric].better if metric in METRICS else "neither"
    if better == "neither" or not case.ratio.is_apart:
        return None
    return (case.ratio.value > 1) == (better == "higher")


def _figure(cases: Sequence[Compared], looks: Mapping[str, Look]) -> Figure:
    ranked = sorted(cases, key=lambda case: (not case.ratio.is_apart, -abs(math.log(case.ratio.value))))
    varying = {name for case in cases for name, _ in case.key}
    varying = {name for name in varying if len({str(dict(case.key).get(name)) for case in cases}) > 1}
    changes = [_change(case, varying, looks) for case in ranked[:_DRAWN]]
    title = "B / A of the medians"
    ends = (f"{one.label} {one.ratio:.3g}" for one in changes[:5])
    alt = f"{title}, a line a number; the furthest from 1: {'; '.join(ends)}."
    svg = svg_text(lambda: changes_drawn(changes, title), "two-runs", alt)
    caption = "Bars: 95 % intervals. Hollow: not told apart from 1, or one reading a side."
    if len(cases) > len(changes):
        caption += (
            f" The {len(changes)} of {len(cases)} that are furthest from 1 beyond their intervals; the tables have all."
        )
    return Figure("ratio", title, svg, alt, caption)


def _change(case: Compared, varying: set[str], looks: Mapping[str, Look]) -> Change:
    named = dict(case.key)
    words = [metric_words(str(named.get("metric", ""))), str(named.get("variant", ""))]
    words += [
        f"{metric_words(name)} {setting_written(value)}"
        for name, value in case.key
        if name in varying and name not in _FIELDS
    ]
    ratio = case.ratio
    look = looks[str(named["variant"])]
    return Change(", ".join(words), look, ratio.value, ratio.low, ratio.high, ratio.is_apart)
