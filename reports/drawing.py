"""How curves and points are put on a canvas. Only this file, `panels.py` and `fronts.py` know matplotlib's and seaborn's calls."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attnbench.reports.numbers import setting_written, written
from attnbench.reports.palette import FLOOR_COLOUR, Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

# Stands for the colour of the surrounding text until the SVG is written.
INK = "#010203"
_GREY = "#808080"
_SIBLING_DASHES: tuple[tuple[float, ...], ...] = ((), (1.2, 1.2), (6.0, 2.0), (6.0, 1.5, 1.2, 1.5))


@dataclass(frozen=True)
class Curve:
    """One line of a figure: a variant along the axis. `sibling` counts the variant's lines before this one."""

    variant: str
    label: str
    look: Look
    xs: tuple[float, ...] = ()
    ys: tuple[float, ...] = ()
    lows: tuple[float, ...] = ()
    highs: tuple[float, ...] = ()
    published: tuple[tuple[float, float], ...] = ()
    is_floor: bool = False
    sibling: int = 0

    @property
    def has_spread(self) -> bool:
        """Whether any of its points has one."""
        return any(math.isfinite(low) for low in self.lows)

    @property
    def dash(self) -> tuple[float, ...]:
        """The dash of its line: the variant's own, or one that tells its lines apart."""
        return self.look.dash if self.sibling == 0 else _SIBLING_DASHES[self.sibling % len(_SIBLING_DASHES)]


@dataclass(frozen=True)
class Scales:
    """The two axes of a figure. `levels` are named heights to compare with."""

    x: str
    y: str
    x_head: str
    y_head: str
    unit: str
    better: str = "lower"
    levels: Mapping[str, float] = field(default_factory=dict)


def curves_drawn(curves: Sequence[Curve], scales: Scales) -> "Figure":
    """Curves along the axis, with bands for the spread, published curves dotted behind, and floors as dashed lines."""
    import pandas as pd
    import seaborn as sns

    models = [curve for curve in curves if not curve.is_floor and curve.xs]
    floors = [curve for curve in curves if curve.is_floor and curve.ys]
    # The legend reads in the order in which the lines end.
    models.sort(key=lambda curve: (-curve.ys[-1], curve.label))
    figure, axes = canvas(height=max(3.9, 0.9 + 0.205 * (len(models) + len(floors) + 1)))
    for curve in models:
        behind = [(x, y) for x, y in curve.published if y > 0 or scales.y != "log"]
        if behind:
            axes.plot(
                *zip(*behind, strict=True), color=curve.look.colour, lw=1.0, ls=(0, (1, 1.6)), alpha=0.85, zorder=1.5
            )
        if curve.has_spread:
            floor = min(curve.ys) / 10 if scales.y == "log" else -math.inf
            lows = [max(low, floor) for low in _finite(curve.lows, curve.ys)]
            highs = _finite(curve.highs, curve.ys)
            axes.fill_between(curve.xs, lows, highs, color=curve.look.colour, alpha=0.12, lw=0, zorder=1)
    names = [str(number) for number in range(len(models))]
    points = pd.DataFrame(
        [
            (x, y, name)
            for name, curve in zip(names, models, strict=True)
            for x, y in zip(curve.xs, curve.ys, strict=True)
        ],
        columns=["x", "y", "line"],
    )
    before = len(axes.get_lines())
    sns.lineplot(
        points,
        x="x",
        y="y",
        hue="line",
        hue_order=names,
        palette=[curve.look.colour for curve in models],
        estimator=None,
        markersize=5,
        markeredgewidth=0,
        linewidth=1.6,
        legend=False,
        ax=axes,
    )
    # seaborn goes through the square of the lines where they differ in style, too
    for line, curve in zip(axes.get_lines()[before:], models, strict=True):
        line.set_marker(curve.look.marker)
        line.set_linestyle(_style(curve.dash))
    for number, curve in enumerate(floors):
        axes.axhline(curve.ys[-1], color=FLOOR_COLOUR, lw=1.2, ls=_floor_dash(number), zorder=1)
    _scaled(axes, scales, sorted({x for curve in models for x in curve.xs}))
    for name, height in scales.levels.items():
        axes.axhline(height, color=_GREY, lw=0.8, alpha=0.8, zorder=0.5)
        axes.annotate(
            f"{name}: at most {height:g}",
            (1, height),
            xycoords=("axes fraction", "data"),
            xytext=(-2, -3),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=8,
            color=_GREY,
        )
    _legend(axes, models, floors)
    return figure


