"""SVG without what nobody sees: the drawing stays, its words and what is referred to stay, the rest goes."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.path import Path

from multigpu.analysis.picture import FONTS, Picture, svg_text
from multigpu.analysis.style import RC
from multigpu.analysis.svg import arcs, classed, compact, inherited, renamed, rounded, unwrapped, without_names


@given(st.lists(st.floats(-1e5, 1e5, allow_subnormal=False), min_size=2, max_size=6))
def test_coordinates_are_rounded_and_nothing_else(values: list[float]) -> None:
    path = " ".join(f"{value:.6f}" for value in values)
    text = f'<path d="M {path}" style="stroke-width: 0.123456"/><text x="{values[0]:.6f}">1.234567</text>'
    short = rounded(text)
    found = [float(number) for number in re.search(r'd="M ([^"]*)"', short).group(1).split()]  # type: ignore[union-attr]
    assert np.allclose(found, values, atol=0.0051) and not re.search(r'd="[^"]*\d\.\d{3}', short)
    assert "stroke-width: 0.123456" in short and ">1.234567<" in short
    assert rounded(short) == short


def test_ids_stay_where_something_refers_to_them() -> None:
    text = (
        '<style>#n-figure_1 *{stroke-linejoin: round}</style><g id="n-figure_1"><g id="n-line2d_1"><path id="n-m1" d="M 0 0"/>'
        '<use xlink:href="#n-m1"/></g><g id="n-axes_1" clip-path="url(#n-p1)"/><g id="n-p1"/></g>'
    )
    assert without_names(text) == text.replace('<g id="n-line2d_1"', "<g").replace('<g id="n-axes_1"', "<g")


def test_the_font_is_named_once() -> None:
    styles = (f"font-size: 9px; font-family: {FONTS}; fill: red", f"font-family: {FONTS}")
    text = "<svg><g>" + "".join(f'<text style="{style}">a</text>' for style in styles) + "</g></svg>"
    short = inherited(text, FONTS)
    assert short.count(FONTS) == 1 and short.startswith(f'<svg><g font-family="{FONTS}">')
    assert 'style="font-size: 9px; fill: red"' in short
    assert inherited("<svg><g/></svg>", FONTS) == "<svg><g/></svg>"


def test_groups_without_attributes_give_way_to_what_they_hold() -> None:
    text = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">\n <g>\n  <g id="a">\n   <g>\n'
        '    <path d="M 1 2\nL 3 -4.5\nC 1 2 3 4 5 6\nz\n" style="fill: none"/>\n   </g>\n   <g/>\n  </g>\n'
        '  <text x="1">two  words &amp; more</text>\n  <use xlink:href="#a"/>\n </g>\n</svg>'
    )
    short = unwrapped(text)
    assert short.splitlines() == [
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">',
        '<g id="a">',
        '<path d="M1 2L3 -4.5C1 2 3 4 5 6z" style="fill: none" />',
        "</g>",
        '<text x="1">two  words &amp; more</text>',
        '<use xlink:href="#a" />',
        "</svg>",
    ]
    assert unwrapped(short) == short


SHEET = "<style>#n-figure_1 *{stroke-linejoin: round}</style>"


@given(st.lists(st.sampled_from(["fill: none", "fill: red; stroke: blue", "stroke-width: 0.8", "fill: url(#n-p1)"]), max_size=12))
def test_repeated_styles_are_written_once_and_mean_the_same(styles: list[str]) -> None:
    drawn = "".join(f'<path style="{style}" d="M0 0" />' for style in styles)
    outside = '</g><defs><path style="fill: none" /><path style="fill: none" /></defs></svg>'
    short = classed(f'<svg>{SHEET}<g id="n-figure_1">{drawn}{outside}')
    rules = dict(re.findall(r"#n-figure_1 \.(\w+)\{([^}]*)\}", short))
    meant = re.sub(r' class="(\w+)"', lambda one: f' style="{rules[one.group(1)]}"', short[short.index("<g") :])
    assert meant.replace(" ", "") == f'<g id="n-figure_1">{drawn}{outside}'.replace(" ", "")
    assert all(styles.count(style) > 1 for style in styles if f'style="{style}" d' not in short)
    assert short.endswith(outside) and classed(short) == short


def test_what_is_referred_to_has_short_names_of_this_drawing() -> None:
    text = (
        f'<svg>{SHEET}<g id="n-figure_1"><path id="n-m4f2" /><use xlink:href="#n-m4f2" /><path clip-path="url(#n-pb)" />'
        '<g id="n-pb" /><use xlink:href="#other" /></g></svg>'
    )
    assert renamed(text) == text.replace("n-m4f2", "n_1").replace("n-pb", "n_2")
    assert renamed(renamed(text)) == renamed(text)


def drawn_circle(x: float, y: float, radius: float, squeezed: float = 1.0) -> str:
    """As matplotlib writes one: from its top, eight curves."""
    vertices = Path.unit_circle().vertices * (radius * squeezed, radius) + (x, y)
    first, *others = [f"{a:.2f} {b:.2f}" for a, b in vertices[:-1]]
    curves = [" ".join(others[at : at + 3]) for at in range(0, 24, 3)]
    return f'<path d="M{first}' + "".join(f"C{curve}" for curve in curves) + 'z" />'


@given(st.floats(-100, 700), st.floats(-100, 700), st.floats(0.2, 6))
def test_a_circle_is_two_arcs_through_the_same_points(x: float, y: float, radius: float) -> None:
    text = drawn_circle(x, y, radius)
    short = arcs(text)
    found = re.fullmatch(r'<path d="M(\S+) (\S+)a(\S+) \S+ 0 1 1 0 (\S+)a\S+ \S+ 0 1 1 0 (\S+)z" />', short)
    assert found and len(short) < len(text) / 3
    at_x, at_y, r, down, back = map(float, found.groups())
    assert (at_x, at_y + down / 2, r) == pytest.approx((x, y, radius), abs=0.02) and down == -back
    assert arcs(short) == short
    flat = drawn_circle(x, y, radius, squeezed=0.8)
    assert arcs(flat) == flat, "an ellipse stays what it is"


def test_a_drawing_keeps_its_marks_and_words() -> None:
    with mpl.rc_context(RC):
        picture = Picture(4, 3)
        axes = picture.add_subplot()
        axes.plot([0, 1, 2], [0.123456, 1, 0.5], marker="o")
        axes.set_title("A title of 0.123456")
    short = svg_text(picture, "drawn")
    root = ElementTree.fromstring(short)
    names = {element.get("id") for element in root.iter() if element.get("id")}
    for reference in re.findall(r'(?:href="#|url\(#)([^")]+)', short):
        assert reference in names, "everything that is referred to is there"
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "A title of 0.123456" in words and len(words) > 8
    assert compact(short, FONTS) == short and short.count("<path") > 2
    assert "rotate(-0" not in short and short.count(FONTS) == 1
