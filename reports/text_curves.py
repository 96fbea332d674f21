"""Curves of models of text: perplexity by position in a context, loss along the text, loss against the step, state by token.

A variant that is asked at several points has a line for each, told apart by the settings that differ.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from attnbench.harness.rows import Row, Series
from attnbench.reports.figures import Figure, svg_text
from attnbench.reports.numbers import setting_written, written
from attnbench.reports.palette import Look
from attnbench.reports.panels import Trajectory, drawable, trajectories_drawn
from attnbench.reports.passage import Passage
from attnbench.reports.tables import metric_words, order


@dataclass(frozen=True)
class _Kind:
    """One kind of curve: the name it is stored under, and how it is drawn and read."""

    name: str
    title: str
    x_head: str
    y_head: str
    caption: str
    x_scale: str = "linear"
    y_scale: str = "linear"
    ends: str = "Lower is better."


_KINDS = (
    _Kind(
        "perplexity_by_position",
        "Perplexity by position in the context",
        "tokens seen",
        "token perplexity",
        "The test text in segments of the context, each from nothing. A line that goes on falling uses what is far back.",
        "log",
        "log",
    ),
    _Kind(
        "carried_loss",
        "Loss along the text with the memory carried on",
        "token of the test text",
        "nats a token",
        "Means over equal pieces of the test text, read once from its beginning. A line that rises against the others is a "
        "memory that fills up.",
    ),
    _Kind(
        "validation_loss",
        "Loss on the validation text against step",
        "step",
        "nats a token",
        "The marker is where training stopped.",
    ),
    _Kind(
        "validation_bleu",
        "BLEU of the validation text against step",
        "step",
        "BLEU",
        "By greedy search. The marker is where training stopped.",
        ends="Higher is better.",
    ),
    _Kind(
        "hypothesis_state_bytes",
        "What decoding carries, by token of a translation",
        "tokens",
        "bytes of a hypothesis",
        "The decoder's own memory, all layers. Flat: each token costs what the first did.",
        "log",
        "log",
    ),
)


def text_passage(
    rows: Sequence[Row],
    looks: Mapping[str, Look],
    curves: Mapping[int, Sequence[Series]],
    prefix: str,
    title: str = "Along the text",
) -> tuple[Passage, ...]:
    """The curves of one suite under one set of conditions, a figure for each kind, text and size; nothing without any."""
    attempts = {row.attempt_id: row for row in rows if row.attempt_id in curves}
    figures = []
    for number, kind in enumerate(_KINDS):
        drawn = [row for row in attempts.values() if _curve(kind, curves[row.attempt_id])]
        for place, (words, group) in enumerate(_groups(drawn)):
            figures.append(_figure(kind, words, group, looks, curves, f"{prefix}-text-{number}-{place}"))
    return (Passage(title, figures=tuple(figures)),) if figures else ()


def _groups(rows: Iterable[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The rows of one text, vocabulary, width and context together, with words that tell them from others."""
    told_by = ("data", "vocabulary", "width", "context")
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.point.get(name, "") for name in told_by), []).append(row)
    for key in sorted(groups, key=lambda values: [order(one) for one in values]):
        _, _, width, context = key
        seen = f", context {context}" if context != "" else ""
        yield f"{key[0]}, width {width}{seen}", groups[key]


def _figure(
    kind: _Kind,
    words: str,
    rows: Sequence[Row],
    looks: Mapping[str, Look],
    curves: Mapping[int, Sequence[Series]],
    identity: str,
) -> Figure:
    lines: dict[tuple[str, str], list[tuple[tuple[float, ...], tuple[float, ...]]]] = {}
    for row in sorted(rows, key=lambda row: (row.seed, row.attempt_id)):
        xs, ys = zip(*_curve(kind, curves[row.attempt_id]), strict=True)
        lines.setdefault((row.variant, _label(row, rows)), []).append((xs, ys))
    drawn = [
        Trajectory(label, looks[variant], tuple(lines[variant, label]))
        for variant, label in sorted(lines, key=lambda line: (-max(ys[-1] for _, ys in lines[line]), line))
    ]
    title = f"{kind.title}: {words}"
    ends = (f"{line.label} {' and '.join(written(ys[-1], '1') for _, ys in line.curves)}" for line in drawn)
    alt = f"{title}, a line a seed. The last values: {'; '.join(ends)}. {kind.ends}"
    svg = svg_text(
        lambda: trajectories_drawn(drawn, kind.x_head, kind.y_head, kind.x_scale, kind.y_scale), identity, alt
    )
    seeds = len({row.seed for row in rows})
    return Figure(kind.name, title, svg, alt, f"{kind.caption} A line a seed, {seeds} seed{'s' if seeds > 1 else ''}.")


def _label(row: Row, rows: Sequence[Row]) -> str:
    """The variant, and the settings in which its points among these rows differ."""
    points = {other.point for other in rows if other.variant == row.variant}
    differing = [name for name in row.point if len({point.get(name) for point in points}) > 1]
    told = (f"{metric_words(name)} {setting_written(row.point[name])}" for name in differing)
    return ", ".join([row.variant, *told])


def _curve(kind: _Kind, series: Iterable[Series]) -> list[tuple[float, float]]:
    return drawable(series, kind.name, on_log=kind.y_scale == "log")
