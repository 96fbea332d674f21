"""From rows to statistics: the tidy frame, what its cases share, and per metric the median, spread and n of each cell.

rows -> frame -> layout   which settings are the same everywhere, which follow the axis, which tell lines apart
              -> summary  one line a cell: median, low, high, n, and the words for attempts that gave no number
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from attnbench.harness.metrics import METRICS
from attnbench.harness.rows import Row, Status
from attnbench.harness.spec import SCALES, Setting

if TYPE_CHECKING:
    import pandas as pd

# What stands in for a setting that a case does not have (a counted floor has no key width).
NOT_SET = "–"
# Reference rows come from counting n-grams, not from a model: a floor, drawn as a line and never as a variant.
FLOOR_FORM = "count"
# A value counts as retrieved at this loss or below.
RETRIEVES = 0.01


class SuiteFacts(Protocol):
    """What a report needs to know of a suite. The first of `metrics` is the headline."""

    @property
    def name(self) -> str:
        """The name, as in `attnbench run NAME`."""

    @property
    def title(self) -> str:
        """The name as a heading."""

    @property
    def question(self) -> str:
        """What it asks, in one sentence."""

    @property
    def source(self) -> str:
        """Where the question is from."""

    @property
    def axis(self) -> str:
        """The point setting that tables and figures run along."""

    @property
    def metrics(self) -> Sequence[str]:
        """What it measures."""


@dataclass(frozen=True)
class Conditions:
    """What rows must share to stand in one table. `testbed` is empty where no clock decides the number."""

    scale: str
    device: str
    testbed: str

    def __str__(self) -> str:
        return f"{self.scale} scale on {self.testbed or self.device}"


def by_conditions(rows: Iterable[Row]) -> dict[Conditions, list[Row]]:
    """The rows apart by scale, device and testbed; larger scales first."""
    parts: dict[Conditions, list[Row]] = {}
    for row in rows:
        parts.setdefault(Conditions(row.scale, row.device, row.testbed), []).append(row)

    def rank(part: Conditions) -> tuple[int, str, str, str]:
        known = SCALES.index(part.scale) if part.scale in SCALES else -1
        return (-known, part.scale, part.device, part.testbed)

    return {part: parts[part] for part in sorted(parts, key=rank)}


def mixtures(rows: Iterable[Row]) -> tuple[str, ...]:
    """A sentence where the attempts of one cell, its seeds, are of more than one code or data hash; else nothing."""
    hashes: dict[tuple[str, str, str, int], set[tuple[str, str]]] = {}
    for row in {row.attempt_id: row for row in rows if row.status is Status.OK}.values():
        cell = (row.variant, row.form, row.point.json(), row.threads)
        hashes.setdefault(cell, set()).add((row.code_hash, row.data_hash))
    variants = {cell[0] for cell, found in hashes.items() if len(found) > 1}
    if not variants:
        return ()
    named = ", ".join(sorted(variants, key=order))
    return (f"Some cells have seeds that were measured by different code or on different data: {named}",)


def frame(rows: Iterable[Row]) -> "pd.DataFrame":
    """The rows as a tidy frame: one line a row, a column for each field and a `point.NAME` for each setting."""
    import pandas as pd

    fields = [name for name in Row.__dataclass_fields__ if name != "point"]
    listed = list(rows)
    settings = sorted({name for row in listed for name in row.point})
    records: dict[str, list[Any]] = {name: [getattr(row, name) for row in listed] for name in fields}
    records["status"] = [row.status.value for row in listed]
    for name in settings:
        records[f"point.{name}"] = [row.point.get(name, NOT_SET) for row in listed]
    # Settings keep their own types: a column of 64 and "–" must not become text or float.
    columns = {
        name: pd.Series(values, dtype=float if name in {"value", "seconds"} else object)
        for name, values in records.items()
    }
    return pd.DataFrame(columns)


def attempts(data: "pd.DataFrame") -> "pd.DataFrame":
    """One line an attempt, whatever it measured."""
    return data.drop_duplicates("attempt_id")


class Layout(NamedTuple):
    """How the settings of a table's cases behave. Names are settings of the point, or `form` and `threads`."""

    constant: Mapping[str, Setting]
    along_axis: Mapping[str, Mapping[Setting, Setting]]
    varying: tuple[str, ...]


