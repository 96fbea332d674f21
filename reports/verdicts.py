"""Claims held against rows: reproduced, direction only, contradicted, not comparable, or not measured; and why.

    claim, rows of its protocol          ->  a number or a direction is reproduced, or it is not
    claim, rows of another scale or kind ->  at best a direction: the two are never mixed

What holds at all that was compared, but not everything was measured, is a direction. A perplexity that counting words beats
compares nothing, unless the claim is that the variant fails. Several seeds count as one by their
median; where there are three or more, the verdict also says how many of them say the same alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain

from attnbench.harness.rows import Row
from attnbench.harness.spec import SCALES
from attnbench.reports.findings import Finding, examine, published_words
from attnbench.reports.published.claims import Claim
from attnbench.reports.published.protocol import differences
from attnbench.reports.readings import Floors, Readings, measured_readings
from attnbench.reports.tables import FLOOR_FORM


class Ruling(StrEnum):
    """What the rows say of a claim."""

    REPRODUCED = "reproduced"
    DIRECTION_ONLY = "direction only"
    CONTRADICTED = "contradicted"
    NOT_COMPARABLE = "not comparable"
    NOT_MEASURED = "not measured"

    @property
    def symbol(self) -> str:
        """One character that stands for it, so that colour is never needed to tell."""
        return _SYMBOLS[self]


_SYMBOLS = {
    Ruling.REPRODUCED: "✓",
    Ruling.DIRECTION_ONLY: "↗",
    Ruling.CONTRADICTED: "✗",
    Ruling.NOT_COMPARABLE: "≠",
    Ruling.NOT_MEASURED: "○",
}


@dataclass(frozen=True)
class Verdict:
    """A ruling on one claim, what was published and measured of it in words, and why it was ruled so.

    `seeds` counts those behind the least measured case. `alike` says how many of how many seeds that every case has hold the
    claim alone, or its direction, as all do together; None below three.
    `shipped` says how many of how many attempts behind it came with attnbench and were not measured for this database;
    `attempts` are they.
    """

    claim: Claim
    ruling: Ruling
    published: str
    measured: str
    why: str
    seeds: int = 0
    alike: tuple[int, int] | None = None
    shipped: tuple[int, int] = (0, 0)
    attempts: tuple[int, ...] = field(default=(), compare=False)


def verdicts(rows: Iterable[Row], claims: Iterable[Claim]) -> tuple[Verdict, ...]:
    """The verdict on each of the claims, in their order."""
    parts: dict[tuple[str, str], list[Row]] = {}
    counted: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault((row.suite, row.variant), []).append(row)
        if row.form == FLOOR_FORM:
            counted.setdefault(row.suite, []).append(row)
    return tuple(
        verdict(
            claim,
            chain(
                counted.get(claim.suite, ()),
                *(parts.get((claim.suite, variant), ()) for variant in claim.variants),
            ),
        )
        for claim in claims
    )


def verdict(claim: Claim, rows: Iterable[Row]) -> Verdict:
    """The verdict on one claim. `rows` may hold others too, and those of floors."""
    of_suite = [row for row in rows if row.suite == claim.suite]
    floors = Floors(of_suite)
    theirs = [row for row in of_suite if claim.asks(row.variant, row.point) and claim.protocol.is_related(row)]
    exact = measured_readings((row for row in theirs if claim.protocol.fits(row)), claim, floors)
    finding = examine(claim, exact)
    if finding.seen or not finding.decides:
        return _ruled(claim, exact, ruling_of(finding), finding, finding.why)
    elsewhere = list(_other_conditions(claim, [row for row in theirs if not claim.protocol.fits(row)], floors))
    others = [(one, found) for one in elsewhere if (found := examine(claim, one.readings)).seen]
    if others:
        # the fullest; among equals the largest scale, which stands first
        chosen, finding = max(others, key=lambda one: one[1].seen)
        ruling = Ruling.DIRECTION_ONLY if finding.direction else Ruling.NOT_COMPARABLE
        against = [one.words for one, found in others if found.direction != finding.direction]
        why = f"{chosen.differs} ({chosen.words}): {_there(finding, is_text=chosen.is_text)}"
        why += f"; otherwise under {' and '.join(against)}" if against else ""
        return _ruled(claim, chosen.readings, ruling, finding, why)
    for readings in (exact, *(one.readings for one in elsewhere)):
        if readings.beaten():
            return _ruled(claim, readings, Ruling.NOT_COMPARABLE, examine(claim, readings), "")
    endings = "; ".join(exact.endings())
    return Verdict(claim, Ruling.NOT_MEASURED, published_words(claim), "", endings)


def ruling_of(finding: Finding) -> Ruling:
    """The ruling that a finding gives where its rows are of the published protocol."""
    if not finding.decides:
        return Ruling.NOT_COMPARABLE
    if finding.holds and finding.is_complete:
        return Ruling.REPRODUCED
    return Ruling.DIRECTION_ONLY if finding.holds or finding.direction else Ruling.CONTRADICTED


def _ruled(claim: Claim, readings: Readings, ruling: Ruling, finding: Finding, why: str) -> Verdict:
    groups = readings.seeds()
    common = frozenset.intersection(*groups)
    alike = None
    if len(common) >= 3:
        alone = [examine(claim, readings.of_seed(seed)) for seed in common]
        same = sum((one.holds, one.direction) == (finding.holds, finding.direction) for one in alone)
        alike = (same, len(alone))
    return Verdict(
        claim,
        ruling,
        published_words(claim),
        finding.measured,
        "; ".join(filter(None, (why, readings.beaten()))),
        min(map(len, groups)),
        alike,
        readings.shipped(),
        readings.attempts(),
    )


def _there(finding: Finding, *, is_text: bool) -> str:
    if finding.direction:
        return f"the direction is the same, {finding.why}"
    if not finding.decides:
        return finding.why
    if finding.holds:
        return f"says nothing about the published number, {finding.why}"
    return f"contradicted in direction here, {finding.why}" if is_text else f"not so, {finding.why}"


@dataclass(frozen=True)
class _Conditions:
    """Rows of one other protocol: what it is (`another text and size`), how it differs in words, and the readings."""

    differs: str
    words: str
    is_text: bool
    readings: Readings


def _other_conditions(claim: Claim, rows: Sequence[Row], floors: Floors) -> Iterator[_Conditions]:
    """The rows of other protocols apart by how they differ from the published one, larger scales first."""
    protocol = claim.protocol
    groups: dict[tuple[int, str, tuple[str, ...]], list[Row]] = {}
    for row in rows:
        known = SCALES.index(row.scale) if row.scale in SCALES else -1
        names = differences(protocol.point_of(row.variant), row.point)
        other = tuple(f"{name}={row.point.get(name, 'not set')}" for name in names)
        groups.setdefault((-known, row.scale, other), []).append(row)
    for (_, scale, other), group in sorted(groups.items(), key=lambda one: one[0]):
        values = dict(one.split("=", 1) for one in other)
        told = [f"{name}={values[name]}" for name in protocol.tells or values if name in values]
        more = len(values) - len(told)
        words = ", ".join([f"{scale} scale", *told]) + (
            f" and {more} more setting{'' if more == 1 else 's'}" if more else ""
        )
        differs = " and ".join(what for what, names in _KINDS_OF_OTHER.items() if names & set(values))
        yield _Conditions(
            f"another {differs or 'protocol'}", words, "data" in values, measured_readings(group, claim, floors)
        )


# what else a protocol is of -> the settings that say so
_KINDS_OF_OTHER = {"text": {"data"}, "size": {"width", "layers"}}
