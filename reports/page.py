"""The page: one HTML file with all tables, figures and provenance inside, built from rows alone.

    store.rows(), store.suites(), store.runs()  ->  page(...)  ->  text of the file

It loads nothing from anywhere, which its own policy forbids too, and whatever a row says (a variant's name, a reason) stays
text. Tables, figures and verdicts are there without JavaScript; `templates/page.js` sorts, filters, pages, downloads, and
opens what is behind each number.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from attnbench.harness.rows import Artefact, Row, Series
from attnbench.reports.board import Part, board
from attnbench.reports.embedded import embedded
from attnbench.reports.failures import Failure, failures_of
from attnbench.reports.figures import Figure, figures
from attnbench.reports.grids import Table, tables
from attnbench.reports.measured import is_shipped, origins
from attnbench.reports.palette import Look, looks
from attnbench.reports.parts import parts_of
from attnbench.reports.passage import Passage
from attnbench.reports.provenance import RunFacts, commands_of, machines_of
from attnbench.reports.published import Published, published
from attnbench.reports.rendering import render, slug
from attnbench.reports.section import Material
from attnbench.reports.sections import section_of
from attnbench.reports.tables import SuiteFacts, mixtures
from attnbench.reports.tradeoffs import tradeoffs
from attnbench.reports.verdict_board import verdict_board


@dataclass(frozen=True)
class Section:
    """One suite under one set of conditions, ready to be shown. `origins` says which of its rows were shipped or
    measured by different code."""

    part: Part
    anchor: str
    origins: tuple[str, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]
    passages: tuple[Passage, ...]
    failures: tuple[Failure, ...]
    commands: Mapping[int, str]


@dataclass(frozen=True)
class Belongings:
    """What belongs to the rows of a page: curves and texts by attempt."""

    curves: Mapping[int, Sequence[Series]]
    texts: Mapping[int, Sequence[Artefact]]


def page(
    rows: Sequence[Row],
    suites: Sequence[SuiteFacts],
    runs: Sequence[RunFacts] = (),
    *,
    numbers: Iterable[Published] | None = None,
    title: str = "attnbench",
    database: str = "attnbench.db",
    curves: Mapping[int, Sequence[Series]] | None = None,
    texts: Mapping[int, Sequence[Artefact]] | None = None,
    first: Sequence[Passage] = (),
    behind: Sequence[Row] = (),
    home: str = "",
) -> str:
    """The HTML text. `numbers` are published ones to set beside the measured (all that are known, if not given).

    `curves` are the series of attempts, as `store.series` gives them, and `texts` their artefacts. `first` stands before
    the suites (a comparison of two runs), and `behind` are further rows that its numbers come from; `home` is the file that
    lists this page among others.
    """
    theirs = published() if numbers is None else tuple(numbers)
    drawn = looks(row.variant for row in rows)
    parts = parts_of(rows, suites)
    variants, headlines = board(parts)
    cases = list({row.attempt_id: row for row in rows}.values())
    sections = [_section(part, drawn, theirs, runs, Belongings(curves or {}, texts or {})) for part in parts]
    shown = {row.attempt_id for row in rows}
    further = [row for row in behind if row.attempt_id not in shown]
    commands = {number: command for section in sections for number, command in section.commands.items()}
    for part in parts_of(further, suites):
        commands |= commands_of(part.rows, part.suite.axis)
    return render(
        "page.html.j2",
        title=title,
        home=home,
        database=database,
        chapters=_chapters(sections),
        conditions=sorted({f"{part.conditions.scale} scale on {part.conditions.device}" for part in parts}),
        crowded={suite for suite, count in Counter(part.suite.name for part in parts).items() if count > 1},
        variants=variants,
        headlines=headlines,
        machines=machines_of(rows, runs),
        looks=drawn,
        statuses=Counter(case.status.value for case in cases).most_common(),
        shipped=sum(map(is_shipped, cases)),
        started=sorted(case.started_at for case in cases),
        claimed=verdict_board(rows),
        tradeoffs=tradeoffs(parts, drawn),
        first=first,
        data=embedded([*rows, *further], runs, commands, texts or {}),
    )


def _section(
    part: Part,
    drawn: Mapping[str, Look],
    numbers: Sequence[Published],
    runs: Sequence[RunFacts],
    given: Belongings,
) -> Section:
    suite, conditions = part.suite, part.conditions
    anchor = slug("-".join(filter(None, (suite.name, conditions.scale, conditions.device, conditions.testbed))))
    section = section_of(suite.name)
    material = Material(part.rows, suite, drawn, given.curves, given.texts, numbers, anchor)
    return Section(
        part,
        anchor,
        (*origins(part.rows, runs), *mixtures(part.rows)),
        tables(part.rows, suite, numbers),
        figures(part.rows, suite, drawn, numbers, plan=section.plan, prefix=anchor),
        section.passages(material),
        failures_of(part.rows, suite.axis),
        commands_of(part.rows, suite.axis),
    )


def _chapters(sections: Sequence[Section]) -> list[tuple[SuiteFacts, list[Section]]]:
    """The sections under their suites."""
    suites = {section.part.suite.name: section.part.suite for section in sections}
    return [
        (suite, [section for section in sections if section.part.suite.name == name]) for name, suite in suites.items()
    ]
