"""How published numbers were measured, as data: what a row must share with one to be held against it.

The protocols are in the `*_claims.toml` files beside this one, with the claims that hold under them.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from typing import Any

from attnbench.harness.rows import Row
from attnbench.harness.spec import Point

NOT_TO_BE_READ = "smoke"


@dataclass(frozen=True)
class Protocol:
    """What a row must share to be compared with a published number.

    A row without all of `needs` answers another question, and so does one of a scale that is not among `scales` (empty:
    of all but smoke). One that answers it, at another scale than `scale` (empty: any will do) or with other `settings`,
    may support a direction, never a number. `settings_for` has what single variants were published with instead. `tells`
    are the settings that name such a row in words; all that differ, if empty.
    """

    name: str
    says: str
    scale: str
    needs: Point
    settings: Point
    settings_for: Mapping[str, Point] = field(default_factory=dict, hash=False)
    scales: tuple[str, ...] = ()
    tells: tuple[str, ...] = ()

    @cached_property
    def point(self) -> Point:
        """All settings that a row of this protocol has, but for those of `settings_for`."""
        return Point({**self.needs, **self.settings})

    def point_of(self, variant: str) -> Point:
        """All settings that a row of `variant` has under this protocol."""
        return Point({**self.point, **self.settings_for[variant]}) if variant in self.settings_for else self.point

    def is_related(self, row: Row) -> bool:
        """Whether a row answers the question at all."""
        is_read = row.scale in self.scales if self.scales else row.scale != NOT_TO_BE_READ
        return is_read and not differences(self.needs, row.point)

    def fits(self, row: Row) -> bool:
        """Whether a row was measured as published."""
        return self.scale in {"", row.scale} and not differences(self.point_of(row.variant), row.point)


def differences(settings: Point, point: Point) -> tuple[str, ...]:
    """The names of those settings that `point` has otherwise, or not at all."""
    return tuple(name for name, value in settings.items() if point.get(name) != value)


@cache
def protocols() -> Mapping[str, Protocol]:
    """The protocols that published numbers hold under, by name.

    One that is `like` another has the settings of that one; its own `needs` take the place of the other's.
    """
    found: dict[str, Protocol] = {}
    for file in claim_files():
        for one in file.get("protocol", ()):
            found[one["name"]] = _protocol(one, found.get(one.get("like", "")))
    return found


@cache
def claim_files() -> tuple[Mapping[str, Any], ...]:
    """The files with claims as they are, in the order of the sections of the paper that they are about."""
    folder = resources.files("attnbench.reports.published")
    files = [one for one in folder.iterdir() if one.name.endswith("_claims.toml")]
    found = (tomllib.loads(one.read_text(encoding="utf-8")) for one in files)
    return tuple(sorted(found, key=lambda file: str(file["section"])))


def _protocol(one: Mapping[str, Any], like: Protocol | None) -> Protocol:
    needs = Point(one.get("needs"))
    settings = {**(like.point if like else {}), **one.get("settings", {})}
    own = {variant: Point(changed) for variant, changed in one.get("settings_for", {}).items()}
    return Protocol(
        one["name"],
        one["says"],
        one.get("scale", like.scale if like else ""),
        needs,
        Point({name: value for name, value in settings.items() if name not in needs}),
        {**(like.settings_for if like else {}), **own},
        tuple(one.get("scales", ())),
        tuple(one.get("tells", ())),
    )
