"""Learning curves: the evaluation loss of each seed against the step, at one length (arXiv:2102.11174, Figs. 3 and 4)."""

from collections.abc import Mapping, Sequence

from attnbench.harness.rows import Row, Series
from attnbench.harness.spec import Setting
from attnbench.reports.figures import Figure, svg_text
from attnbench.reports.numbers import setting_written, written
from attnbench.reports.palette import Look
from attnbench.reports.panels import Trajectory, drawable, trajectories_drawn
from attnbench.reports.passage import Passage
from attnbench.reports.tables import SuiteFacts, metric_words, order

CURVE = "evaluation_loss"
# The published figures: setting 1 at its largest length, setting 2 at its smallest.
_PLACES = {"capacity": max, "rewrite": min}
# What Figure 3 compares: the sum rule, Schlag 2021 without and with the features, and the delta rule.
_FIGURE_3 = ("dpfp-nu1", "fwm", "dpfp-nu1+fwm", "dpfp-nu1+delta")


def learning_passage(
    rows: Sequence[Row],
    suite: SuiteFacts,
    looks: Mapping[str, Look],
    curves: Mapping[int, Sequence[Series]],
    prefix: str,
) -> tuple[Passage, ...]:
    """The learning curves of one suite under one set of conditions, a figure a protocol; nothing without any curve."""
    place = _PLACES.get(suite.name)
    attempts = {row.attempt_id: row for row in rows if suite.axis in row.point and _curve(curves, row.attempt_id)}
    if place is None or not attempts:
        return ()
    variants: dict[Setting, set[str]] = {}
    for row in attempts.values():
        variants.setdefault(row.point[suite.axis], set()).add(row.variant)
    # some lengths are asked of one variant alone: a figure compares at least half as many as it can
    most = max(map(len, variants.values()))
    at = place((at for at, names in variants.items() if 2 * len(names) >= most), key=order)
    shown = [row for _, row in sorted(attempts.items()) if row.point[suite.axis] == at]
    figures = []
    for protocol in sorted({row.point.get("protocol", "") for row in shown}, key=order):
        of_protocol = [row for row in shown if row.point.get("protocol", "") == protocol]
        for what, some in _parts(of_protocol, suite.name).items():
            figures.append(_figure(some, suite.axis, at, (protocol, what), looks, curves, prefix))
    return (Passage("Learning curves", figures=tuple(figures)),)


def _parts(rows: Sequence[Row], suite: str) -> dict[str, list[Row]]:
    """The rules of Figure 3 apart from the others, where there are several of each."""
    four = [row for row in rows if row.variant in _FIGURE_3]
    others = [row for row in rows if row.variant not in _FIGURE_3]
    if suite != "rewrite" or len({row.variant for row in four}) < 2 or not others:
        return {"": list(rows)}
    return {"the rules of Figure 3": four, "other variants": others}


def _figure(
    rows: Sequence[Row],
    axis: str,
    at: Setting,
    which: tuple[Setting, str],
    looks: Mapping[str, Look],
    curves: Mapping[int, Sequence[Series]],
    prefix: str,
) -> Figure:
    lines: dict[str, list[tuple[tuple[float, ...], tuple[float, ...]]]] = {}
    seeds = {row.seed for row in rows}
    for row in rows:
        points = _curve(curves, row.attempt_id)
        lines.setdefault(row.variant, []).append(tuple(zip(*points, strict=True)))  # type: ignore[arg-type]
    drawn = [
        Trajectory(variant, looks[variant], tuple(lines[variant]))
        for variant in sorted(lines, key=lambda name: (-max(ys[-1] for _, ys in lines[name]), order(name)))
    ]
    protocol, what = which
    under = f", protocol {protocol}" if protocol else ""
    title = f"Evaluation loss against step at {metric_words(axis)} {setting_written(at)}{under}{what and ': '}{what}"
    ends = (f"{line.label} {' and '.join(written(ys[-1], '1') for _, ys in line.curves)}" for line in drawn)
    alt = f"{title}, a line a seed. The last losses: {'; '.join(ends)}. Lower is better."
    steps = [x for line in drawn for xs, _ in line.curves for x in xs if x > 0]
    x_scale = "log" if max(steps, default=1) > 30 * min(steps, default=1) else "linear"
    svg = svg_text(
        lambda: trajectories_drawn(drawn, "step", "evaluation loss", x_scale),
        f"{prefix}-learning-{protocol}-{what}",
        alt,
    )
    count = f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}"
    return Figure(CURVE, title, svg, alt, f"A line a seed, {count}; the marker is where training stopped.")


def _curve(curves: Mapping[int, Sequence[Series]], attempt_id: int) -> list[tuple[float, float]]:
    return drawable(curves.get(attempt_id, ()), CURVE, on_log=True)
