"""Smaller SVG: what matplotlib writes without the digits, names and repeated words that nobody sees or refers to."""

from __future__ import annotations

import math
import re
from collections import Counter
from xml.etree import ElementTree

PLACES = 2
"""Decimals of a coordinate: a hundredth of a point is not seen, and most of a drawing's text would be further digits."""

_GEOMETRY = re.compile(r'\b(d|x|y|points|transform)="([^"]*)"')
_LONG = re.compile(r"-?\d+\.\d{%d,}(?:e-?\d+)?" % (PLACES + 1))  # noqa: UP031
_REFERENCE = re.compile(r'url\(#([^)]+)\)|href="#([^"]+)"|#([\w.-]+) \*')


def rounded(text: str) -> str:
    """Coordinates with `PLACES` decimals at most; text, styles and names stay as they are."""

    def short(number: re.Match[str]) -> str:
        value = f"{float(number.group(0)):.{PLACES}f}".rstrip("0").rstrip(".")
        return "0" if value in ("-0", "") else value

    return _GEOMETRY.sub(lambda found: f'{found.group(1)}="{_LONG.sub(short, found.group(2))}"', text)


def without_names(text: str) -> str:
    """Groups lose the ids that nothing refers to."""
    known = {name for found in _REFERENCE.finditer(text) for name in found.groups() if name}
    return re.sub(r'<g id="([^"]*)"', lambda found: found.group(0) if found.group(1) in known else "<g", text)


def inherited(text: str, fonts: str) -> str:
    """The font that all texts name is named once, where the drawing begins."""
    told = f"font-family: {fonts}"
    if told not in text:
        return text
    text = re.sub(rf"(?:; )?{re.escape(told)}(?=[;\"])", "", text).replace('style="; ', 'style="')
    return re.sub(r"<g\b", f'<g font-family="{fonts}"', text, count=1)


def unwrapped(text: str) -> str:
    """Groups without attributes give way to what they hold, and indentation goes: an element a line, its path without spaces that no
    number needs.
    """
    for prefix, space in SPACES.items():
        ElementTree.register_namespace(prefix, space)
    root = ElementTree.fromstring(text)
    _unwrap(root)
    text = ElementTree.tostring(root, encoding="unicode")
    text = re.sub(
        r"\s*(<(?:g|path|use|rect|image|defs|clipPath|pattern|style|text|title|/g|/defs|/clipPath|/pattern|/svg)\b)", r"\n\1", text
    )
    return _PATH.sub(lambda found: f'd="{_AROUND.sub(_letter, found.group(1)).strip()}"', text).strip() + "\n"


_PATH = re.compile(r'\bd="([^"]*)"')
_AROUND = re.compile(r"\s*([A-Za-z])\s*")


def _letter(found: re.Match[str]) -> str:
    return found.group(1)


_NUMBER = r"-?[\d.]+"
_CIRCLE = re.compile(rf"M({_NUMBER}) ({_NUMBER})((?:C(?:{_NUMBER} ){{5}}{_NUMBER}){{8}})z")
"""A closed path of eight curves, as matplotlib draws circles (and nothing else, if its corners lie on one)."""


def arcs(text: str) -> str:
    """Circles are two arcs each: a dotted hatch of four hundred dots takes a sixth of its text."""
    return _PATH.sub(lambda found: f'd="{_CIRCLE.sub(_arc, found.group(1))}"', text)


def _arc(circle: re.Match[str]) -> str:
    x, y = float(circle.group(1)), float(circle.group(2))
    corners = [(x, y)] + [tuple(map(float, curve.split()[4:])) for curve in circle.group(3).split("C")[1:]]
    (left, right), (low, high) = [(min(side), max(side)) for side in zip(*corners, strict=True)]
    middle, radius = ((left + right) / 2, (low + high) / 2), (high - low) / 2
    away = [math.dist(corner, middle) for corner in corners]
    seen = 1.5 * 10**-PLACES  # corners are rounded
    if radius <= seen or max(away) - radius > seen or radius - min(away) > seen or abs(x - middle[0]) > seen:
        return circle.group(0)
    whole, down = _short(radius), _short(2 * (middle[1] - y))
    back = down[1:] if down.startswith("-") else f"-{down}"
    half = f"a{whole} {whole} 0 1 1 0 "
    return f"M{circle.group(1)} {circle.group(2)}{half}{down}{half}{back}z"


def _short(value: float) -> str:
    return f"{value:.{PLACES}f}".rstrip("0").rstrip(".")


SPACES = {"": "http://www.w3.org/2000/svg", "xlink": "http://www.w3.org/1999/xlink"}


def _unwrap(element: ElementTree.Element) -> None:
    kept: list[ElementTree.Element] = []
    for child in element:
        _unwrap(child)
        kept += list(child) if child.tag == f"{{{SPACES['']}}}g" and not child.attrib else [child]
    element[:] = kept


_SHEET = re.compile(r"#([\w.-]+)-figure_1 \*\{[^}]*\}")
"""The rule that holds in the whole figure; it says what all names of this drawing begin with."""


def renamed(text: str) -> str:
    """What is referred to is called by the drawing's name and a number, in the order in which it stands there."""
    sheet = _SHEET.search(text)
    if sheet is None:
        return text
    name = sheet.group(1)
    found = dict.fromkeys(re.findall(rf'\bid="({re.escape(name)}[-_][^"]*)"', text))
    found.pop(f"{name}-figure_1", None)
    short = {long: f"{name}_{number}" for number, long in enumerate(found, 1)}
    return re.sub(r'(\bid="|url\(#|href="#)([^")]+)', lambda one: one.group(1) + short.get(one.group(2), one.group(2)), text)


def classed(text: str) -> str:
    """Styles that the figure repeats are written once, as classes that hold in this figure alone (a page holds many)."""
    sheet = _SHEET.search(text)
    if sheet is None:
        return text
    start, end = text.index("<g", sheet.end()), text.rindex("</g>")
    figure = text[start:end]
    counts = Counter(_STYLE.findall(figure))
    known = len(re.findall(rf"#{re.escape(sheet.group(1))}-figure_1 \.s\d+", text))
    classes = {style: f"s{number}" for number, style in enumerate((s for s, count in counts.items() if count > 1), known + 1)}
    figure = _STYLE.sub(lambda one: f' class="{classes[one.group(1)]}"' if one.group(1) in classes else one.group(0), figure)
    rules = "".join(
        f"\n#{sheet.group(1)}-figure_1 .{name}{{{style.replace('; ', ';').replace(': ', ':')}}}" for style, name in classes.items()
    )
    return text[: sheet.end()] + rules + text[sheet.end() : start] + figure + text[end:]


_STYLE = re.compile(r' style="([^"]*)"')


def compact(text: str, fonts: str) -> str:
    """All of it: the same drawing in about a third of the text."""
    text = re.sub(r' transform="rotate\(-?0 [^)]*\)"', "", text)
    return classed(renamed(arcs(unwrapped(inherited(without_names(rounded(text)), fonts)))))
