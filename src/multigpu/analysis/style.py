"""How things look: a placement keeps its colour, marker and place in every order on every page.

Colours have a contrast of at least 3:1 on white and on the report's dark page (#121212), so figures
    need no second palette (`tests/multigpu/analysis/test_show.py` computes both). That leaves
    little lightness to tell them apart in grey: markers do that. The first four are of Okabe and
    Ito's palette for all colour visions. Ink (text, axes, grid) is `currentColor` in the SVG.
"""

import hashlib
from typing import Any

from multigpu.placements import every_placement
from multigpu.placements.row import Look

INK = "#1a1b1c"
"""Drawn with this, text and axes become `currentColor` when a figure is saved."""

LAST = 100
"""The place of a placement whose row names none."""

PALETTE = (
    *(
        "#0072b2",
        "#d55e00",
        "#009e73",
        "#cc79a7",
        "#aa3377",
        "#b07a00",
        "#3a92cc",
        "#6a5acd",
        "#0f8f9f",
        "#5c9b1e",
    ),
    *("#9a6340", "#d1497a", "#4f7fb8", "#7d8a2e", "#b8653a", "#8f5fb0", "#c2567f", "#3f8f6b"),
)
OTHERS = ("#4c72b0", "#c44e52", "#55803e", "#8172b3", "#937860", "#b5507b", "#64748b", "#2b8a9e")
"""For what is no placement: models, forms, algorithms. No placement has one of these."""

MARKERS = (
    "o",
    "^",
    "s",
    "v",
    "P",
    "X",
    "<",
    ">",
    "p",
    "h",
    "d",
    "*",
    "H",
    "8",
    "$\u25d0$",
    "$\u25d1$",
    "$\u25d2$",
    "$\u25d3$",
)


def look(placement: str) -> Look:
    """How `placement` looks, by its row; else colour and marker follow from its name everywhere."""
    row = every_placement().get(placement)
    if row is not None and row.look is not None:
        return row.look
    number = int(hashlib.sha256(placement.encode()).hexdigest()[:8], 16)
    return Look(
        LAST,
        placement,
        PALETTE[number % len(PALETTE)],
        MARKERS[number // len(PALETTE) % len(MARKERS)],
    )


def label(name: str) -> str:
    """A placement's short label, or the name itself where it is none."""
    return look(name).label


def in_order(names: Any) -> list[str]:
    """The placements of `names`, each once, in the order of every page."""
    return sorted(set(names), key=lambda name: (look(name).order, name))
