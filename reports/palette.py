"""One colour, marker and dash for each variant, the same through the whole page and from page to page.

The base of a name (`dpfp` in `dpfp-nu2+delta`) has the hue; the members of a family differ in shade and marker, and a
name with modifiers is dashed. All colours keep a contrast of 3:1 or more to the page's light and its dark background,
and hue never stands alone: the marker says the same.
"""

import colorsys
import re
from collections.abc import Iterable
from dataclasses import dataclass

from attnbench.reports.tables import order

# Families keep their place, so that two pages agree; a family that is not listed takes a place behind these.
_FAMILIES = ("softmax", "linear", "delta", "dpfp", "performer", "gated", "fwm", "fwp1991", "xl")
# Hue in degrees and saturation, from the colours of Okabe and Ito, brought to one lightness.
_HUES = ((205, 0.75), (27, 0.95), (163, 0.85), (336, 0.60), (262, 0.60), (48, 0.95), (188, 0.70), (96, 0.55), (0, 0.05))
# matplotlib's name of a marker -> its outline in a box of 10 by 10, for legends beside text
MARKERS = {
    "o": "M5 1a4 4 0 1 0 .01 0z",
    "s": "M1.5 1.5h7v7h-7z",
    "D": "M5 .3 9.7 5 5 9.7.3 5z",
    "^": "M5 1 9.3 9H.7z",
    "v": "M5 9 .7 1h8.6z",
    "P": "M3.5.8h3v2.7h2.7v3H6.5v2.7h-3V6.5H.8v-3h2.7z",
    "X": "M2.7.6 5 2.9 7.3.6l2.1 2.1L7.1 5l2.3 2.3-2.1 2.1L5 7.1 2.7 9.4.6 7.3 2.9 5 .6 2.7z",
    "p": "M5 .8 9.3 4 7.6 9H2.4L.7 4z",
    "h": "M5 .6 8.8 2.8v4.4L5 9.4 1.2 7.2V2.8z",
    "<": "M1 5 9 .7v8.6z",
    ">": "M9 5 1 9.3V.7z",
}
_LUMINANCE = (0.15, 0.28)
FLOOR_COLOUR = "#808080"


@dataclass(frozen=True)
class Look:
    """How a variant is drawn. `dash` is on and off lengths; empty means a solid line."""

    colour: str
    marker: str
    dash: tuple[float, ...]


def looks(variants: Iterable[str]) -> dict[str, Look]:
    """The look of each variant."""
    names = sorted(set(variants), key=order)
    families: dict[str, list[str]] = {}
    for name in names:
        families.setdefault(family(name), []).append(name)
    places = {name: place for place, name in enumerate(_FAMILIES)}
    for name in sorted(set(families) - set(places), key=order):
        places[name] = len(places)
    return {
        name: Look(
            _colour(places[base], position, len(members)),
            tuple(MARKERS)[(places[base] + position) % len(MARKERS)],
            (4.0, 1.6) if "+" in name else (),
        )
        for base, members in families.items()
        for position, name in enumerate(members)
    }


def family(variant: str) -> str:
    """The base of a name: what stands before its numbers and modifiers."""
    base = re.match(r"[^+:/-]+", variant)
    return base.group() if base else variant


def _colour(place: int, position: int, members: int) -> str:
    """A member's shade of the family's hue: from dark to light between the two luminances that both backgrounds bear."""
    hue, saturation = _HUES[place % len(_HUES)]
    share = 0.5 if members == 1 else position / (members - 1)
    target = _LUMINANCE[0] + share * (_LUMINANCE[1] - _LUMINANCE[0])
    low, high = 0.0, 1.0
    for _ in range(20):
        lightness = (low + high) / 2
        colour = colorsys.hls_to_rgb(hue / 360, lightness, saturation)
        low, high = (lightness, high) if luminance(colour) < target else (low, lightness)
    return "#" + "".join(f"{round(255 * part):02x}" for part in colour)


def luminance(colour: tuple[float, float, float]) -> float:
    """The relative luminance of an sRGB colour, as WCAG 2 defines it."""
    linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour)
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
