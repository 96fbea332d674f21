"""What the paper says that a measurement can hold or break, as data: the `*_claims.toml` files beside this one.

A claim is one sentence with an id, a source, the protocol that its numbers hold under, and one of seven kinds:

    value       a number, within a tolerance, or a bound where only a bound was published
    ratio       one variant's number over another's, within a tolerance; its direction is the side of 1
    difference  one variant's number less another's, within a tolerance; its direction is the side of 0
    order       groups of variants (or of points of one), best first: each beats all that follow
    threshold   where a number stays at or below a bound, and where it does not
    curve       all points of a published curve, by the rule of `reports/agreement.py`
    ending      how cases end: diverged

`cells` in a file stand for one value claim for each number of a table in `paper.toml`.
A remark is no claim: it says where the paper's text and its released code differ.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from typing import Any, Literal

from attnbench.harness.rows import Status
from attnbench.harness.spec import Point, Setting
from attnbench.reports.published import Published, printed
from attnbench.reports.published.protocol import Protocol, claim_files, differences, protocols

Better = Literal["lower", "higher"]
# Where a case stands: a value along the axis, or several settings by name.
At = Setting | Point
# A claim of many points has its direction right where this share of them says so.
MOST = 0.9
# Quantities that no row holds: how far along the axis a variant retrieves (`reports/findings.py`), and how many steps a run
# took until it did (`reports/readings.py`).
REACH = "reach"
STEPS_TO_SOLVE = "steps_to_solve"


@dataclass(frozen=True)
class Subject:
    """A variant, and the axis value, or several settings, where it does not stand at all points of its claim.

    The subjects of one variant name the same settings.
    """

    variant: str
    at: At | None = None


@dataclass(frozen=True)
class Value:
    """Each of the variants has this number at each of the points.

    The tolerance is the larger of `absolute` and `relative` of the value. Outside of it, a number above `above` or
    below `below` has at least the right direction. Without a `value`, one of the two is all that was published.
    """

    variants: tuple[str, ...]
    at: tuple[Setting, ...]
    quantity: str
    value: float | None
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
class Difference:
    """The number of `variant` less that of `less` is `value`, within `absolute`."""

    variant: str
    less: str
    quantity: str
    value: float
    absolute: float


@dataclass(frozen=True)
class Order:
    """Each member of a group beats all members of the groups behind it, at each of the points.

    Where `most` (a share) of the comparisons or more hold, the direction is right.
    Two losses at or below `equal_at_most` are equal: training ends there. For the reach, `reaches_at_most` is the loss
    that counts as retrieved, and the points are those that it is read from.
    """

    groups: tuple[tuple[Subject, ...], ...]
    at: tuple[At, ...]
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
    """The cases of each variant end like this at each of the points, if it names some.

    Where `most` (a share) of them do, the direction is right.
    """

    variants: tuple[str, ...]
    at: tuple[Setting, ...]
    status: Status
    most: float = MOST


Kind = Value | Ratio | Difference | Order | Threshold | Curve | Ending


@dataclass(frozen=True)
class Claim:
    """One published statement. `point` are settings that its cases have beside the protocol's; `axis` is the suite's.

    A number that counting words does better compares nothing, but for those of `failing`: variants that the statement
    says to fail.
    """

    id: str
    says: str
    source: str
    suite: str
    axis: str
    protocol: Protocol
    point: Point
    test: Kind
    note: str
    failing: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The word for what is claimed: value, ratio, difference, order, threshold, curve or ending."""
        return type(self.test).__name__.lower()

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants that it speaks of, each once."""
        match self.test:
            case Order(groups=groups):
                named = [subject.variant for group in groups for subject in group]
            case Ratio(variant=variant, over=over):
                named = [variant, over]
            case Difference(variant=variant, less=less):
                named = [variant, less]
            case Curve(variant=variant):
                named = [variant]
            case Value() | Threshold() | Ending():
                named = list(self.test.variants)
        return tuple(dict.fromkeys(named))

    @property
    def points(self) -> tuple[At, ...]:
        """The points that it speaks of; none where it holds at any."""
        return tuple(dict.fromkeys(chain.from_iterable(self.points_of.values())))

    @cached_property
    def points_of(self) -> Mapping[str, tuple[At, ...]]:
        """The points at which it speaks of each of its variants; none where it does at any."""
        return {variant: tuple(dict.fromkeys(self._points_of(variant))) for variant in self.variants}

    def _points_of(self, variant: str) -> Iterator[At]:
        match self.test:
            case Order(groups=groups, at=at):
                for subject in (subject for group in groups for subject in group if subject.variant == variant):
                    yield from at if subject.at is None else (subject.at,)
            case Difference():
                return
            case _:
                yield from self.test.at

    def place(self, variant: str, point: Point) -> At | None:
        """Where a case of one of its variants at `point` stands among its points; None where it names none for that variant."""
        points = self.points_of[variant]
        if points and isinstance(points[0], Point):
            return Point({name: point[name] for name in points[0] if name in point})
        return point.get(self.axis) if points else None

    def asks(self, variant: str, point: Point) -> bool:
        """Whether it speaks of a case of `variant` at `point`, as far as its own settings go."""
        points = self.points_of.get(variant)
        if points is None or differences(self.point, point):
            return False
        return not points or self.place(variant, point) in points


@dataclass(frozen=True)
class Remark:
    """Where the paper's text and its released code or logs differ."""

    id: str
    says: str
    suite: str


