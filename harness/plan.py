"""The plan: from what was asked for to the list of cases, every mistake found before anything is written."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from attnbench.harness.environment import usable_cores
from attnbench.harness.errors import (
    BadParameter,
    BadVariant,
    UnknownDevice,
    UnknownForm,
    UnknownScale,
    UnknownSuite,
    did_you_mean,
)
from attnbench.harness.spec import SCALES, Case, Grid, Point, Setting, Suite

if TYPE_CHECKING:
    from attnbench.variants.contract import Variant

READOUT = "readout"
REFERENCE_FORM = "count"
LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True)
class Request:
    """What was asked for. Empty means: what the suites' grids say.

    `settings` take the place of the grids' own; `only` keeps of the grids the points that have one of these values.
    """

    suites: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    scale: str = "quick"
    seeds: tuple[int, ...] = ()
    device: str = "cpu"
    settings: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)
    only: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """A case of the plan with its suite, its grid, the address that its variant is found by (empty: a reference), and the settings
    that were chosen by hand."""

    case: Case
    suite: Suite
    grid: Grid
    address: str
    settings: str = ""


def chosen(suites: Mapping[str, Suite], request: Request) -> list[Suite]:
    """The suites that were asked for, all that have the scale if none was named. Raises UnknownSuite, UnknownScale."""
    for name in request.suites:
        if name not in suites:
            raise UnknownSuite(f"no suite '{name}'. {did_you_mean(name, suites)}")
    if request.suites:
        named = [suites[name] for name in dict.fromkeys(request.suites)]
        for suite in named:
            suite.grid(request.scale)
        return named
    offered = [suite for suite in suites.values() if request.scale in suite.scales]
    if not offered:
        next(iter(suites.values())).grid(request.scale)
    return offered


def plan(suites: Mapping[str, Suite], request: Request, find: Callable[[str], "Variant"]) -> list[Asked]:
    """Every case of the request, suites in order, the variants of a point side by side.

    `find` gives the variant for a name or an address. Raises a UserError for the first mistake.
    """
    if request.scale not in SCALES:
        raise UnknownScale(f"no scale '{request.scale}'. {did_you_mean(request.scale, SCALES)}")
    check_device(request.device, spreads=True)
    for seed in request.seeds:
        if not 0 <= seed <= LARGEST_SEED:
            raise BadParameter(f"a seed is a whole number from 0 to {LARGEST_SEED}, got {seed}. Use 0.")
    _check_only(
        request.only, [point for suite in chosen(suites, request) for point in _all_points(suite.grid(request.scale))]
    )
    named = _by_name(request.variants, find)
    # a case that is asked for twice is one case
    asked: dict[Case, Asked] = {}
    variants_asked: dict[str, Variant] = {}
    settings_used: set[str] = set()
    for suite in chosen(suites, request):
        variants = named or _by_name(suite.grid(request.scale).variants, find)
        variants_asked |= {name: variant for name, (_, variant) in variants.items()}
        for one in _asked_of(suite, variants, request, settings_used):
            asked.setdefault(one.case, one)
    _check_forms(request.forms, variants_asked.values())
    if unused := sorted(set(request.settings) - settings_used):
        known = {
            name for suite in chosen(suites, request) for point in suite.grid(request.scale).points for name in point
        }
        raise BadParameter(f"no suite asked for has a setting '{unused[0]}'. {did_you_mean(unused[0], known)}")
    if request.only and not asked:
        wanted = " and ".join(f"{name}={_listed(values)}" for name, values in request.only.items())
        raise BadParameter(f"of the variants asked for, none has a point with {wanted}. Ask for less with --only.")
    return list(asked.values())


def _asked_of(
    suite: Suite, variants: "Mapping[str, tuple[str, Variant]]", request: Request, used: set[str]
) -> Iterator[Asked]:
    """The cases of one suite; `used` gets the settings of the request that it has."""
    grid = suite.grid(request.scale)
    seeds = {name: request.seeds or grid.seeds_of(name) for name in variants}
    for seed in dict.fromkeys([*(request.seeds or grid.seeds), *(one for own in seeds.values() for one in own)]):
        for point, names in _by_point(grid, list(variants), request, used).items():
            suite.check(point)
            by_hand = ",".join(f"{name}={point[name]}" for name in request.settings if name in point)
            for name in (one for one in names if seed in seeds[one]):
                address, variant = variants[name]
                if "key_width" in point:
                    variant.check(point.integer("key_width"))
                for form in request.forms or (preferred_form(suite, point, variant),):
                    yield Asked(_case(suite, name, form, point, seed, request), suite, grid, address, by_hand)
            for reference in suite.references:
                yield Asked(_case(suite, reference, REFERENCE_FORM, point, 0, request), suite, grid, "", by_hand)


def _by_name(addresses: Iterable[str], find: Callable[[str], "Variant"]) -> "dict[str, tuple[str, Variant]]":
    """Name -> address and variant. Raises BadVariant where two files use one name."""
    found: dict[str, tuple[str, Variant]] = {}
    for address in addresses:
        variant = find(address)
        before, same = found.setdefault(variant.name, (address, variant))
        if same.origins != variant.origins:
            raise BadVariant(f"{before} and {address} are both called '{variant.name}'. Give one of them another name.")
    return found


def _check_forms(forms: Iterable[str], variants: "Iterable[Variant]") -> None:
    """Refuse a form that no variant asked for has; one that only some of them lack is skipped there. Raises UnknownForm."""
    known: set[str] = set()
    for variant in variants:
        known |= {*variant.forms, *([READOUT] if variant.readout is not None else [])}
    for form in forms:
        if form not in known:
            raise UnknownForm(f"none of the variants asked for has a form '{form}'. {did_you_mean(form, known)}")


def preferred_form(suite: Suite, point: Point, variant: "Variant") -> str:
    """The first form in the suite's order at this point that the variant has; the first of all where it has none.

    A case whose form the variant lacks ends as skipped, with that as its reason.
    """
    order = suite.forms if suite.forms_for is None else suite.forms_for(point)
    for form in order:
        if form in variant.forms or (form == READOUT and variant.readout is not None):
            return form
    return order[0]


def check_device(device: str, *, spreads: bool = False) -> None:
    """Refuse a device that torch does not know or this machine lacks. Raises UnknownDevice.

    With `spreads`, cpu*N and cuda*N are devices too: N processes of this machine, N from 1 up, each with a GPU of its own.
    """
    one, star, count = device.partition("*")
    if star and not spreads:
        raise UnknownDevice(f"one process was needed, but '{device}' is for several. Use --device {one}.")
    if star and (one not in ("cpu", "cuda") or not count.isdecimal() or count != str(int(count)) or count == "0"):
        raise UnknownDevice(
            f"no device '{device}'. For one model trained by N processes: cpu*N or cuda*N, N from 1 up, as in cpu*2."
        )
    kind, _, number = one.partition(":")
    if one not in ("cpu", "cuda") and not (kind == "cuda" and number.isdecimal()):
        raise UnknownDevice(f"no device '{device}'. Known: cpu, and for a GPU cuda or cuda:N.")
    if kind == "cuda":
        import torch

        if not torch.cuda.is_available():
            use = f"cpu*{count}" if star else "cpu"
            raise UnknownDevice(f"device '{device}' is not here: torch sees no CUDA device. Use --device {use}.")
        devices = torch.cuda.device_count()
        if star and int(count) > devices:
            raise UnknownDevice(f"device '{device}' is not here: CUDA devices 0 to {devices - 1}. Use cuda*{devices}.")
        if number and int(number) >= devices:
            raise UnknownDevice(f"device '{device}' is not here: CUDA devices 0 to {devices - 1}.")


def default_workers(device: str) -> int:
    """One worker for each processor that this process may use; one on a GPU, which cases would have to share."""
    return usable_cores() if device == "cpu" else 1


def parse_settings(texts: Sequence[str]) -> dict[str, tuple[Setting, ...]]:
    """`pairs=20,40` as a setting with its values. Raises BadParameter."""
    settings: dict[str, tuple[Setting, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name or not values:
            raise BadParameter(f"a setting is NAME=VALUE[,VALUE...], as in pairs=20,40; got '{text}'.")
        settings[name] = (*settings.get(name, ()), *(_value(value) for value in values.split(",")))
    return settings


def _value(text: str) -> Setting:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _case(suite: Suite, variant: str, form: str, point: Point, seed: int, request: Request) -> Case:
    return Case(suite.name, variant, form, point, seed, request.scale, request.device, suite.threads)


def _by_point(grid: Grid, variants: Sequence[str], request: Request, used: set[str]) -> dict[Point, list[str]]:
    """Point -> the variants asked at it, with the settings of the request in place of the grid's."""
    zeros = {name for point in _all_points(grid) for name, value in point.items() if _is_zero(value)}

    def changed(points: Iterable[Point]) -> Iterator[Point]:
        for point in points:
            if all(name in point and point[name] in values for name, values in request.only.items()):
                yield from _changed(point, request.settings, used, zeros)

    points: dict[Point, list[str]] = {}
    if not variants:
        points = {point: [] for point in changed(grid.points)}
    for variant in variants:
        for point in changed(grid.points_of(variant)):
            at = points.setdefault(point, [])
            if variant not in at:
                at.append(variant)
    return points


