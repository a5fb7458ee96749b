"""How things look: a placement keeps its colour, marker and place in every order on every page.

Colours have a contrast of at least 3:1 on white and on the report's dark page (#121212), so figures
    need no second palette (`tests/multigpu/analysis/test_show.py` computes both). That leaves
    little lightness to tell them apart in grey: markers do that. The first four are of Okabe and
    Ito's palette for all colour visions. Ink (text, axes, grid) is `currentColor` in the SVG.
"""

import hashlib
from pathlib import Path
from typing import Any

from multigpu.placements import every_placement
from multigpu.placements.row import Look
from multigpu.spec.tables import table

INK = "#1a1b1c"
"""Drawn with this, text and axes become `currentColor` when a figure is saved."""

LAST = 100
"""The place of a placement whose row names none."""

_LOOKS = table(Path(__file__).with_name("looks.csv"))
PALETTE = tuple(row["colour"] for row in _LOOKS if row["of"] == "placement")
OTHERS = tuple(row["colour"] for row in _LOOKS if row["of"] == "other")
"""For what is no placement: models, forms, algorithms. No placement has one of these."""

MARKERS = tuple(row["marker"] for row in _LOOKS if row["marker"])


def look(placement: str) -> Look:
    """How `placement` looks, as its row says; without one colour and marker follow from its name,
    the same on every page and machine.
    """
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
