"""The page: one HTML file with all tables, figures and provenance inside, built from rows alone.

    store.rows(), store.suites(), store.runs()  ->  page(...)  ->  text of the file

It loads nothing from anywhere, and whatever a row says (a variant's name, a reason) stays text.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from attnbench.harness.rows import Row, Series, Status
from attnbench.reports.board import Part, board
from attnbench.reports.figures import Figure, figures
from attnbench.reports.grids import Table, tables
from attnbench.reports.measured import is_shipped, origins
from attnbench.reports.numbers import seconds_written, setting_written, written
from attnbench.reports.palette import MARKERS, Look, looks
from attnbench.reports.passage import Passage
from attnbench.reports.passages import passages
from attnbench.reports.published import Published, published
from attnbench.reports.tables import (
    FLOOR_FORM,
    SuiteFacts,
    by_conditions,
    frame,
    layout,
    metric_words,
    mixtures,
    order,
    status_words,
)
from attnbench.reports.verdict_board import because, verdict_board


class RunFacts(Protocol):
    """What a report needs to know of a run: the command, and all that its numbers may hang on."""

    @property
    def id(self) -> str:
        """Its name in the database."""

    @property
    def command(self) -> str:
        """The command line."""

    @property
    def started_at(self) -> datetime:
        """When it began."""

    @property
    def ended_at(self) -> datetime | None:
        """When it ended; None while it runs, or where it was killed."""

    @property
    def state(self) -> str:
        """How it ended."""

    @property
    def machine(self) -> Mapping[str, str | int]:
        """Processor, cores, memory, operating system."""

    @property
    def device(self) -> Mapping[str, str | int]:
        """GPUs; empty where there is none."""

    @property
    def driver(self) -> str:
        """The GPU driver; empty where there is none."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Distributions that can change a number."""

    @property
    def commit(self) -> str:
        """The commit of the source; empty where there is none."""

    @property
    def is_dirty(self) -> bool:
        """Whether the source had changes that are in no commit."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables that the workers got."""


@dataclass(frozen=True)
class Failure:
    """Attempts of one variant that ended alike, and where."""

    variant: str
    status: str
    words: str
    places: str
    count: int


@dataclass(frozen=True)
class Source:
    """A command that makes some of the numbers again, and the attempts that it made them with."""

    command: str
    attempts: tuple[Row, ...]


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
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class Machine:
    """The facts that some runs share, as pairs of a word and its value, and those runs."""

    facts: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]
    runs: tuple[RunFacts, ...]


def page(
    rows: Sequence[Row],
    suites: Sequence[SuiteFacts],
    runs: Sequence[RunFacts] = (),
    *,
    numbers: Iterable[Published] | None = None,
    title: str = "attnbench",
    database: str = "attnbench.db",
    curves: Mapping[int, Sequence[Series]] | None = None,
) -> str:
    """The HTML text. `numbers` are published ones to set beside the measured (all that are known, if not given).

    `curves` are the series of attempts, as `store.series` gives them.
    """
    theirs = published() if numbers is None else tuple(numbers)
    drawn = looks(row.variant for row in rows)
    parts = parts_of(rows, suites)
    variants, headlines = board(parts)
    cases = _attempts(rows)
    template = _environment().get_template("page.html.j2")
    return template.render(
        title=title,
        database=database,
        chapters=_chapters([_section(part, drawn, theirs, runs, curves or {}) for part in parts]),
        conditions=sorted({f"{part.conditions.scale} scale on {part.conditions.device}" for part in parts}),
        crowded={suite for suite, count in Counter(part.suite.name for part in parts).items() if count > 1},
        variants=variants,
        headlines=headlines,
        machines=machines_of(rows, runs),
        looks=drawn,
        markers=MARKERS,
        statuses=Counter(case.status.value for case in cases).most_common(),
        shipped=sum(map(is_shipped, cases)),
        started=sorted(case.started_at for case in cases),
        claimed=verdict_board(rows),
    )


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


_READING_ORDER = (
    "capacity",
    "rewrite",
    "mqar",
    "language_modelling",
    "unbounded_context",
    "translation",
    "speed",
    "memory",
)


def _place(suite: SuiteFacts) -> int:
    known = suite.name in _READING_ORDER
    return _READING_ORDER.index(suite.name) if known else len(_READING_ORDER)


