"""The scoreboard: one cell a claim, coloured and signed by verdict, grouped by document, as one self-contained SVG.

Colours differ in lightness as well as in hue, and every verdict has its own drawn sign, so the picture reads in greyscale, with
any colour vision and on a light or a dark page (nothing is painted behind the cells; text is a grey that suits both).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

from multigpu.claims.core import VERDICTS, Verdict
from multigpu.claims.results import Result

CELL, GAP, MARGIN, HEADING = 40, 4, 8, 26
GREY = "#7b7b7b"
TITLES = {
    "000": "000 · translation, parameter server",
    "001": "001 · convolutional networks",
    "002": "002 · distributed SGD",
    "003": "003 · two towers, two GPUs",
    "004": "004 · translation, all-reduce",
}

# fill, stroke, ink, sign (a path in a box of 16)
LOOKS: dict[Verdict, tuple[str, str, str, str]] = {
    "holds": ("#005a9c", "#005a9c", "#ffffff", "M2 9 L6 13 L14 3"),
    "holds here only": ("none", "#2a7fc0", "#2a7fc0", "M2 7 L6 11 L14 1 M4 15 L12 15"),
    "does not hold": ("#e69f00", "#e69f00", "#1a1a1a", "M3 3 L13 13 M13 3 L3 13"),
    "inconclusive": ("#cfe3f2", "#7fa8c9", "#1a1a1a", "M2 7 Q5 2 8 6 T14 5 M2 12 Q5 7 8 11 T14 10"),
    "out of reach": ("none", "#b36b00", "#b36b00", "M8 14 L8 6 M4 9 L8 5 L12 9 M3 2 L13 2"),
    "not yet measured": ("none", GREY, GREY, "M13 8 A5 5 0 1 1 3 8 A5 5 0 1 1 13 8"),
    "cannot be tested here": ("none", GREY, GREY, "M3 8 L13 8"),
}


def scoreboard_svg(results: Sequence[Result], columns: int = 8) -> str:
    """The picture, `columns` cells wide. Each cell says its claim, verdict and figure when pointed at; the whole has an alt text.

    A claim of several documents stands with the first of them.
    """
    width = 2 * MARGIN + columns * (CELL + GAP) - GAP
    groups: dict[str, list[Result]] = {}
    for result in sorted(results, key=lambda r: (r.claim.documents[0], r.claim.order)):
        groups.setdefault(result.claim.documents[0], []).append(result)
    parts: list[str] = []
    y = MARGIN
    for document, members in groups.items():
        title = escape(TITLES.get(document, document))
        parts.append(f'<text x="{MARGIN}" y="{y + 16}" font-size="14" fill="{GREY}">{title}</text>')
        y += HEADING
        for index, result in enumerate(members):
            row, column = divmod(index, columns)
            parts.append(_cell(result, MARGIN + column * (CELL + GAP), y + row * (CELL + GAP)))
        y += -(-len(members) // columns) * (CELL + GAP) + GAP
    counts = Counter(result.verdict for result in results)
    legend, height = _legend(counts, y + GAP)
    alt = f"Scoreboard of {len(results)} claims: " + ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS) + "."
    detail = " ".join(f"{r.claim.number} {r.verdict}." for r in results)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="scoreboard" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'role="img" aria-labelledby="scoreboard-title scoreboard-desc" style="max-width:100%;height:auto" '
            "font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\">",
            f'<title id="scoreboard-title">{escape(alt)}</title>',
            f'<desc id="scoreboard-desc">{escape(detail)}</desc>',
            *parts,
            *legend,
            "</svg>",
            "",
        ]
    )


def _mark(verdict: Verdict, x: float, y: float, size: float) -> str:
    """The verdict's sign in a square of `size`."""
    _, _, ink, path = LOOKS[verdict]
    scale = size / 16
    return (
        f'<path transform="translate({x:g} {y:g}) scale({scale:g})" d="{path}" fill="none" stroke="{ink}" '
        f'stroke-width="2.4" stroke-linecap="round" stroke-linejoin="round"/>'
    )


def _box(verdict: Verdict, x: float, y: float, size: float) -> str:
    fill, stroke, _, _ = LOOKS[verdict]
    dashes = ' stroke-dasharray="3 3"' if verdict == "not yet measured" else ""
    # an empty box still answers to the pointer
    return (
        f'<rect x="{x + 0.75:g}" y="{y + 0.75:g}" width="{size - 1.5:g}" height="{size - 1.5:g}" rx="4" fill="{fill}" stroke="{stroke}" '
        f'stroke-width="1.5"{dashes} pointer-events="all"/>'
    )


def _cell(result: Result, x: int, y: int) -> str:
    claim, verdict = result.claim, result.verdict
    ours = f" Ours: {result.figure}." if result.figure else ""
    tip = f"{claim.number}: {claim.sentence} Document: {claim.figure}.{ours} Verdict: {verdict}."
    label = (
        f'<text x="{x + CELL / 2:g}" y="{y + CELL - 6}" font-size="11" font-weight="600" text-anchor="middle" '
        f'fill="{LOOKS[verdict][2]}">{claim.number}</text>'
    )
    inner = _box(verdict, x, y, CELL) + _mark(verdict, x + 12, y + 6, 16) + label
    return f'<g class="claim {verdict.replace(" ", "-")}"><title>{escape(tip)}</title>{inner}</g>'


def _legend(counts: Counter[Verdict], y: int) -> tuple[list[str], int]:
    """One line a verdict with its count; and where the picture ends."""
    lines = []
    for verdict in VERDICTS:
        text = f'<text x="{MARGIN + 30}" y="{y + 16}" font-size="14" fill="{GREY}">{counts[verdict]} {verdict}</text>'
        lines.append(_box(verdict, MARGIN, y, 22) + _mark(verdict, MARGIN + 5, y + 5, 12) + text)
        y += 28
    return lines, y + MARGIN - 4
