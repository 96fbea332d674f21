"""Colours and markers."""

import colorsys
import itertools

import pytest

from attnbench.reports.palette import MARKERS, looks, luminance

VARIANTS = [
    "softmax",
    "linear",
    "linear+noattnnorm",
    "performer-m64",
    "performer-m64+scaled",
    "dpfp-nu1",
    "dpfp-nu2",
    "dpfp-nu3",
    "delta",
    "dpfp-nu1+delta",
    "performer-m64+delta",
    "delta+attnnorm",
    "delta+nosumnorm",
    "fwm",
    "dpfp-nu1+fwm",
    "fwp1991",
    "gated",
]
LIGHT, DARK = (0xFC, 0xFC, 0xFA), (0x14, 0x17, 0x1A)


def rgb(colour):
    return tuple(int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("background", [LIGHT, DARK], ids=["light", "dark"])
def test_every_colour_has_a_contrast_of_three_to_one_to_both_backgrounds(background):
    ground = tuple(part / 255 for part in background)
    assert min(contrast(rgb(look.colour), ground) for look in looks(VARIANTS).values()) >= 3


def test_no_two_variants_look_alike():
    found = looks(VARIANTS)
    assert len(set(found.values())) == len(VARIANTS)
    # what a reader who sees no colours has left within a family
    for one, other in itertools.combinations(VARIANTS, 2):
        if one.split("-")[0].split("+")[0] == other.split("-")[0].split("+")[0]:
            assert found[one].marker != found[other].marker


def test_a_family_keeps_its_hue_whatever_else_is_on_the_page():
    def hue(colour):
        return round(colorsys.rgb_to_hls(*rgb(colour))[0], 1)

    alone, among = looks(["delta"]), looks(VARIANTS)
    assert hue(alone["delta"].colour) == hue(among["delta"].colour)
    assert looks(reversed(VARIANTS)) == among


def test_a_family_that_nobody_has_heard_of_gets_a_look_too():
    assert looks(["mine", "softmax"])["mine"].marker in MARKERS


def test_a_name_with_modifiers_is_dashed():
    found = looks(["delta", "delta+attnnorm"])
    assert found["delta"].dash == ()
    assert found["delta+attnnorm"].dash != ()
