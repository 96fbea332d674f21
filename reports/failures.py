"""Attempts that gave no number, told in words: alike endings once, with their places."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from attnbench.harness.rows import Row, Status
from attnbench.reports.numbers import setting_written
from attnbench.reports.tables import metric_words, order, status_words


@dataclass(frozen=True)
class Failure:
    """Attempts of one variant that ended alike, and where."""

    variant: str
    status: str
    words: str
    places: str
    count: int


def failures_of(rows: Iterable[Row], axis: str) -> tuple[Failure, ...]:
    """What ended as something else than ok, alike endings together."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in {row.attempt_id: row for row in rows}.values():
        if row.status is not Status.OK:
            groups.setdefault((row.variant, row.status.value, row.reason), []).append(row)
    return tuple(
        Failure(
            variant, status, status_words(status, reason), _places(groups[variant, status, reason], axis), len(group)
        )
        for (variant, status, reason), group in sorted(groups.items(), key=lambda item: tuple(map(order, item[0])))
    )


def _places(rows: Sequence[Row], axis: str) -> str:
    """Where attempts stand: "pairs 100, 200; seeds 0, 1"."""
    at = sorted({row.point[axis] for row in rows if axis in row.point}, key=order)
    seeds = sorted({row.seed for row in rows})
    words = [f"{metric_words(axis)} {', '.join(map(setting_written, at))}"] if at else []
    words.append(f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}")
    return "; ".join(words)