def layout(data: "pd.DataFrame", axis: str) -> Layout:
    """Which settings are the same in all cases, which follow from the axis value, and which tell lines apart."""
    cases = attempts(data)
    models = cases[cases["form"] != FLOOR_FORM]
    cases = cases if models.empty else models
    along = column(axis)
    constant: dict[str, Setting] = {}
    along_axis: dict[str, dict[Setting, Setting]] = {}
    varying: list[str] = []
    settings = sorted(name.removeprefix("point.") for name in cases.columns if name.startswith("point."))
    for name in ("form", *(name for name in settings if name != axis), "threads"):
        pairs: dict[Setting, set[Setting]] = {}
        axis_values = cases[along] if along in cases else [NOT_SET] * len(cases)
        for at, value in zip(axis_values, cases[column(name)], strict=True):
            if value != NOT_SET:
                pairs.setdefault(at, set()).add(value)
        distinct = set().union(*pairs.values())
        if len(distinct) == 1:
            constant[name] = distinct.pop()
        elif distinct and all(len(values) == 1 for values in pairs.values()):
            along_axis[name] = {at: next(iter(pairs[at])) for at in sorted(pairs, key=order)}
        elif distinct:
            varying.append(name)
    return Layout(constant, along_axis, tuple(varying))


def column(setting: str) -> str:
    """The column of the frame that holds a setting."""
    return setting if setting in {"variant", "form", "threads"} else f"point.{setting}"


@dataclass(frozen=True)
class Summary:
    """One metric, said for every line and axis value. `by` names what tells lines apart: the variant and what varies.

    `cells` has a row for each: `median`, `low`, `high`, `n`, and what went wrong. `n` counts attempts (seeds), or the
    raw samples of a single attempt that has some: `counted` says which. The spread from `low` to `high` is the
    interquartile range, or min–max where n < 4: `spread` says which. Only attempts that ended as ok enter; `failed`
    counts the others by their words, each as "status: reason"; `asked` counts all. `better` is the metric's good
    direction: lower, higher or neither.
    """

    metric: str
    unit: str
    better: str
    axis: str
    layout: Layout
    by: tuple[str, ...]
    cells: "pd.DataFrame"

    def lines(self) -> Iterator["SummaryLine"]:
        """The lines in reading order: variants as people count, floors last.

        A line that ran well and never measured the metric is left out: the metric is not its business.
        """
        lines: dict[tuple[Any, ...], dict[Setting, dict[str, Any]]] = {}
        for record in self.cells.to_dict("records"):
            cell = {str(name): value for name, value in record.items()}
            lines.setdefault(tuple(cell[name] for name in self.by), {})[cell[self.axis]] = cell
        found = [
            SummaryLine(key, cells, all(cell["form"] == FLOOR_FORM for cell in cells.values()))
            for key, cells in lines.items()
        ]
        for line in sorted(found, key=lambda line: (line.is_floor, *map(order, line.key))):
            ran = any("not measured" in cell["failed"] for cell in line.cells.values())
            if not ran or any(cell["n"] for cell in line.cells.values()):
                yield line

    def point(self, line: "SummaryLine", at: Setting) -> dict[str, Setting]:
        """The settings of one cell, put together from the constant ones, those that follow the axis, and the line's."""
        along = {name: values[at] for name, values in self.layout.along_axis.items() if at in values}
        return {**self.layout.constant, **along, **dict(zip(self.by, line.key, strict=True)), self.axis: at}


class SummaryLine(NamedTuple):
    """The cells of one line by axis value. The first of `key` is the variant."""

    key: tuple[Any, ...]
    cells: Mapping[Setting, Mapping[str, Any]]
    is_floor: bool


def summary(data: "pd.DataFrame", metric: str, axis: str) -> Summary:
    """The statistics of one metric along the axis."""
    import pandas as pd

    data = asked(data, metric, axis)
    measured = data[data["metric"] == metric].drop_duplicates("attempt_id").set_index("attempt_id")
    plan = layout(data, axis)
    by = ("variant", *plan.varying)
    keys = tuple(dict.fromkeys((*by, "form", axis)))
    cases = attempts(data).set_index("attempt_id").drop(columns=["value", "samples"])
    cases = cases.join(measured[["value", "samples"]])
    if column(axis) not in cases:
        cases[column(axis)] = NOT_SET
    parts: dict[tuple[Any, ...], list[Mapping[Any, Any]]] = {}
    for case in cases.reset_index().to_dict("records"):
        parts.setdefault(tuple(case[column(name)] for name in keys), []).append(case)
    interval = METRICS[metric].interval if metric in METRICS else ""
    cells = [{**dict(zip(keys, key, strict=True)), **_statistics(part, interval)} for key, part in parts.items()]
    unit = str(measured["unit"].iloc[0]) if len(measured) else "1"
    better = str(measured["better"].iloc[0]) if len(measured) else "neither"
    return Summary(metric, unit, better, axis, plan, by, pd.DataFrame(cells, columns=[*keys, *_STATISTICS]))