def _all_points(grid: Grid) -> list[Point]:
    """The points of all variants, each once."""
    return list(dict.fromkeys([*grid.points, *(point for own in grid.points_for.values() for point in own)]))


def _check_only(only: Mapping[str, tuple[Setting, ...]], points: Sequence[Point]) -> None:
    """Refuse a setting or a value that no point of the grids has. Raises BadParameter."""
    for name, values in only.items():
        known = list(dict.fromkeys(point[name] for point in points if name in point))
        if not known:
            names = {name for point in points for name in point}
            raise BadParameter(f"no suite asked for has a setting '{name}'. {did_you_mean(name, names)}")
        for value in values:
            if value not in known:
                raise BadParameter(
                    f"no point of the grids has {name}={value}, and --only keeps some of them. Known: {_listed(known)}."
                )


def _listed(values: Iterable[Setting]) -> str:
    return ", ".join(map(str, values))


def _is_zero(value: Setting) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == 0


def _changed(
    point: Point, settings: Mapping[str, tuple[Setting, ...]], used: set[str], zeros: Collection[str]
) -> list[Point]:
    """The point with the settings in place of its own; `zeros` are those that may be 0."""
    points = [point]
    for name, values in settings.items():
        if name not in point:
            continue
        used.add(name)
        checked = [_checked(name, value, point[name], allows_zero=name in zeros) for value in values]
        points = [Point({**one, name: value}) for one in points for value in checked]
    return points


