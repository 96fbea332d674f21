"""What one gets against what one pays: each quality of a variant beside each of its costs, and the Pareto front.

    front      the variants that no other is ahead of: as good or better on both axes, and better on one of them
    better     the spreads of the two numbers do not overlap; a difference inside the noise is none

A measure (`reports/sections/`) is read from the rows of one suite under one set of conditions: of several the one with most
variants, then the largest scale.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attnbench.reports.board import Part
from attnbench.reports.figures import MOST_LINES, Figure, svg_text
from attnbench.reports.fronts import Dot, Scale, front_drawn
from attnbench.reports.numbers import setting_written, written
from attnbench.reports.palette import Look
from attnbench.reports.section import Measure, Reading, Readings
from attnbench.reports.sections import sections
from attnbench.reports.tables import Summary, SummaryLine, metric_words, order, summary


@dataclass(frozen=True)
class Side:
    """One axis: the measure, where its numbers are from, and they."""

    measure: Measure
    part: Part
    readings: Readings

    @property
    def says(self) -> str:
        """What the numbers are and under which conditions."""
        return f"{self.readings.says}; {self.part.suite.title}, {self.part.conditions}"


@dataclass(frozen=True)
class Tradeoff:
    """A quality against a cost, drawn, with the variants on the front from cheap to dear."""

    quality: Side
    cost: Side
    front: tuple[str, ...]
    figure: Figure

    @property
    def shared(self) -> int:
        """How many variants have both numbers."""
        return len(self.quality.readings.by_variant.keys() & self.cost.readings.by_variant.keys())

    @property
    def name(self) -> str:
        """Its name in the page, as in capacity-state."""
        return f"{self.quality.measure.key}-{self.cost.measure.key}"


def tradeoffs(parts: Sequence[Part], looks: Mapping[str, Look]) -> tuple[Tradeoff, ...]:
    """Every quality against every cost that share two variants or more, each drawn."""
    sides = [side for section in sections().values() for one in section.measures if (side := side_of(one, parts))]
    # costs from behind: what memory and time cost before what a model says of itself
    costs = [side for side in reversed(sides) if side.measure.role == "cost"]
    found = []
    for quality in (side for side in sides if side.measure.role == "quality"):
        for cost in costs:
            if len(quality.readings.by_variant.keys() & cost.readings.by_variant.keys()) > 1:
                found.append(_tradeoff(quality, cost, looks))
    return tuple(found)


def side_of(measure: Measure, parts: Sequence[Part]) -> Side | None:
    """The numbers of a measure from the part that has them of most variants; None where none has any."""
    found = []
    suites = [section.suite for section in sections().values() if measure in section.measures]
    for part in parts:
        if part.suite.name in suites:
            readings = measure.read(part) if measure.read else at_the_end(part, measure.metric)
            if readings is not None and readings.by_variant:
                found.append(Side(measure, part, readings))
    # parts come with larger scales first, and of equals the first is taken
    return max(found, key=lambda side: len(side.readings.by_variant), default=None)


def at_the_end(part: Part, metric: str) -> Readings | None:
    """A metric where the suite's axis ends, under the settings that most variants have; of a variant's forms the best."""
    sums = summary(part.data, metric, part.suite.axis)
    settings: dict[tuple[object, ...], list[SummaryLine]] = {}
    for line in sums.lines():
        if not line.is_floor and any(cell["n"] for cell in line.cells.values()):
            settings.setdefault(_settings(sums, line), []).append(line)
    if not settings:
        return None
    key = max(settings, key=lambda one: len({line.key[0] for line in settings[one]}))
    lines = settings[key]
    counts: dict[object, set[str]] = {}
    for line in lines:
        for at, cell in line.cells.items():
            if cell["n"]:
                counts.setdefault(at, set()).add(str(line.key[0]))
    far = max(counts, key=lambda at: (len(counts[at]), order(at)))
    best: dict[str, Reading] = {}
    for line in lines:
        cell = line.cells.get(far)  # type: ignore[call-overload]
        if cell is not None and cell["n"]:
            reading = _reading(cell)
            known = best.get(str(line.key[0]))
            if known is None or (reading.value > known.value) == (sums.better == "higher"):
                best[str(line.key[0])] = reading
    names = [name for name in sums.by[1:] if name != "form"]
    told = (f"{metric_words(name)} {setting_written(value)}" for name, value in zip(names, key, strict=True))
    says = ", ".join((f"{metric_words(metric)} at {metric_words(sums.axis)} {setting_written(far)}", *told))
    return Readings(says, sums.better, sums.unit, best)


def is_ahead(one: Reading, other: Reading, better: str) -> bool:
    """Whether a number is better than another by more than both spreads."""
    ends = [(reading.value if end is None else end) for reading in (one, other) for end in (reading.low, reading.high)]
    one_low, one_high, other_low, other_high = ends
    return one_low > other_high if better == "higher" else one_high < other_low


def front_of(quality: Readings, cost: Readings) -> tuple[str, ...]:
    """The variants that have both numbers and that none is ahead of, from cheap to dear."""
    both = [name for name in quality.by_variant if name in cost.by_variant]

    def beats(one: str, other: str) -> bool:
        sides = [(side.by_variant[one], side.by_variant[other], side.better) for side in (quality, cost)]
        return any(is_ahead(a, b, better) for a, b, better in sides) and not any(
            _is_worse(a, b, better) for a, b, better in sides
        )

    front = [name for name in both if not any(beats(other, name) for other in both if other != name)]
    sign = -1 if cost.better == "higher" else 1
    return tuple(sorted(front, key=lambda name: (sign * cost.by_variant[name].value, order(name))))


def _is_worse(one: Reading, other: Reading, better: str) -> bool:
    """Whether a number lies behind another at all: what is not told apart does not make a winner either."""
    return one.value < other.value if better == "higher" else one.value > other.value


def _settings(sums: Summary, line: SummaryLine) -> tuple[object, ...]:
    return tuple(value for name, value in zip(sums.by[1:], line.key[1:], strict=True) if name != "form")


def _reading(cell: Mapping[str, object]) -> Reading:
    low, high = cell["low"], cell["high"]
    has_spread = bool(cell["spread"])
    return Reading(
        float(cell["median"]),  # type: ignore[arg-type]
        float(low) if has_spread else None,  # type: ignore[arg-type]
        float(high) if has_spread else None,  # type: ignore[arg-type]
        int(cell["n"]),  # type: ignore[call-overload]
        attempts=tuple(cell["attempts"]),  # type: ignore[arg-type]
    )


def _tradeoff(quality: Side, cost: Side, looks: Mapping[str, Look]) -> Tradeoff:
    front = front_of(quality.readings, cost.readings)
    both = sorted(quality.readings.by_variant.keys() & cost.readings.by_variant.keys(), key=order)
    left_out = len(both) - MOST_LINES
    if left_out > 0:
        drawn = {*front, *sorted(both, key=lambda name: name not in front)[:MOST_LINES]}
        both = [name for name in both if name in drawn]
    dots = [
        Dot(name, looks[name], cost.readings.by_variant[name], quality.readings.by_variant[name], name in front)
        for name in both
    ]
    title = f"{quality.measure.title} against {cost.measure.title}"
    scales = [Scale(side.measure.title, side.readings.better, side.readings.unit) for side in (cost, quality)]
    told = (
        f"{dot.variant} {written(dot.y.value, quality.readings.unit)} for {written(dot.x.value, cost.readings.unit)}"
        for dot in dots
    )
    alt = f"{title}. {'; '.join(told)}. On the front: {', '.join(front)}."
    name = f"tradeoff-{quality.measure.key}-{cost.measure.key}"
    svg = svg_text(lambda: front_drawn(dots, front, *scales), name, alt)
    caption = (
        f"Up and to the left is better. Up: {quality.says}. To the left: {cost.says}. Ringed: no other variant is ahead of it "
        "on one axis by more than the spreads (bars) and at least as good on the other."
    )
    alone = [side for side in (quality, cost) if any(one.n < 2 for one in side.readings.by_variant.values())]
    if alone:
        caption += f" One reading and no spread: some of {' and of '.join(side.measure.title for side in alone)}."
    if left_out > 0:
        caption += f" Drawn: the front and others, {len(both)} of {left_out + MOST_LINES} variants."
    return Tradeoff(
        quality, cost, front, Figure(quality.measure.metric, title[:1].upper() + title[1:], svg, alt, caption)
    )
