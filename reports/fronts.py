"""Drawings of points in a plane: a quality against a cost with its front, predictions against what was measured, ratios."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnbench.reports.drawing import INK, canvas, legend_beside, ticked
from attnbench.reports.palette import Look
from attnbench.reports.section import Reading

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GREY = "#808080"
# a factor between the largest and smallest number from which on an axis is logarithmic
_WIDE = 8


@dataclass(frozen=True)
class Dot:
    """One variant in the plane."""

    variant: str
    look: Look
    x: Reading
    y: Reading
    is_on_front: bool


@dataclass(frozen=True)
class Scale:
    """One axis: what it shows, which direction is good, and the unit of its numbers."""

    title: str
    better: str
    unit: str


@dataclass(frozen=True)
class Pairing:
    """Points of one variant, each a number and what it was predicted to be."""

    variant: str
    look: Look
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Change:
    """A ratio with the ends of its interval, None without one; `is_apart` says that the interval leaves 1 out."""

    label: str
    look: Look
    ratio: float
    low: float | None
    high: float | None
    is_apart: bool


def front_drawn(dots: Sequence[Dot], front: Sequence[str], x: Scale, y: Scale) -> "Figure":
    """A quality (up) against a cost (to the right dearer); axes are turned so that up and to the left is better."""
    figure, axes = canvas(height=max(4.3, 0.9 + 0.205 * len(dots)))
    _scattered(axes, [(dot.variant, dot.look, dot.x.value, dot.y.value) for dot in dots], size=64)
    for dot in dots:
        colour = dot.look.colour
        if dot.x.low is not None and dot.x.high is not None:
            axes.hlines(dot.y.value, dot.x.low, dot.x.high, color=colour, lw=1.4, alpha=0.6, zorder=1)
        if dot.y.low is not None and dot.y.high is not None:
            axes.vlines(dot.x.value, dot.y.low, dot.y.high, color=colour, lw=1.4, alpha=0.6, zorder=1)
        if dot.is_on_front:
            axes.plot(dot.x.value, dot.y.value, "o", ms=14, mew=1.2, mfc="none", mec=INK, zorder=2)
            axes.annotate(
                dot.variant,
                (dot.x.value, dot.y.value),
                xytext=(9, -10),
                textcoords="offset points",
                fontsize=8.5,
                color=INK,
                va="top",
            )
        if dot.y.beyond:
            axes.annotate(
                "↑" if dot.y.beyond > 0 else "↓",
                (dot.x.value, dot.y.value),
                xytext=(0, 9 if dot.y.beyond > 0 else -9),
                textcoords="offset points",
                ha="center",
                va="bottom" if dot.y.beyond > 0 else "top",
                color=colour,
            )
    _front_line(axes, [dot for name in front for dot in dots if dot.variant == name], y)
    for axis, scale, values in (
        (axes.xaxis, x, [dot.x.value for dot in dots]),
        (axes.yaxis, y, [dot.y.value for dot in dots]),
    ):
        kind = "log" if min(values) > 0 and max(values) > _WIDE * min(values) else "linear"
        (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)(kind)
        ticked(axis, kind, scale.unit)
    axes.margins(0.12)
    if x.better == "higher":
        axes.invert_xaxis()
    if y.better == "lower":
        axes.invert_yaxis()
    axes.grid(visible=True, color=_GREY, alpha=0.22, lw=0.7)
    axes.set_xlabel(f"← better · {x.title}", color=INK)
    axes.set_ylabel(f"{y.title} · better →", color=INK)
    _legend(axes, [(dot.variant, dot.look) for dot in dots])
    return figure


def pairings_drawn(pairings: Sequence[Pairing], x_head: str, y_head: str, unit: str) -> "Figure":
    """Predictions against what was measured, on logarithms, with the line where both are equal."""
    figure, axes = canvas(height=max(4.0, 0.9 + 0.205 * len(pairings)))
    points = [(one.variant, one.look, x, y) for one in pairings for x, y in one.points]
    _scattered(axes, points, size=30)
    axes.set_xscale("log")
    axes.set_yscale("log")
    ends = [value for _, _, *both in points for value in both]
    axes.plot([min(ends), max(ends)], [min(ends), max(ends)], color=_GREY, lw=1, zorder=0.5)
    ticked(axes.xaxis, "log", unit)
    ticked(axes.yaxis, "log", unit)
    axes.grid(visible=True, color=_GREY, alpha=0.22, lw=0.7)
    axes.set_xlabel(x_head, color=INK)
    axes.set_ylabel(y_head, color=INK)
    _legend(axes, [(one.variant, one.look) for one in pairings])
    return figure


def changes_drawn(changes: Sequence[Change], x_head: str) -> "Figure":
    """Ratios, one a line, the largest on top, with intervals; what is not told apart from 1 is hollow."""
    figure, axes = canvas(height=1.0 + 0.25 * len(changes))
    listed = sorted(changes, key=lambda one: (one.ratio, one.label))
    axes.axvline(1, color=_GREY, lw=1.2, zorder=0.5)
    for place, one in enumerate(listed):
        colour = one.look.colour
        if one.low is not None and one.high is not None:
            axes.hlines(place, one.low, one.high, color=colour, lw=2.2, alpha=0.55)
        face = colour if one.is_apart else "none"
        axes.plot(one.ratio, place, one.look.marker, color=colour, mfc=face, mec=colour, ms=7, mew=1.2)
    axes.set_yticks(range(len(listed)), [one.label for one in listed])
    axes.set_ylim(-0.7, len(listed) - 0.3)
    axes.set_xscale("log")
    ticked(axes.xaxis, "log", "1")
    axes.grid(visible=True, color=_GREY, alpha=0.22, lw=0.7)
    axes.set_xlabel(x_head, color=INK)
    return figure


def _scattered(axes: "Axes", points: Sequence[tuple[str, Look, float, float]], size: float) -> None:
    import pandas as pd
    import seaborn as sns

    looks = {variant: look for variant, look, _, _ in points}
    sns.scatterplot(
        pd.DataFrame([(x, y, variant) for variant, _, x, y in points], columns=["x", "y", "variant"]),
        x="x",
        y="y",
        hue="variant",
        style="variant",
        palette={variant: look.colour for variant, look in looks.items()},
        markers={variant: look.marker for variant, look in looks.items()},
        s=size,
        linewidth=0,
        legend=False,
        ax=axes,
        zorder=3,
    )


def _front_line(axes: "Axes", front: Sequence[Dot], y: Scale) -> None:
    """The staircase through those of the front that are each better than all cheaper ones."""
    xs: list[float] = []
    ys: list[float] = []
    for dot in front:
        if not ys or (dot.y.value > ys[-1] if y.better == "higher" else dot.y.value < ys[-1]):
            xs.append(dot.x.value)
            ys.append(dot.y.value)
    if len(xs) > 1:
        axes.step(xs, ys, where="post", color=_GREY, lw=1.2, ls=(0, (4, 2)), zorder=0.8)


def _legend(axes: "Axes", named: Iterable[tuple[str, Look]]) -> None:
    from matplotlib.lines import Line2D

    looks = dict(named)
    handles: list[Any] = [
        Line2D([], [], color=look.colour, marker=look.marker, ms=6, mew=0, lw=0) for look in looks.values()
    ]
    legend_beside(axes, handles, list(looks))