def failures_of(rows: Iterable[Row], axis: str) -> tuple[Failure, ...]:
    """What ended as something else than ok, alike endings together."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in _attempts(rows):
        if row.status is not Status.OK:
            groups.setdefault((row.variant, row.status.value, row.reason), []).append(row)
    return tuple(
        Failure(
            variant, status, status_words(status, reason), _places(groups[variant, status, reason], axis), len(group)
        )
        for (variant, status, reason), group in sorted(groups.items(), key=lambda item: tuple(map(order, item[0])))
    )


def sources_of(rows: Sequence[Row], axis: str) -> tuple[Source, ...]:
    """The commands that make the numbers again, each with its attempts."""
    varying = layout(frame(rows), axis).varying
    groups: dict[str, list[Row]] = {}
    for row in _attempts(rows):
        groups.setdefault(command_of(row, varying), []).append(row)
    return tuple(
        Source(command, tuple(sorted(groups[command], key=lambda row: (str(row.point), row.attempt_id))))
        for command in sorted(groups, key=order)
    )


def command_of(row: Row, varying: Iterable[str] = ()) -> str:
    """The command that asks the case of a row again, and its siblings along the axis.

    `varying` are settings that tell cases of one variant apart (the phase of a timing): they are named too.
    """
    is_pytest = row.facts.get("door") == "pytest"
    words = ["pytest", f"suites/{row.suite}.py"] if is_pytest else ["attnbench", "run", row.suite]
    if row.form != FLOOR_FORM:
        words += ["--variant", row.facts.get("address", row.variant), "--form", row.form]
    words += ["--scale", row.scale, "--seed", str(row.seed)]
    if row.device != "cpu":
        words += ["--device", row.device]
    by_hand = dict(one.split("=", 1) for one in row.facts.get("settings", "").split(",") if one)
    telling = {name: str(row.point[name]) for name in varying if name in row.point and name != "timing"}
    for name, value in {**telling, **by_hand}.items():
        words += ["--set", f"{name}={value}"]
    return shlex.join(words)


def machines_of(rows: Iterable[Row], runs: Sequence[RunFacts]) -> tuple[Machine, ...]:
    """The runs that the rows come from, together where machine, versions, commit and environment are the same."""
    used = _attempts(rows)
    own = {row.run_id for row in used if not is_shipped(row)}
    theirs = {row.run_id for row in used} - own
    groups: dict[tuple[Any, ...], list[RunFacts]] = {}
    for run in sorted((run for run in runs if run.id in own | theirs), key=lambda run: (run.started_at, run.id)):
        facts = (*([_SHIPPED] if run.id in theirs else []), *_facts(run))
        groups.setdefault((facts, tuple(sorted(run.environment.items()))), []).append(run)
    return tuple(Machine(facts, environment, tuple(group)) for (facts, environment), group in groups.items())


_SHIPPED = ("rows", "shipped with attnbench, not measured for this database")


def _facts(run: RunFacts) -> Iterator[tuple[str, str]]:
    for name, value in {**run.machine, **run.device}.items():
        if name.endswith("_bytes") and isinstance(value, int):
            yield metric_words(name.removesuffix("_bytes")), written(value, "B")
        else:
            yield metric_words(name), str(value)
    if run.driver:
        yield "driver", run.driver
    yield "versions", ", ".join(f"{name} {version}" for name, version in run.versions.items()) or "not recorded"
    commit = run.commit or "not recorded"
    yield "commit", f"{commit}, with changes that are in no commit" if run.is_dirty else commit


def _section(
    part: Part,
    drawn: Mapping[str, Look],
    numbers: Sequence[Published],
    runs: Sequence[RunFacts],
    curves: Mapping[int, Sequence[Series]],
) -> Section:
    suite, conditions = part.suite, part.conditions
    anchor = _slug("-".join(filter(None, (suite.name, conditions.scale, conditions.device, conditions.testbed))))
    return Section(
        part,
        anchor,
        (*origins(part.rows, runs), *mixtures(part.rows)),
        tables(part.rows, suite, numbers),
        figures(part.rows, suite, drawn, numbers, prefix=anchor),
        passages(part.rows, suite, drawn, curves, prefix=anchor),
        failures_of(part.rows, suite.axis),
        sources_of(part.rows, suite.axis),
    )


def _attempts(rows: Iterable[Row]) -> list[Row]:
    return list({row.attempt_id: row for row in rows}.values())


def _chapters(sections: Sequence[Section]) -> list[tuple[SuiteFacts, list[Section]]]:
    """The sections under their suites."""
    suites = {section.part.suite.name: section.part.suite for section in sections}
    return [
        (suite, [section for section in sections if section.part.suite.name == name]) for name, suite in suites.items()
    ]


def _places(rows: Sequence[Row], axis: str) -> str:
    """Where attempts stand: "pairs 100, 200; seeds 0, 1"."""
    at = sorted({row.point[axis] for row in rows if axis in row.point}, key=order)
    seeds = sorted({row.seed for row in rows})
    words = [f"{metric_words(axis)} {', '.join(map(setting_written, at))}"] if at else []
    words.append(f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}")
    return "; ".join(words)


def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("attnbench.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        words=metric_words,
        duration=seconds_written,
        moment=lambda when: f"{when:%Y-%m-%d %H:%M} UTC",
        quoted=shlex.quote,
        breakable=_breakable,
        because=because,
        slug=_slug,
    )
    environment.tests["shipped"] = is_shipped
    return environment


def _breakable(name: str) -> Any:
    """A variant's name that a narrow column may break after a plus or hyphen."""
    from markupsafe import Markup, escape

    return Markup("").join(
        Markup("{}<wbr>").format(part) for part in re.findall(r"[^+-]*[+-]|[^+-]+$", name)
    ) or escape(name)


def _slug(text: str) -> str:
    """A text as an id or class: letters, digits and hyphens."""
    return "".join(letter if letter.isalnum() else "-" for letter in text)
