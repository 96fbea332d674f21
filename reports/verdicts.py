"""Claims held against rows: reproduced, direction only, contradicted, not comparable, or not measured; and why.

    claim, rows of its protocol          ->  a number or a direction is reproduced, or it is not
    claim, rows of another scale or kind ->  at best a direction: the two are never mixed

What holds at all that was compared, but not everything was measured, is a direction. Several seeds count as one by their
median; where there are three or more, the verdict also says how many of them say the same alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from attnbench.harness.rows import Row
from attnbench.harness.spec import SCALES
from attnbench.reports.findings import Finding, axis_of, examine, published_words
from attnbench.reports.published.claims import Claim
from attnbench.reports.readings import Readings, measured_readings


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
    `shipped` says how many of how many attempts behind it came with attnbench and were not measured for this database.
    """

    claim: Claim
    ruling: Ruling
    published: str
    measured: str
    why: str
    seeds: int = 0
    alike: tuple[int, int] | None = None
    shipped: tuple[int, int] = (0, 0)


def verdicts(rows: Iterable[Row], claims: Iterable[Claim]) -> tuple[Verdict, ...]:
    """The verdict on each of the claims, in their order."""
    parts: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        parts.setdefault((row.suite, row.variant), []).append(row)
    return tuple(
        verdict(claim, chain.from_iterable(parts.get((claim.suite, variant), ()) for variant in claim.variants))
        for claim in claims
    )


def verdict(claim: Claim, rows: Iterable[Row]) -> Verdict:
    """The verdict on one claim."""
    variants, points = frozenset(claim.variants), frozenset(claim.points)
    theirs = [
        row
        for row in rows
        if row.variant in variants
        and row.suite == claim.suite
        and (not points or row.point.get(claim.axis) in points)
        and claim.protocol.is_related(row)
        and all(row.point.get(name) == value for name, value in claim.point.items())
    ]
    exact = measured_readings((row for row in theirs if claim.protocol.fits(row)), axis_of(claim))
    finding = examine(claim, exact)
    if finding.seen or not finding.decides:
        return _ruled(claim, exact, ruling_of(finding), finding, finding.why)
    others = [
        (label, readings, found)
        for label, readings in _other_conditions(claim, [row for row in theirs if not claim.protocol.fits(row)])
        if (found := examine(claim, readings)).seen
    ]
    if others:
        # the fullest; among equals the largest scale, which stands first
        label, readings, finding = max(others, key=lambda one: one[2].seen)
        ruling = Ruling.DIRECTION_ONLY if finding.direction else Ruling.NOT_COMPARABLE
        against = [name for name, _, one in others if one.direction != finding.direction]
        why = f"another protocol ({label}): {_there(finding)}"
        why += f"; otherwise under {' and '.join(against)}" if against else ""
        return _ruled(claim, readings, ruling, finding, why)
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
        why,
        min(map(len, groups)),
        alike,
        readings.shipped(),
    )


def _there(finding: Finding) -> str:
    if finding.direction:
        return f"the direction is the same, {finding.why}"
    if not finding.decides:
        return finding.why
    return f"says nothing about the published number, {finding.why}" if finding.holds else f"not so, {finding.why}"


def _other_conditions(claim: Claim, rows: Sequence[Row]) -> Iterator[tuple[str, Readings]]:
    """The rows of other protocols apart by how they differ from the published one, larger scales first."""
    groups: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        known = SCALES.index(row.scale) if row.scale in SCALES else -1
        other = [
            f"{name}={row.point.get(name, 'not set')}"
            for name, value in claim.protocol.settings.items()
            if row.point.get(name) != value
        ]
        groups.setdefault((-known, ", ".join([f"{row.scale} scale", *other])), []).append(row)
    for (_, label), group in sorted(groups.items()):
        yield label, measured_readings(group, axis_of(claim))
