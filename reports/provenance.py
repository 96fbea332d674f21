"""Where numbers come from: the runs, their machines, and the command that asks a case again."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from attnbench.harness.rows import Row
from attnbench.reports.measured import is_shipped
from attnbench.reports.numbers import written
from attnbench.reports.tables import FLOOR_FORM, frame, layout, metric_words


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
class Machine:
    """The facts that some runs share, as pairs of a word and its value, and those runs."""

    facts: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]
    runs: tuple[RunFacts, ...]

    @property
    def name(self) -> str:
        """Processor and GPU in short."""
        told = dict(self.facts)
        cores = told.get("usable cores", told.get("cores"))
        words = [
            told.get("cpu", "a processor that is not recorded"),
            f"{cores} cores" if cores else "",
            told.get("gpu", ""),
        ]
        return ", ".join(filter(None, words))


def commands_of(rows: Sequence[Row], axis: str) -> dict[int, str]:
    """The command that asks each attempt's case again, by attempt. `rows` are of one suite under one set of conditions."""
    telling = (axis, *layout(frame(rows), axis).varying)
    return {number: command_of(row, telling) for number, row in {row.attempt_id: row for row in rows}.items()}


def command_of(row: Row, telling: Iterable[str] = ()) -> str:
    """The command that asks the case of a row again, with `--rerun always` where attnbench would not ask it twice.

    `telling` are settings that tell cases of one variant apart (the length, the phase of a timing): they are named too.
    """
    is_pytest = row.facts.get("door") == "pytest"
    words = ["pytest", f"suites/{row.suite}.py"] if is_pytest else ["attnbench", "run", row.suite]
    if row.form != FLOOR_FORM:
        words += ["--variant", row.facts.get("address", row.variant), "--form", row.form]
    words += ["--scale", row.scale, "--seed", str(row.seed)]
    if row.device != "cpu":
        words += ["--device", row.device]
    by_hand = dict(one.split("=", 1) for one in row.facts.get("settings", "").split(",") if one)
    for name in telling:
        if name in row.point and name not in by_hand and name != "timing":
            words += ["--only", f"{name}={row.point[name]}"]
    for name, value in by_hand.items():
        words += ["--set", f"{name}={value}"]
    return shlex.join(words if is_pytest else [*words, "--rerun", "always"])


def machines_of(rows: Iterable[Row], runs: Sequence[RunFacts]) -> tuple[Machine, ...]:
    """The runs that the rows come from, together where machine, versions, commit and environment are the same."""
    used = {row.attempt_id: row for row in rows}.values()
    own = {row.run_id for row in used if not is_shipped(row)}
    theirs = {row.run_id for row in used} - own
    groups: dict[tuple[Any, ...], list[RunFacts]] = {}
    for run in sorted((run for run in runs if run.id in own | theirs), key=lambda run: (run.started_at, run.id)):
        facts = (*([_SHIPPED] if run.id in theirs else []), *facts_of(run))
        groups.setdefault((facts, tuple(sorted(run.environment.items()))), []).append(run)
    return tuple(Machine(facts, environment, tuple(group)) for (facts, environment), group in groups.items())


_SHIPPED = ("rows", "shipped with attnbench, not measured for this database")


def facts_of(run: RunFacts) -> Iterator[tuple[str, str]]:
    """What one run says of its machine, versions and commit: a word and its value each."""
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
