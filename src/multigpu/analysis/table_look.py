"""How a table's HTML looks: its colours on any page, the room its labels have, and which cells stay in one line."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping

import pandas as pd

from multigpu.analysis.style import INK

PAGE_LETTERS = 77
"""Letters of a table's usual size in a line of a page; a wider table is set smaller."""

SIZES = (("", 1.0, "0.92rem"), ("dense", 1.22, "0.8rem"), ("denser", 1.46, "0.74rem"))
"""Of a table: class, how many times PAGE_LETTERS fit, size of its letters. What does not fit even the last scrolls, in the second."""

SORT_MARK = 2
"""Letters that the mark of a column that can be sorted takes beside its heading, in tables of more than two rows."""

FIGURE = re.compile(r"[+\-−±]?\d[\d,.]*[^\s()]*( [^\s()\d]\S*)?( \([^()]*\))?$")
"""A cell that begins with a figure: "12", "1.94 (1.92 to 1.96)", "97.3% (96.6% to 98.3%)", "3.85 M"."""

ONE_LINE, MOST_ROOM, LONGEST_FIGURE = 12, 26, 30
"""Letters of a label that is never broken; that a column of labels is given at most; of a figure that is never broken."""


def label_room(data: pd.DataFrame, figures: Collection[str], wide: Collection[str] = ()) -> dict[str, int]:
    """Letters that each column of labels has room for at least: longer labels break, into two lines rather than more.

    Args:
        figures: columns that are no labels. wide: columns of sentences, which may break into any number of lines.
    """
    longest = {str(name): int(data[name].str.len().max()) for name in data if name not in (*figures, *wide)}
    return {name: most if most <= ONE_LINE else max(ONE_LINE, min(MOST_ROOM, math.ceil(0.55 * most) + 2)) for name, most in longest.items()}


def letters(data: pd.DataFrame, room: Mapping[str, int], wide: Collection[str] = ()) -> int:
    """About how many letters wide the table is, with the space between its columns, where labels break as `room` allows.

    Args:
        wide: columns of sentences.
    """
    total, mark = 0, SORT_MARK if len(data) > 2 else 0
    for name in map(str, data.columns):
        cells = MOST_ROOM if name in wide else room.get(name, int(data[name].str.len().max()))
        *words, last = name.split() or [""]
        total += 2 + max(cells, len(last) + mark, *map(len, words))
    return total


def size_of(count: int) -> tuple[str, str]:
    """Class and size of letters (of SIZES) of a table `count` letters wide: the largest that fits a page."""
    name, _, size = next((one for one in SIZES if count <= one[1] * PAGE_LETTERS), SIZES[1])
    return name, size


def for_any_page(html: str, name: str, room: Mapping[int, int]) -> str:
    """GT's HTML for a light or a dark page, its style kept to this one table.

    Text takes the page's colour and rules a middle grey; figures are equally wide, so that decimals stand under each other, and do not
    break; rules for what the table does not have are left out, and no blank line ends the HTML within a Markdown page.

    Args:
        name: the table's id.
        room: letters that a column has at least, by its number from 0.
    """
    css, table = html.split("</style>", 1)
    rules = [line.strip() for line in css.splitlines() if line.strip()]
    used = [rule for rule in rules if (part := re.match(rf"#{name} \.(gt_\w+)", rule)) is None or part.group(1) in table]
    css = "\n".join(used).replace("thead, tbody, tfoot, tr, td, th {", ", ".join(["thead", *_scoped(name)]) + " {")
    css = re.sub(r"^tr \{", f"#{name} tr {{", css, flags=re.MULTILINE)
    css += f"\n#{name} td.gt_right, #{name} td.whole {{ white-space: nowrap; }}\n#{name} td.gt_right {{ padding-left: 12px; }}"
    css += "".join(f"\n#{name} tbody td:nth-child({column + 1}) {{ min-width: {most}ch; }}" for column, most in room.items())
    css = re.sub(r"#(D3D3D3|A8A8A8)", "rgba(128,128,128,0.45)", css.replace("font-color(transparent)", INK)).replace(INK, "currentColor")
    table = table.replace('class="gt_table"', 'class="gt_table sortable" style="font-variant-numeric:tabular-nums"', 1)
    table = re.sub(r'class="gt_row gt_left">([^<]*)</td>', _whole, table)
    return css + "\n</style>\n" + "\n".join(line for line in table.splitlines() if line.strip())


def _whole(cell: re.Match[str]) -> str:
    """A cell of a column of labels, kept in one line where it is a figure."""
    is_figure = len(cell[1]) <= LONGEST_FIGURE and FIGURE.match(cell[1])
    return cell[0].replace("gt_left", "gt_left whole") if is_figure else cell[0]


def _scoped(name: str) -> list[str]:
    return [f"#{name} {element}" for element in ("tbody", "tfoot", "tr", "td", "th")]
