"""What the paper says that a measurement can hold or break, as data: `synthetic_claims.toml` beside this file.

A claim is one sentence with an id, a source, the protocol that its numbers hold under, and one of six kinds:

    value       a number, within a tolerance
    ratio       one variant's number over another's, within a tolerance; its direction is the side of 1
    order       groups of variants (or of points of one), best first: each beats all that follow
    threshold   where a number stays at or below a bound, and where it does not
    curve       all points of a published curve, by the rule of `reports/agreement.py`
    ending      how cases end: diverged

A remark is no claim: it says where the paper's text and its released code differ.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any, Literal

from attnbench.harness.rows import Row, Status
from attnbench.harness.spec import Point, Setting

Better = Literal["lower", "higher"]
# A claim of many points has its direction right where this share of them says so.
MOST = 0.9
# Quantities that no row holds: how far along the axis a variant retrieves (`reports/findings.py`), and how many steps a run
# took until it did (`reports/readings.py`).
REACH = "reach"
STEPS_TO_SOLVE = "steps_to_solve"


@dataclass(frozen=True)
class Protocol:
    """What a row must share to be compared with a published number.

    A row without all of `needs` answers another question. One that has them and another scale (empty: any will do) or
    other `settings` may support a direction, never a number.
    """

    name: str
    says: str
    scale: str
    needs: Point
    settings: Point

    @cached_property
    def point(self) -> Point:
        """All settings that a row of this protocol has."""
        return Point({**self.needs, **self.settings})

    def is_related(self, row: Row) -> bool:
        """Whether a row answers the question at all."""
        return row.scale != "smoke" and _has(row, self.needs)

    def fits(self, row: Row) -> bool:
        """Whether a row was measured as published."""
        return self.scale in {"", row.scale} and _has(row, self.point)


@dataclass(frozen=True)
class Subject:
    """A variant, and the axis value where it does not stand at all of its claim's."""

    variant: str
    at: Setting | None = None


@dataclass(frozen=True)
class Value:
    """Each of the variants has this number at each of the points.

    The tolerance is the larger of `absolute` and `relative` of the value. Outside of it, a number above `above` or
    below `below` has at least the right direction.
    """

    variants: tuple[str, ...]
    at: tuple[Setting, ...]
    quantity: str
    value: float
    absolute: float = 0.0
    relative: float = 0.0
    above: float | None = None
    below: float | None = None


@dataclass(frozen=True)
class Ratio:
    """The number of `variant` over that of `over` is `value`, within `relative` of it, at each of the points."""

    variant: str
    over: str
    at: tuple[Setting, ...]
    quantity: str
    value: float
    relative: float


@dataclass(frozen=True)
class Order:
    """Each member of a group beats all members of the groups behind it, at each of the points.

    Where `most` (a share) of the comparisons or more hold, the direction is right.
    Two losses at or below `equal_at_most` are equal: training ends there. For the reach, `reaches_at_most` is the loss
    that counts as retrieved, and the points are those that it is read from.
    """

    groups: tuple[tuple[Subject, ...], ...]
    at: tuple[Setting, ...]
    quantity: str
    better: Better
    equal_at_most: float
    reaches_at_most: float
    most: float = MOST


@dataclass(frozen=True)
class Threshold:
    """The number of each variant is at most `at_most` at the points of `holds_at`, and above at those of `fails_at`.

    A border that lies no more than `slack` along the axis from where it was published has the right direction, and so
    has one where `most` (a share) of the points or more are on the claimed side.
    """

    variants: tuple[str, ...]
    holds_at: tuple[Setting, ...]
    fails_at: tuple[Setting, ...]
    quantity: str
    at_most: float
    slack: float = 0.0
    most: float = MOST

    @property
    def at(self) -> tuple[Setting, ...]:
        """All points that something is claimed of."""
        return (*self.holds_at, *self.fails_at)


@dataclass(frozen=True)
class Curve:
    """The runs of a variant agree with the published ones at each of the points.

    Where `most` of the points (a share) or more retrieve as published or fail as published, the direction is right.
    """

    variant: str
    at: tuple[Setting, ...]
    quantity: str
    most: float = MOST


@dataclass(frozen=True)
class Ending:
    """The cases of each variant end like this at each of the points; at `most` (a share), the direction is right."""

    variants: tuple[str, ...]
    at: tuple[Setting, ...]
    status: Status
    most: float = MOST


Kind = Value | Ratio | Order | Threshold | Curve | Ending


