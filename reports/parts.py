"""The rows of a database apart by suite and conditions, in reading order."""

from collections.abc import Sequence
from dataclasses import dataclass

from attnbench.harness.rows import Row
from attnbench.reports.board import Part
from attnbench.reports.sections import section_of
from attnbench.reports.tables import SuiteFacts, by_conditions, metric_words


def parts_of(rows: Sequence[Row], suites: Sequence[SuiteFacts]) -> tuple[Part, ...]:
    """The rows apart by suite and conditions: first what one gets, then what one pays, then suites of others."""
    listed = {suite.name for suite in suites}
    unlisted: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.suite not in listed:
            unlisted.setdefault(row.suite, {}).update({row.metric: None} if row.metric else {})
    others = (_Unlisted(name, tuple(unlisted[name]) or ("outcome",)) for name in sorted(unlisted))
    return tuple(
        Part(suite, conditions, theirs)
        for suite in sorted((*suites, *others), key=_place)
        for conditions, theirs in by_conditions(row for row in rows if row.suite == suite.name).items()
    )


def _place(suite: SuiteFacts) -> tuple[int, str]:
    return section_of(suite.name).place, suite.name


@dataclass(frozen=True)
class _Unlisted:
    """A suite that has rows and of which nothing else is known: its outcomes, and every metric that was measured."""

    name: str
    metrics: tuple[str, ...]
    question: str = "The database does not say what this suite asks."
    source: str = ""
    axis: str = ""

    @property
    def title(self) -> str:
        return metric_words(self.name)
