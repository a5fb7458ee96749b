"""Tables for pages: rows of a frame, each column named in a line of text."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from string import Formatter
from typing import Any

import pandas as pd

from multigpu.analysis.estimate import WRITTEN, Estimate, beside_rate, keys_in
from multigpu.analysis.points import Missing
from multigpu.analysis.words import COLUMNS, named

EXPLORER = "20-explorer.html"
"""The page of all points; its hash filters them ("#model=resnet50_v1.5&devices=4")."""

PAGE_MACHINE: list[str] = []
"""The machine of the page that is written, where it has one (`pages.page`)."""


@dataclass(frozen=True, repr=False)
class Shown:
    """A saved figure, a table or an answer as a notebook cell or a page shows it; text: the same
    for a terminal and for papermill's log.
    """

    html: str
    text: str = ""

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text or f"{len(self.html):,} characters of HTML"

    def __str__(self) -> str:
        return self.html


def with_code(words: str) -> str:
    """Write words as HTML; what stands in backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(words, quote=False))


def folded(summary: str, *parts: Shown) -> Shown:
    """Fold content away, one click from the reader; the summary's backticks are code."""
    inside = "".join(part.html for part in parts)
    return Shown(f"<details><summary>{with_code(summary)}</summary>\n{inside}</details>\n")


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Write rows of cells as lines whose columns begin below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


class _Row(Formatter):
    """Fills a template from one row: a column with `_low` and `_high` beside it is an Estimate; one
    without a value is a dash.
    """

    def __init__(self, row: Any) -> None:
        self.row = row

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, str]:
        if field_name not in self.row:
            raise ValueError(
                f"the table has no column {field_name!r}: columns are"
                f" {', '.join(map(str, self.row.index))}"
            )
        return field_name, field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        name, figure = value, self.row[value]
        if figure is None or (not isinstance(figure, list | tuple | Estimate) and pd.isna(figure)):
            return "–"
        if format_spec:
            if not isinstance(figure, Estimate):
                low, high = (
                    float(self.row.get(f"{name}_{end}", float("nan"))) for end in ("low", "high")
                )
                beside = beside_rate(self.row, name)
                figure = Estimate(float(figure), low, high, beside=beside)
            return format(figure, format_spec)
        return named(name, figure)


def _columns(text: str, rows: pd.DataFrame) -> list[tuple[str, str]]:
    """(heading, template) of each column that a table's text names."""
    found = []
    for part in text.split("|"):
        heading, _, cell = part.strip().rpartition(" = ")
        name, _, form = cell.partition(":")
        usual_heading, usual_form = COLUMNS.get(name, (name.replace("_", " "), ""))
        units = set(rows["unit"].dropna()) if "unit" in rows else set()
        heading = heading or usual_heading.format(
            unit=next(iter(units)) if len(units) == 1 else "units"
        )
        found.append((heading, cell if "{" in cell else f"{{{name}:{form or usual_form}}}"))
    return found


def table(
    rows: pd.DataFrame,
    columns: str,
    by: str | None = None,
    note: str = "",
    title: str = "",
    link: str = "",
) -> Shown:
    """The rows as an HTML table that sorts by a click and scrolls in itself where it is wider than
    its column.
    columns: "placement | devices | kept = ratio:percent interval": the frame's columns, with a
        heading and a form (`estimate.FORMS`) where these are not the usual ones (`words.COLUMNS`);
        or a template, "batch = {batch_size} per GPU".
    by: a column whose values stand as headings between blocks of rows. link: where all of these
        rows stand in the explorer, as its query ("model=resnet50").
    Missing: there is no row. ValueError: a name is no column, or no form.
    """
    if rows.empty:
        raise Missing(f"no row for the table {title or columns!r}")
    WRITTEN.update(keys_in(rows))
    heads = _columns(columns, rows)
    cells = [
        [_Row(row).vformat(template, (), {}) for _, template in heads] for _, row in rows.iterrows()
    ]
    numeric = [bool(re.search(r":[a-z]", template)) for _, template in heads]
    head = "".join(
        f'<th{_right(right)} scope="col">{escape(name)}</th>'
        for (name, _), right in zip(heads, numeric, strict=True)
    )
    body, last = [], None
    for (_, row), texts in zip(rows.iterrows(), cells, strict=True):
        if by is not None and row[by] != last:
            last = row[by]
            body.append(
                f'<tr class="block"><th colspan="{len(heads)}"'
                f' scope="rowgroup">{escape(named(by, last))}</th></tr>'
            )
        body.append(f"<tr>{''.join(map(_cell, texts, numeric))}</tr>")
    more = explorer_link(of_machines(link, rows), "All points behind it")
    below = f'<p class="muted">{with_code(note)}{more}</p>\n' if note or link else ""
    above = f'<p class="table-title">{escape(title)}</p>\n' if title else ""
    return Shown(
        f'{above}<div class="wide"><table'
        f' class="plain-rows{" many" * (len(heads) > 8)}"><thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(body)
        + f"\n</tbody></table></div>\n{below}",
        "\n".join(filter(None, [title, *aligned([[name for name, _ in heads], *cells]), note])),
    )