@dataclass(frozen=True)
class Claim:
    """One published statement. `point` are settings that its cases have beside the protocol's; `axis` is the suite's."""

    id: str
    says: str
    source: str
    suite: str
    axis: str
    protocol: Protocol
    point: Point
    test: Kind
    note: str

    @property
    def kind(self) -> str:
        """The word for what is claimed: value, ratio, order, threshold, curve or ending."""
        return type(self.test).__name__.lower()

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants that it speaks of, each once."""
        match self.test:
            case Order(groups=groups):
                named = [subject.variant for group in groups for subject in group]
            case Ratio(variant=variant, over=over):
                named = [variant, over]
            case Curve(variant=variant):
                named = [variant]
            case Value() | Threshold() | Ending():
                named = list(self.test.variants)
        return tuple(dict.fromkeys(named))

    @property
    def points(self) -> tuple[Setting, ...]:
        """The axis values that it speaks of; none where it holds at any."""
        match self.test:
            case Order(groups=groups, at=at):
                named = [subject.at for group in groups for subject in group if subject.at is not None]
                return tuple(dict.fromkeys((*at, *named)))
            case _:
                return self.test.at


@dataclass(frozen=True)
class Remark:
    """Where the paper's text and its released code or logs differ."""

    id: str
    says: str
    suite: str


@cache
def protocols() -> Mapping[str, Protocol]:
    """The protocols that claims hold under, by name."""
    return {
        one["name"]: Protocol(
            one["name"], one["says"], one.get("scale", ""), Point(one.get("needs")), Point(one.get("settings"))
        )
        for file in _files()
        for one in file.get("protocol", ())
    }


@cache
def claims() -> tuple[Claim, ...]:
    """All claims, in the order of the paper."""
    return tuple(
        _claim(part, one) for file in _files() for part in file.get("part", ()) for one in part.get("claims", ())
    )


@cache
def remarks() -> tuple[Remark, ...]:
    """All remarks, in the order of their files."""
    return tuple(Remark(**one) for file in _files() for one in file.get("remark", ()))


def _has(row: Row, settings: Point) -> bool:
    return all(row.point.get(name) == value for name, value in settings.items())


@cache
def _files() -> tuple[Mapping[str, Any], ...]:
    folder = resources.files("attnbench.reports.published")
    found = sorted((one for one in folder.iterdir() if one.name.endswith("_claims.toml")), key=lambda one: one.name)
    return tuple(tomllib.loads(one.read_text(encoding="utf-8")) for one in found)


def _claim(part: Mapping[str, Any], one: Mapping[str, Any]) -> Claim:
    values = {**part, **one}
    return Claim(
        id=values["id"],
        says=values["says"],
        source=f"{part['source']}, {one['source']}",
        suite=values["suite"],
        axis=values["axis"],
        protocol=protocols()[values["protocol"]],
        point=Point(values.get("point")),
        test=_KINDS[values["kind"]](values),
        note=values.get("note", ""),
    )


def _value(one: Mapping[str, Any]) -> Value:
    tolerance = {name: float(one[name]) for name in ("absolute", "relative", "above", "below") if name in one}
    return Value(_variants(one), _points(one.get("at", ())), one["quantity"], float(one["value"]), **tolerance)


def _ratio(one: Mapping[str, Any]) -> Ratio:
    return Ratio(
        one["variant"], one["over"], _points(one["at"]), one["quantity"], float(one["value"]), float(one["relative"])
    )


def _order(one: Mapping[str, Any]) -> Order:
    return Order(
        tuple(tuple(_subjects(group)) for group in one["order"]),
        _points(one.get("at", ())),
        one["quantity"],
        one["better"],
        float(one.get("equal_at_most", "-inf")),
        float(one.get("reaches_at_most", "nan")),
        float(one.get("most", MOST)),
    )


def _threshold(one: Mapping[str, Any]) -> Threshold:
    return Threshold(
        _variants(one),
        _points(one.get("holds_at", ())),
        _points(one.get("fails_at", ())),
        one["quantity"],
        float(one["at_most"]),
        float(one.get("slack", 0)),
        float(one.get("most", MOST)),
    )


def _curve(one: Mapping[str, Any]) -> Curve:
    return Curve(one["variant"], _points(one["at"]), one["quantity"], float(one.get("most", MOST)))


def _ending(one: Mapping[str, Any]) -> Ending:
    return Ending(_variants(one), _points(one["at"]), Status(one["status"]), float(one.get("most", MOST)))


_KINDS: Mapping[str, Callable[[Mapping[str, Any]], Kind]] = {
    "value": _value,
    "ratio": _ratio,
    "order": _order,
    "threshold": _threshold,
    "curve": _curve,
    "ending": _ending,
}


def _variants(one: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(one["variants"])


def _subjects(group: Iterable[str | Mapping[str, Any]]) -> Iterator[Subject]:
    for one in [group] if isinstance(group, str | Mapping) else group:
        yield Subject(one) if isinstance(one, str) else Subject(one["variant"], one["at"])


def _points(given: Iterable[Setting] | Mapping[str, Any]) -> tuple[Setting, ...]:
    """[20, 40] as it is; {first, last, step} as the numbers from first to last, but_not some."""
    if not isinstance(given, Mapping):
        return tuple(given)
    numbers = range(given["first"], given["last"] + 1, given["step"])
    return tuple(number for number in numbers if number not in given.get("but_not", ()))