def _checked(name: str, value: Setting, usual: Setting, *, allows_zero: bool) -> Setting:
    """The value as the setting's own kind. Raises BadParameter for another kind, and for a number that is not above 0, but for
    a 0 where a point of the grid has one.
    """
    if isinstance(usual, str) != isinstance(value, str) or (isinstance(usual, int) and not isinstance(value, int)):
        kind = "a word" if isinstance(usual, str) else "a whole number" if isinstance(usual, int) else "a number"
        raise BadParameter(f"setting {name} is {kind}, such as {usual}; got '{value}'.")
    if isinstance(value, str):
        return value
    if allows_zero and value == 0:
        return type(usual)(0)
    if not 0 < value < math.inf:
        raise BadParameter(
            f"setting {name} is a number above 0, got {value}. Use {1 if isinstance(usual, int) else usual}."
        )
    # 1 for 1.0 would be another spelling of the same point
    return float(value) if isinstance(usual, float) else value


def with_timeout(grid: Grid, seconds: float | None) -> Grid:
    """The grid with another timeout for each case. Raises BadParameter."""
    if seconds is None:
        return grid
    if not seconds > 0:
        raise BadParameter(f"a timeout is a number of seconds above 0, got {seconds:g}. Use 600.")
    return replace(grid, timeout_seconds=seconds)
