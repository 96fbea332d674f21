"""The plan: from what was asked for to the list of cases, every mistake found before anything is written."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from attnbench.harness.errors import BadParameter, UnknownDevice, UnknownSuite, did_you_mean
from attnbench.harness.spec import SCALES, Case, Grid, Point, Setting, Suite

if TYPE_CHECKING:
    from attnbench.variants.contract import Variant

READOUT = "readout"
REFERENCE_FORM = "count"


@dataclass(frozen=True)
class Request:
    """What was asked for. Empty means: what the suites' grids say."""

    suites: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    scale: str = "quick"
    seeds: tuple[int, ...] = ()
    device: str = "cpu"
    settings: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """A case of the plan with its suite, its grid, and the address that its variant is found by (empty: a reference)."""

    case: Case
    suite: Suite
    grid: Grid
    address: str


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
        from attnbench.harness.errors import UnknownScale

        raise UnknownScale(f"no scale '{request.scale}'. {did_you_mean(request.scale, SCALES)}")
    check_device(request.device)
    for seed in request.seeds:
        if seed < 0:
            raise BadParameter(f"a seed is a whole number from 0 up, got {seed}. Use 0.")
    named = {address: find(address) for address in request.variants}
    asked: list[Asked] = []
    settings_used: set[str] = set()
    for suite in chosen(suites, request):
        grid = suite.grid(request.scale)
        variants = named or {name: find(name) for name in grid.variants}
        addresses = {variant.name: address for address, variant in variants.items()}
        seeds = request.seeds or grid.seeds
        for number in seeds:
            for point, names in _by_point(
                grid, [variant.name for variant in variants.values()], request, settings_used
            ).items():
                for address in names:
                    variant = variants[addresses[address]]
                    if "key_width" in point:
                        variant.check(point.integer("key_width"))
                    for form in request.forms or (preferred_form(suite, point, variant),):
                        case = _case(suite, variant.name, form, point, number, request)
                        asked.append(Asked(case, suite, grid, addresses[variant.name]))
                for reference in suite.references:
                    case = _case(suite, reference, REFERENCE_FORM, point, 0, request)
                    if all(one.case != case for one in asked):
                        asked.append(Asked(case, suite, grid, ""))
    if unused := sorted(set(request.settings) - settings_used):
        known = {
            name for suite in chosen(suites, request) for point in suite.grid(request.scale).points for name in point
        }
        raise BadParameter(f"no suite asked for has a setting '{unused[0]}'. {did_you_mean(unused[0], known)}")
    return asked


def preferred_form(suite: Suite, point: Point, variant: "Variant") -> str:
    """The first form in the suite's order at this point that the variant has; the first of all where it has none.

    A case whose form the variant lacks ends as skipped, with that as its reason.
    """
    order = suite.forms if suite.forms_for is None else suite.forms_for(point)
    for form in order:
        if form in variant.forms or (form == READOUT and variant.readout is not None):
            return form
    return order[0]


def check_device(device: str) -> None:
    """Refuse a device that torch does not know or this machine lacks. Raises UnknownDevice."""
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise UnknownDevice(f"no device '{device}'. {did_you_mean(kind, ('cpu', 'cuda'))}")
    if kind == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise UnknownDevice(f"device '{device}' is not here: torch sees no CUDA device. Use --device cpu.")
        if number and int(number) >= torch.cuda.device_count():
            raise UnknownDevice(f"device '{device}' is not here: CUDA devices 0 to {torch.cuda.device_count() - 1}.")


def default_workers(threads: int = 1) -> int:
    """As many workers as the processors that this process may use have room for."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, processors // threads)


def parse_settings(texts: Sequence[str]) -> dict[str, tuple[Setting, ...]]:
    """`pairs=20,40` as a setting with its values. Raises BadParameter."""
    settings: dict[str, tuple[Setting, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name or not values:
            raise BadParameter(f"a setting is NAME=VALUE[,VALUE...], as in pairs=20,40; got '{text}'.")
        settings[name] = tuple(_value(value) for value in values.split(","))
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
    points: dict[Point, list[str]] = {}
    for variant in variants:
        for point in grid.points_of(variant):
            for changed in _changed(point, request.settings, used):
                at = points.setdefault(changed, [])
                if variant not in at:
                    at.append(variant)
    return points


def _changed(point: Point, settings: Mapping[str, tuple[Setting, ...]], used: set[str]) -> list[Point]:
    points = [point]
    for name, values in settings.items():
        if name not in point:
            continue
        used.add(name)
        for value in values:
            _check_setting(name, value, point[name])
        points = [Point({**one, name: value}) for one in points for value in values]
    return points


def _check_setting(name: str, value: Setting, usual: Setting) -> None:
    """Refuse a value of another kind, and a count or length below one. Raises BadParameter."""
    if isinstance(usual, str) != isinstance(value, str) or (isinstance(usual, int) and not isinstance(value, int)):
        kind = "a word" if isinstance(usual, str) else "a whole number" if isinstance(usual, int) else "a number"
        raise BadParameter(f"setting {name} is {kind}, such as {usual}; got '{value}'.")
    if isinstance(value, int | float) and value <= 0:
        raise BadParameter(
            f"setting {name} is a number above 0, got {value}. Use {1 if isinstance(usual, int) else usual}."
        )


def with_timeout(grid: Grid, seconds: float | None) -> Grid:
    """The grid with another timeout for each case. Raises BadParameter."""
    if seconds is None:
        return grid
    if seconds <= 0:
        raise BadParameter(f"a timeout is a number of seconds above 0, got {seconds:g}.")
    return replace(grid, timeout_seconds=seconds)
