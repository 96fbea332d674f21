"""The figures of a suite as SVG text: curves along the axis, or a point a variant where the axis has one value.

Nothing of pyplot is used, so no state stays behind; the same rows give the same text, byte for byte.
"""

import html
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from attnbench.harness.metrics import METRICS
from attnbench.harness.rows import Row
from attnbench.harness.spec import Setting
from attnbench.reports.drawing import INK, Curve, Scales, curves_drawn, points_drawn
from attnbench.reports.grids import measured_metrics, metric_head
from attnbench.reports.numbers import setting_written, written
from attnbench.reports.palette import Look
from attnbench.reports.published import Published
from attnbench.reports.tables import SuiteFacts, Summary, frame, metric_words, order, summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


@dataclass(frozen=True)
class Figure:
    """A figure: its SVG text, what it shows in words for who cannot see it, and what it leaves out."""

    metric: str
    title: str
    svg: str
    alt: str
    caption: str


# More lines than this nobody tells apart: the best are drawn, and the table has all.
MOST_LINES = 40


@dataclass(frozen=True)
class Plan:
    """Which metrics of a suite are drawn and on what scales. None: the headline; chosen from the numbers."""

    metrics: tuple[str, ...] | None = None
    x: str | None = None
    y: str | None = None
    levels: Mapping[str, float] = field(default_factory=dict)


def figures(
    rows: Sequence[Row],
    suite: SuiteFacts,
    looks: Mapping[str, Look],
    numbers: Iterable[Published] = (),
    *,
    plan: Plan | None = None,
    prefix: str = "",
) -> tuple[Figure, ...]:
    """The figures of one suite under one set of conditions. `prefix` keeps the ids of figures on one page apart."""
    plan = plan or Plan()
    measured = measured_metrics(rows, suite)
    data = frame(rows)
    theirs = [one for one in numbers if one.suite == suite.name]
    drawn = []
    for metric in plan.metrics or measured[:1]:
        if metric in measured:
            sums = summary(data, metric, suite.axis)
            drawn.append(_figure(sums, curves_of(sums, looks, theirs), plan, f"{prefix or suite.name}-{metric}"))
    return tuple(figure for figure in drawn if figure)


def _figure(sums: Summary, found: tuple[list[Curve], list[str]], plan: Plan, prefix: str) -> Figure | None:
    curves, missing = found
    positions = sorted({x for curve in curves if not curve.is_floor for x in curve.xs})
    if not positions:
        return None
    scales = Scales(
        x=plan.x or _fitting(positions),
        y=plan.y or _fitting([y for curve in curves for y in curve.ys]),
        x_head=metric_words(sums.axis),
        y_head=metric_head(sums.metric),
        unit=sums.unit,
        better=METRICS[sums.metric].better if sums.metric in METRICS else "neither",
        levels=plan.levels,
    )
    if scales.y == "log":
        curves, zeros = _positive(curves)
        missing = [*missing, *zeros]
    curves, left_out = _best(curves, sums.better)
    title = f"{metric_words(sums.metric).capitalize()} against {metric_words(sums.axis)}"
    draw = curves_drawn
    if len(positions) == 1:
        title = f"{metric_words(sums.metric).capitalize()} at {metric_words(sums.axis)} {setting_written(positions[0])}"
        draw = points_drawn
    alt = _described(title, [curve for curve in curves if not curve.is_floor], sums.metric, sums.unit)
    svg = svg_text(lambda: draw(curves, scales), prefix, alt)
    caption = " ".join(filter(None, (_caption(curves, missing), left_out)))
    return Figure(sums.metric, title, svg, alt, caption)


def _best(curves: list[Curve], better: str) -> tuple[list[Curve], str]:
    """The lines that are drawn, in their order: the floors, and of too many others those that end best; and that in words."""
    models = [curve for curve in curves if not curve.is_floor and curve.ys]
    if len(models) <= MOST_LINES:
        return curves, ""
    sign = -1 if better == "higher" else 1
    kept = {curve.label for curve in sorted(models, key=lambda curve: sign * curve.ys[-1])[:MOST_LINES]}
    words = f"Drawn: {MOST_LINES} of {len(models)} lines, those that end best; the table has all."
    return [curve for curve in curves if curve.is_floor or curve.label in kept], words


def curves_of(sums: Summary, looks: Mapping[str, Look], numbers: Sequence[Published]) -> tuple[list[Curve], list[str]]:
    """One curve for each line of the metric's table, and in words the places where a line has no number."""
    lines = list(sums.lines())
    variants = [str(line.key[0]) for line in lines]
    # a bound is no point of a curve
    theirs = [one for one in numbers if one.metric == sums.metric and sums.axis in one.point and not one.is_bound]
    curves: list[Curve] = []
    missing: list[str] = []
    for place, (line, variant) in enumerate(zip(lines, variants, strict=True)):
        # a variant with a single line is called by its name alone
        labels = () if variants.count(variant) == 1 else map(setting_written, line.key[1:])
        label = ", ".join((variant, *labels))
        drawn = {float(at): cell for at, cell in line.cells.items() if isinstance(at, int | float)}
        xs = sorted(at for at, cell in drawn.items() if cell["n"])
        published = (
            (one.point.number(sums.axis), one.value)
            for one in theirs
            if one.variant == variant and one.belongs_to(sums.point(line, one.point[sums.axis]))
        )
        curves.append(
            Curve(
                variant,
                label,
                looks[variant],
                tuple(xs),
                tuple(drawn[x]["median"] for x in xs),
                tuple(drawn[x]["low"] for x in xs),
                tuple(drawn[x]["high"] for x in xs),
                published=tuple((x, y) for x, y in sorted(published) if xs and xs[0] <= x <= xs[-1]),
                is_floor=line.is_floor,
                sibling=variants[:place].count(variant),
            )
        )
        missing += _gaps(label, {at: cell for at, cell in line.cells.items() if not cell["n"]})
    return curves, missing