def text(rows: pd.DataFrame, template: str) -> pd.Series:
    """A text a row, for a heading or a label: "{model}, {batch_size}, {devices}" is "ResNet-50, 64,
    two GPUs".
    """
    return pd.Series(
        [_Row(row).vformat(template, (), {}) for _, row in rows.iterrows()],
        index=rows.index,
        dtype="string",
    )


def _cell(text: str, numeric: bool) -> str:
    """A cell, whose interval may stand below its figure."""
    shown = escape(text)
    if numeric:
        shown = shown.replace(" (", "<wbr> (")
    return f"<td{_right(numeric)}>{shown}</td>"


def _right(numeric: bool) -> str:
    return ' class="number"' if numeric else ""


LETTERS, MOST = 9, 150
"""Letters of a key in a link, which the explorer finds by its beginning; most points in one."""


def records_query(keys: Iterable[str]) -> str:
    """The explorer's query of the points that hold these Records."""
    return "key=" + "|".join(dict.fromkeys(key[:LETTERS] for key in keys))


def points_query(points: pd.DataFrame, rows: pd.DataFrame) -> str:
    """Return the explorer's query of each of these points that holds a Record of the rows: for rows
    of which one rests on several points, as a forecast does.
    """
    shown = {key for keys in rows["keys"].dropna() for key in keys.split(", ")}
    held = [keys.split(", ") for keys in points["keys"].dropna()]
    return records_query(keys[0] for keys in held if not shown.isdisjoint(keys))


def of_machines(query: str, rows: pd.DataFrame) -> str:
    """An explorer's query of exactly these rows' points, and of those that they are compared with.

    query: taken where it names Records itself (`points_query`); also where the rows name none or
        too many, with the machines of the rows unless it names one; rows without are of the page's.
    """
    if query.startswith("key="):
        return query
    texts = [rows[name].dropna().astype(str) for name in ("keys", "base_keys") if name in rows]
    firsts = [text.split(", ")[0] for column in texts for text in column if text]
    if query and 0 < len({*firsts}) <= MOST:
        return records_query(firsts)
    machines = dict.fromkeys(rows["machine"].dropna() if "machine" in rows else PAGE_MACHINE)
    if query and machines and "machine=" not in query:
        return f"{query}&machine={'|'.join(machines)}"
    return query


def explorer_link(query: str, text: str) -> str:
    """A link of this text to the explorer filtered so, or nothing without a query."""
    return f' <a href="{EXPLORER}#{escape(query)}">{text}</a>' if query else ""


def sources(*tables: pd.DataFrame) -> Shown:
    """The Records that a page rests on, folded: those of these tables and those behind all that it
    has written; each leads to its point.
    """
    keys = sorted(WRITTEN.union(*map(keys_in, tables)))
    if not keys:
        return Shown("<p>No Record.</p>")
    listed = " ".join(f'<a href="{EXPLORER}#key={key}"><code>{key}</code></a>' for key in keys)
    return Shown(
        f"<details><summary>Records of this page: {len(keys)}</summary><p>{listed}</p></details>"
    )
