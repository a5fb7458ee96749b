"""Placements look the same everywhere, on light and dark pages, in colour and in grey."""

import numpy as np
import pytest

from multigpu.analysis.style import OTHERS, PALETTE, in_order, look
from multigpu.placements import placements

LIGHT, DARK = "#ffffff", "#121212"


def luminance(colour):
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(a, b):
    low, high = sorted([luminance(a), luminance(b)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colour", [*PALETTE, *OTHERS])
def test_every_colour_stands_out_on_light_and_dark(colour):
    assert contrast(colour, LIGHT) >= 3
    assert contrast(colour, DARK) >= 3


def test_placements_differ_by_colour_and_by_marker_and_nothing_else_takes_their_colours():
    looks = [look(name) for name in placements()]
    assert len({x.colour for x in looks}) == len({x.marker for x in looks}) == len(looks)
    assert not {x.colour for x in looks} & set(OTHERS)


def test_order_is_that_of_every_page_and_an_unknown_placement_stands_last_under_its_name():
    assert look("ps_of_tomorrow").label == "ps_of_tomorrow"
    assert in_order(["exp1", "zzz", "exp2", "ddp", "independent", "ddp"]) == ["independent", "ddp", "exp2", "exp1", "zzz"]
