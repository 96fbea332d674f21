"""Drawings of other shapes than curves and points along the axis: intervals, small multiples, learning curves."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnbench.harness.rows import Series
from attnbench.reports.drawing import INK, legend_beside, tick_written
from attnbench.reports.palette import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GREY = "#808080"
_WIDTH_INCHES = 8.2


@dataclass(frozen=True)
class Interval:
    """One line of a figure of intervals: a point with its ends, and reference marks on the same axis by their names.

    `beyond` is -1 or 1 where the point lies beyond an end of what was asked, and stands there as an arrow.
    """

    label: str
    look: Look
    at: float
    low: float | None
    high: float | None
    beyond: int
    marks: Mapping[str, float]


@dataclass(frozen=True)
class Panel:
    """One of several small figures: a published curve, and measured points; `differing` ones are ringed."""

    title: str
    look: Look
    published: tuple[tuple[float, float], ...]
    measured: tuple[tuple[float, float], ...]
    differing: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Trajectory:
    """The learning curves of one line, a seed each."""

    label: str
    look: Look
    curves: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]


def drawable(series: Iterable[Series], name: str, *, on_log: bool) -> list[tuple[float, float]]:
    """The points of the curve of that name that an axis can show; a logarithmic one shows none at 0 or below."""
    return [
        (x, y)
        for one in series
        if one.name == name
        for x, y in zip(one.x, one.y, strict=True)
        if math.isfinite(y) and (y > 0 or not on_log)
    ]


def intervals_drawn(lines: Sequence[Interval], x_head: str, ends: tuple[float, float]) -> "Figure":
    """One line a row on a log axis, the largest on top, with a mark of its own for each reference."""
    # the last one stands on top
    lines = sorted(lines, key=lambda line: (line.at, line.beyond), reverse=True)[::-1]
    names = list(dict.fromkeys(name for line in lines for name in line.marks))
    figure = _canvas(height=1.5 + 0.3 * len(lines))
    axes = figure.add_subplot()
    _quiet(axes)
    axes.axvspan(*ends, color=_GREY, alpha=0.08, lw=0, zorder=0)
    for place, line in enumerate(lines):
        if line.low is not None and line.high is not None and line.high > line.low:
            axes.hlines(place, line.low, line.high, color=line.look.colour, lw=5, alpha=0.35)
        marker = {-1: "<", 0: line.look.marker, 1: ">"}[line.beyond]
        axes.plot(line.at, place, marker, color=line.look.colour, ms=8, mew=0, zorder=3)
        for name, value in line.marks.items():
            axes.plot(value, place, _MARKS[names.index(name) % len(_MARKS)], color=_GREY, ms=11, mew=1.4, mfc="none")
    axes.set_yticks(range(len(lines)), [line.label for line in lines])
    axes.set_ylim(-0.7, len(lines) - 0.3)
    axes.set_xscale("log")
    values = [value for line in lines for value in (line.at, *line.marks.values())]
    axes.set_xlim(0.8 * min(*values, ends[0]), 1.25 * max(*values, ends[1]))
    _logarithmic(axes.xaxis, (1.0, 2.0, 5.0))
    axes.set_xlabel(x_head, color=INK)
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=_GREY, marker="o", ms=8, mew=0, lw=5, alpha=0.6)]
    handles += [
        Line2D([], [], color=_GREY, marker=_MARKS[number % len(_MARKS)], ms=11, mew=1.4, mfc="none", lw=0)
        for number in range(len(names))
    ]
    axes.legend(
        handles,
        ["measured, with its interval", *names],
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=len(handles),
        frameon=False,
        labelcolor=INK,
        fontsize=9,
    )
    return figure


_MARKS = ("D", "|")


def panels_drawn(
    panels: Sequence[Panel], x_head: str, y_head: str, *, floor: float, level: tuple[str, float], columns: int = 3
) -> "Figure":
    """A small figure for each panel on the same two axes, the loss as a logarithm; losses below `floor` stand on it."""
    from matplotlib.lines import Line2D

    rows = math.ceil(len(panels) / columns)
    figure = _canvas(height=0.7 + 1.75 * rows)
    grid: Any = figure.subplots(rows, min(columns, len(panels)), sharex=True, sharey=True, squeeze=False)
    for axes, panel in zip(grid.flat, panels, strict=False):
        _quiet(axes)
        colour = panel.look.colour
        axes.plot(*_columns(panel.published, floor), color=_GREY, lw=1.3, zorder=1)
        axes.plot(*_columns(panel.measured, floor), "o", color=colour, ms=3.6, mew=0, alpha=0.75, zorder=2)
        axes.plot(*_columns(panel.differing, floor), "o", color=colour, ms=8, mew=1.1, mfc="none", zorder=3)
        axes.axhline(level[1], color=_GREY, lw=0.8, ls=(0, (4, 3)), zorder=0.5)
        axes.set_title(panel.title, fontsize=9, color=INK, loc="left", pad=3)
        axes.set_yscale("log")
    for place, axes in enumerate(grid.flat):
        axes.set_visible(place < len(panels))
        # the last one of its column says the numbers below it
        axes.tick_params(labelbottom=place + grid.shape[1] >= len(panels))
    first = grid.flat[0]
    first.set_ylim(bottom=floor * 0.8)
    _logarithmic(first.yaxis, (1.0,))
    figure.supxlabel(x_head, color=INK, fontsize=10)
    figure.supylabel(y_head, color=INK, fontsize=10)
    handles = [
        Line2D([], [], color=_GREY, lw=1.3),
        Line2D([], [], color=_GREY, marker="o", ms=4, mew=0, lw=0),
        Line2D([], [], color=_GREY, marker="o", ms=8, mew=1.1, mfc="none", lw=0),
        Line2D([], [], color=_GREY, lw=0.8, ls=(0, (4, 3))),
    ]
    figure.legend(
        handles,
        ["published", "measured", "differs", f"{level[0]}: at most {level[1]:g}"],
        loc="outside upper center",
        ncols=4,
        frameon=False,
        labelcolor=INK,
        fontsize=9,
    )
    return figure


def trajectories_drawn(
    lines: Sequence[Trajectory], x_head: str, y_head: str, x_scale: str, y_scale: str = "log"
) -> "Figure":
    """Learning curves and their like, a thin line a seed; a marker ends each, for who does not see the hue."""
    from matplotlib.lines import Line2D

    figure = _canvas(height=max(3.9, 0.9 + 0.205 * (len(lines) + 1)))
    axes = figure.add_subplot()
    _quiet(axes)
    dash: Any
    for line in lines:
        dash = (0, line.look.dash) if line.look.dash else "-"
        for xs, ys in line.curves:
            axes.plot(xs, ys, color=line.look.colour, lw=1.1, ls=dash, alpha=0.8)
            axes.plot(xs[-1], ys[-1], line.look.marker, color=line.look.colour, ms=5, mew=0)
    axes.set_xscale(x_scale)
    axes.set_yscale(y_scale)
    if y_scale == "log":
        _logarithmic(axes.yaxis, (1.0, 2.0, 5.0) if _span(axes.yaxis) < 300 else (1.0,))
    if x_scale == "log":
        _logarithmic(axes.xaxis, (1.0, 2.0, 5.0))
    axes.set_xlabel(x_head, color=INK)
    axes.set_ylabel(y_head, color=INK)
    handles = [
        Line2D(
            [],
            [],
            color=line.look.colour,
            marker=line.look.marker,
            ms=5,
            mew=0,
            lw=1.3,
            ls=(0, line.look.dash) if line.look.dash else "-",
        )
        for line in lines
    ]
    legend_beside(axes, handles, [line.label for line in lines])
    return figure


def _canvas(height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(_WIDTH_INCHES, height), layout="constrained")


def _quiet(axes: "Axes") -> None:
    """Grey lines, text in the colour of the page."""
    axes.set_axisbelow(True)
    axes.tick_params(colors=_GREY, labelcolor=INK, length=3, labelsize=9)
    axes.grid(visible=True, color=_GREY, alpha=0.22, lw=0.7)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_GREY)


def _span(axis: Any) -> float:
    low, high = axis.get_view_interval()
    return high / low


def _logarithmic(axis: Any, fine: tuple[float, ...]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(base=10, subs=fine, numticks=12))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: tick_written(value, "1")))


def _columns(points: Sequence[tuple[float, float]], floor: float) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [max(y, floor) for _, y in points]