def _gaps(label: str, cells: Mapping[Setting, Mapping[str, Any]]) -> list[str]:
    """The places of a line without a number: "linear at 100, 200 (diverged)"."""
    places: dict[str, list[str]] = {}
    for at in sorted(cells, key=order):
        words = ", ".join(dict.fromkeys(word.partition(":")[0] for word in cells[at]["failed"]))
        places.setdefault(words, []).append(setting_written(at))
    return [f"{label} at {', '.join(at)} ({words})" for words, at in places.items()]


def svg_text(draw: Callable[[], "Canvas"], prefix: str, alt: str) -> str:
    """The SVG of the figure that `draw` makes: no header, ids with `prefix`, texts in the colour of their surroundings."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    # mathtext would read a $ in a variant's name as a formula
    style: Any = {
        "svg.hashsalt": "attnbench",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 10,
        "text.parse_math": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
        # nothing behind the drawing but the page
        "figure.facecolor": "none",
        "axes.facecolor": "none",
    }
    text = io.StringIO()
    with mpl.rc_context(style):
        # savefig would draw twice, the first time only for the layout, which a single pass does as well
        FigureCanvasSVG(draw()).print_svg(text, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    return _inlined(text.getvalue(), prefix, alt)


def _inlined(svg: str, prefix: str, alt: str) -> str:
    prefix = re.sub(r"[^A-Za-z0-9_-]", "-", prefix)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:xmlns:xlink|version)="[^"]*"', "", svg)
    svg = svg.replace("xlink:href=", "href=")
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'href="#', f'href="#{prefix}-', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}-", svg)
    svg = svg.replace(INK, "currentColor")
    # what matplotlib says in a style sheet, which a strict policy of the page would not read
    svg = re.sub(r"<style.*?</style>\s*", "", svg, flags=re.DOTALL)
    drawn = 'stroke-linejoin="round" stroke-linecap="butt"'
    opening = f'<svg role="img" aria-label="{html.escape(alt)}" {drawn}'
    return svg.replace("<svg", opening, 1).strip()


def _positive(curves: Sequence[Curve]) -> tuple[list[Curve], list[str]]:
    """The curves without what a logarithm cannot show, and that in words."""
    kept, zeros = [], []
    for curve in curves:
        at = [place for place, y in enumerate(curve.ys) if y > 0]
        zeros += [
            f"{curve.label} at {setting_written(x)} ({y:g})" for x, y in zip(curve.xs, curve.ys, strict=True) if y <= 0
        ]
        xs, ys, lows, highs = (
            tuple(one[place] for place in at) for one in (curve.xs, curve.ys, curve.lows, curve.highs)
        )
        kept.append(replace(curve, xs=xs, ys=ys, lows=lows, highs=highs))
    return kept, zeros


def _fitting(values: Sequence[float]) -> str:
    positive = [value for value in values if value > 0]
    return "log" if len(positive) == len(values) and max(positive) > 30 * min(positive) else "linear"


def _described(title: str, curves: Sequence[Curve], metric: str, unit: str) -> str:
    """The figure in words: what is drawn, and which variants are at the two ends where the axis ends."""
    drawn = [curve for curve in curves if curve.xs]
    far = max((curve.xs[-1] for curve in drawn), default=None)
    ends = sorted((curve.ys[-1], curve.label) for curve in drawn if curve.xs[-1] == far)
    words = f"{title}. Lines: {', '.join(curve.label for curve in drawn)}."
    if ends and far is not None:
        (low, lowest), (high, highest) = ends[0], ends[-1]
        words += f" At {setting_written(far)} the lowest is {lowest} with {written(low, unit)}"
        words += f" and the highest {highest} with {written(high, unit)}."
    better = METRICS[metric].better if metric in METRICS else "neither"
    return words + ("" if better == "neither" else f" {better.capitalize()} is better.")


def _caption(curves: Sequence[Curve], missing: Sequence[str]) -> str:
    parts = []
    if any(curve.published for curve in curves):
        parts.append("Thin and dotted, or a tick: the published number of the same variant.")
    if any(curve.is_floor for curve in curves):
        parts.append("Dashed: what counting reaches; numbers that its best line beats compare nothing.")
    if any(curve.has_spread for curve in curves):
        parts.append("Bands and bars: the spread that the table gives.")
    if missing:
        shown, more = missing[:8], len(missing) - 8
        parts.append(f"Not drawn: {'; '.join(shown)}{f'; and {more} more in the table' if more > 0 else ''}.")
    return " ".join(parts)