def points_drawn(curves: Sequence[Curve], scales: Scales) -> "Figure":
    """One point a line of the table, the best on top, with bars for the spread and dashed floors."""
    models = [curve for curve in curves if not curve.is_floor and curve.xs]
    floors = [curve for curve in curves if curve.is_floor and curve.ys]
    # the last one stands on top
    models.sort(key=lambda curve: (curve.ys[0] if scales.better == "higher" else -curve.ys[0], curve.label))
    figure, axes = canvas(height=1.3 + 0.26 * len(models))
    for place, curve in enumerate(models):
        if curve.has_spread:
            axes.hlines(place, curve.lows[0], curve.highs[0], color=curve.look.colour, lw=2.2, alpha=0.55)
        axes.plot(curve.ys[0], place, curve.look.marker, color=curve.look.colour, ms=7, mew=0)
        for _, value in curve.published:
            axes.plot(value, place, "|", color=curve.look.colour, ms=12, mew=1.2)
    for number, curve in enumerate(floors):
        axes.axvline(curve.ys[-1], color=FLOOR_COLOUR, lw=1.2, ls=_floor_dash(number), zorder=1)
        _named_above(axes, curve.label, curve.ys[-1], row=number)
    for name, value in scales.levels.items():
        axes.axvline(value, color=_GREY, lw=0.9, zorder=1)
        _named_above(axes, f"{name}: at most {value:g}", value, row=len(floors))
    axes.set_yticks(range(len(models)), [curve.label for curve in models])
    axes.set_ylim(-0.7, len(models) - 0.3)
    axes.set_xscale(scales.y)
    if floors:
        ends = [curve.ys[-1] for curve in floors]
        _shade_beyond(axes, max(ends) if scales.better == "higher" else min(ends), scales.better)
    ticked(axes.xaxis, scales.y, scales.unit)
    axes.grid(visible=True, axis="both", color=_GREY, alpha=0.22, lw=0.7)
    axes.set_xlabel(scales.y_head, color=INK)
    return figure


def canvas(height: float) -> tuple["Figure", "Axes"]:
    """An empty figure of the page's width and its axes, grey lines and text in the colour of the page."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.2, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_axisbelow(True)
    axes.tick_params(colors=_GREY, labelcolor=INK, length=3)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_GREY)
    return figure, axes


def _scaled(axes: "Axes", scales: Scales, positions: Sequence[float]) -> None:
    axes.set_xscale(scales.x)
    axes.set_yscale(scales.y)
    if len(positions) <= 12:
        axes.set_xticks(positions, [setting_written(x) for x in positions])
        axes.xaxis.set_minor_locator(_no_ticks())
    else:
        ticked(axes.xaxis, scales.x, "tokens")
    ticked(axes.yaxis, scales.y, scales.unit)
    axes.grid(visible=True, color=_GREY, alpha=0.22, lw=0.7)
    axes.set_xlabel(scales.x_head, color=INK)
    axes.set_ylabel(scales.y_head, color=INK)


def ticked(axis: Any, scale: str, unit: str) -> None:
    """Ticks for numbers of a unit: powers where the scale is logarithmic, written as in the tables."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    if scale == "log":
        low, high = axis.get_view_interval()
        fine = (1.0, 2.0, 5.0) if high < 300 * low else (1.0,)
        bytes_ = LogLocator(base=2 if high < 300 * low else 4, numticks=12)
        axis.set_major_locator(bytes_ if unit == "B" else LogLocator(base=10, subs=fine, numticks=12))
        axis.set_minor_locator(_no_ticks())
    axis.set_major_formatter(FuncFormatter(lambda value, _: tick_written(value, unit)))


def tick_written(value: float, unit: str) -> str:
    """A number beside an axis: as in the tables, without the zeros that say nothing there."""
    whole = re.fullmatch(r"(-?[\d,]+)(\.\d+)?(.*)", written(value, unit))
    return "" if whole is None else whole[1] + (whole[2] or "").rstrip("0").rstrip(".") + whole[3]


def _named_above(axes: "Axes", name: str, value: float, *, row: int) -> None:
    """A name on top of a vertical line; names in different rows do not run into each other."""
    axes.annotate(
        name,
        (value, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 3 + 12 * row),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=9,
        color=INK,
    )


def _shade_beyond(axes: "Axes", value: float, better: str) -> None:
    """A tint where the numbers compare nothing, since counting reaches them too."""
    low, high = axes.get_xlim()
    end = min(low, value) if better == "higher" else max(high, value)
    axes.axvspan(value, end, color=_GREY, alpha=0.1, lw=0, zorder=0)
    axes.set_xlim(low, high)


def _no_ticks() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()


def _legend(axes: "Axes", models: Sequence[Curve], floors: Sequence[Curve]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=curve.look.colour, marker=curve.look.marker, ms=5, mew=0, lw=1.6, ls=_style(curve.dash))
        for curve in models
    ]
    handles += [Line2D([], [], color=FLOOR_COLOUR, lw=1.2, ls=_floor_dash(number)) for number in range(len(floors))]
    labels = [curve.label for curve in (*models, *floors)]
    if any(curve.published for curve in models):
        handles.append(Line2D([], [], color=_GREY, lw=1.0, ls=(0, (1, 1.6))))
        labels.append("published")
    legend_beside(axes, handles, labels)


def legend_beside(axes: "Axes", handles: Sequence["Line2D"], labels: Sequence[str]) -> None:
    """A legend to the right of the axes, in the colour of the page's text."""
    axes.legend(
        handles,
        # matplotlib leaves out labels that begin with an underscore
        [f" {label}" if label.startswith("_") else label for label in labels],
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        frameon=False,
        labelcolor=INK,
        fontsize=9,
        handlelength=2.6,
        borderaxespad=0,
    )


def _style(dash: tuple[float, ...]) -> Any:
    return (0, dash) if dash else "-"


def _floor_dash(number: int) -> Any:
    return (0, (7, 3)) if number == 0 else (0, (3, 2))


def _finite(values: Sequence[float], others: Sequence[float]) -> list[float]:
    return [value if math.isfinite(value) else other for value, other in zip(values, others, strict=True)]