def asked(data: "pd.DataFrame", metric: str, axis: str) -> "pd.DataFrame":
    """The rows of the cases that were to measure `metric`.

    Some suites measure one metric under one value of a setting (`phase=training`) and another under another. A value
    under which cases end as ok and none of them has the metric is not asked for it, so its failures are not either.
    """
    fine = data[data["status"] == Status.OK]
    keep = data["status"].notna()
    for name in (name for name in data.columns if name.startswith("point.") and name != column(axis)):
        foreign = set(fine[name]) - set(fine.loc[fine["metric"] == metric, name])
        keep &= ~data[name].isin(foreign)
    return data[keep]


Floor = tuple[str, float]


def floors(lines: Iterable[SummaryLine], better: str) -> dict[Setting, Floor]:
    """For each axis value the name and value of the counted floor that is hardest to beat."""
    found: dict[Setting, list[Floor]] = {}
    for line in lines:
        for at, cell in line.cells.items():
            if line.is_floor and cell["n"]:
                found.setdefault(at, []).append((str(line.key[0]), cell["median"]))
    return {at: floor for at, those in found.items() if (floor := hardest(those, better))}


def hardest(found: Iterable[Floor], better: str) -> Floor | None:
    """The floor that is hardest to beat: the highest where higher is better, else the lowest; None where there is none."""
    sign = -1 if better == "higher" else 1
    return min(found, key=lambda floor: sign * floor[1], default=None)


def beaten_by_counting(value: float, floor: Floor | None, better: str) -> str:
    """The words for a number that says nothing about a model because counting does better; else nothing."""
    if floor is None or value == floor[1] or (value > floor[1]) == (better == "higher"):
        return ""
    return f"{'below' if better == 'higher' else 'above'} the {floor[0]} floor: compares nothing"


def compares_nothing(value: float | None, metric: str) -> str:
    """The words for a number that is too low to compare anything, whoever reached it; else nothing."""
    least = METRICS[metric].compares_from if metric in METRICS else None
    if value is None or least is None or value >= least:
        return ""
    return f"a {metric_words(metric).replace('bleu', 'BLEU')} below {least:g} compares nothing"


def status_words(status: str, reason: str) -> str:
    """An ending in words: "diverged: the loss was not finite at step 120"."""
    words = status.replace("_", " ")
    return f"{words}: {reason}" if reason else words


def metric_words(metric: str) -> str:
    """A metric's name as a reader sees it."""
    return metric.replace("_", " ")


def order(value: object) -> tuple[int, float, tuple[tuple[int, int, str], ...]]:
    """A key that sorts numbers by size, before texts, and texts as people count: m64 before m128."""
    if isinstance(value, int | float):
        return (0, float(value), ())
    parts = re.findall(r"\d+|\D+", str(value))
    return (1, 0.0, tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts))


_STATISTICS = ("median", "low", "high", "n", "counted", "spread", "failed", "attempts", "asked")


def _statistics(cases: Sequence[Mapping[Any, Any]], interval: str = "") -> dict[str, Any]:
    """Of the attempts of a cell. With `interval` the samples of a single one are its ends, and this says of what."""
    values: list[float] = []
    samples: list[tuple[float, ...]] = []
    words: Counter[str] = Counter()
    for case in cases:
        if case["status"] != Status.OK:
            words[status_words(case["status"], case["reason"])] += 1
        elif not isinstance(case["samples"], tuple):
            words["not measured"] += 1
        elif not math.isfinite(case["value"]):
            words["not finite"] += 1
        else:
            values.append(case["value"])
            samples.append(case["samples"])
    counted, seen = "seeds", values
    # Samples that do not lie around the value are of another quantity, and so is their spread.
    if len(values) == 1 and len(samples[0]) > 1 and min(samples[0]) <= values[0] <= max(samples[0]):
        counted, seen = "samples", list(samples[0])
    low, high, spread = _spread(seen)
    if interval and counted == "samples":
        (low, high), spread, counted, seen = seen, interval, "seeds", values
    return {
        "median": _quantile(values, 0.5),
        "low": low,
        "high": high,
        "n": len(seen),
        "counted": counted,
        "spread": spread,
        "failed": words,
        "attempts": tuple(case["attempt_id"] for case in cases),
        "asked": len(cases),
    }


def _spread(values: list[float]) -> tuple[float, float, str]:
    if len(values) < 2:
        return (math.nan, math.nan, "")
    if len(values) < 4:
        return (min(values), max(values), "min–max")
    return (_quantile(values, 0.25), _quantile(values, 0.75), "interquartile range")


def _quantile(values: list[float], share: float) -> float:
    import numpy as np

    return float(np.quantile(values, share)) if values else math.nan