@cache
def claims() -> tuple[Claim, ...]:
    """All claims, in the order of the paper."""
    return tuple(
        claim
        for file in claim_files()
        for part in file.get("part", ())
        for claim in (*_cells(part), *(_claim(part, one) for one in part.get("claims", ())))
    )


@cache
def remarks() -> tuple[Remark, ...]:
    """All remarks, in the order of their files."""
    return tuple(Remark(**one) for file in claim_files() for one in file.get("remark", ()))


def _cells(part: Mapping[str, Any]) -> Iterator[Claim]:
    """A claim for each number of the tables that a part names."""
    for cells in part.get("cells", ()):
        for one in printed():
            if one.table == cells["table"]:
                yield _cell(part, cells, one)


def _cell(part: Mapping[str, Any], cells: Mapping[str, Any], one: Published) -> Claim:
    where = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in one.own.items())
    what = part["called"][one.metric]
    subject = f"{one.variant} ({where})" if where else one.variant
    protocol = protocols()[one.protocol]
    beside = {name: value for name, value in one.point.items() if name not in protocol.point_of(one.variant)}
    tolerance = {"above": one.value} if one.is_bound else {"relative": float(cells["relative"])}
    return Claim(
        id="-".join((one.suite, *filter(None, map(_slug, (one.table, one.variant, where, what))))),
        says=f"{one.table}: the {what} of {subject} is {f'above {one.value:g}' if one.is_bound else f'{one.value:.1f}'}.",
        source=one.source,
        suite=one.suite,
        axis=part["axis"],
        protocol=protocol,
        point=Point(beside),
        test=Value((one.variant,), (), one.metric, None if one.is_bound else one.value, **tolerance),
        note=cells.get("note", ""),
        failing=(one.variant,) if one.is_bound else (),
    )


def _slug(text: str) -> str:
    """A text as a part of an id: "Table 2, small" -> "table-2-small"."""
    return "-".join("".join(letter if letter.isalnum() else " " for letter in text.lower()).split())


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
        failing=tuple(values.get("failing", ())),
    )


def _value(one: Mapping[str, Any]) -> Value:
    tolerance = {name: float(one[name]) for name in ("absolute", "relative", "above", "below") if name in one}
    value = float(one["value"]) if "value" in one else None
    return Value(_variants(one), _points(one.get("at", ())), one["quantity"], value, **tolerance)


def _ratio(one: Mapping[str, Any]) -> Ratio:
    return Ratio(
        one["variant"], one["over"], _points(one["at"]), one["quantity"], float(one["value"]), float(one["relative"])
    )


def _difference(one: Mapping[str, Any]) -> Difference:
    return Difference(
        one["variant"], one["less"], one["quantity"], float(one["value"]), float(one.get("absolute", 0.0))
    )


def _order(one: Mapping[str, Any]) -> Order:
    return Order(
        tuple(tuple(_subjects(group)) for group in one["order"]),
        _places(one.get("at", ())),
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
    return Ending(_variants(one), _points(one.get("at", ())), Status(one["status"]), float(one.get("most", MOST)))


_KINDS: Mapping[str, Callable[[Mapping[str, Any]], Kind]] = {
    "value": _value,
    "ratio": _ratio,
    "difference": _difference,
    "order": _order,
    "threshold": _threshold,
    "curve": _curve,
    "ending": _ending,
}


def _variants(one: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(one["variants"])


def _subjects(group: Iterable[str | Mapping[str, Any]]) -> Iterator[Subject]:
    for one in [group] if isinstance(group, str | Mapping) else group:
        if isinstance(one, str):
            yield Subject(one)
        else:
            (at,) = _places([one["at"]]) if "at" in one else (None,)
            yield Subject(one["variant"], at)


def _places(given: Iterable[Any] | Mapping[str, Any]) -> tuple[At, ...]:
    """As `_points`, and {positions = "none"} in a list as settings."""
    if isinstance(given, Mapping):
        return _points(given)
    return tuple(Point(one) if isinstance(one, Mapping) else one for one in given)


def _points(given: Iterable[Setting] | Mapping[str, Any]) -> tuple[Setting, ...]:
    """[20, 40] as it is; {first, last, step} as the numbers from first to last, but_not some."""
    if not isinstance(given, Mapping):
        return tuple(given)
    numbers = range(given["first"], given["last"] + 1, given["step"])
    return tuple(number for number in numbers if number not in given.get("but_not", ()))
