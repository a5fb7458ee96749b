"""Tables for notebooks and the report: figures with their intervals, a missing one with its reason, the document's beside ours."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from html import escape

import pandas as pd
from great_tables import GT, loc, style

from multigpu.analysis.documents import DOCUMENT_GPU, experiment_of, published_experiments
from multigpu.analysis.findings import PANEL, panels, rival_versions
from multigpu.analysis.hoisting import hoisted
from multigpu.analysis.layout import common
from multigpu.analysis.metrics import label_missing, scaling_table
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import INK, look
from multigpu.analysis.table_look import PAGE_LETTERS, for_any_page, label_room, letters, size_of
from multigpu.analysis.wording import FRAMEWORK_NAMES, UNIT_NAMES, Row, describe, device_words, missing, scaled, status_text

FONT = "inherit"


def table_html(
    data: pd.DataFrame,
    title: str = "",
    note: str = "",
    right: Sequence[str] = (),
    bold: Sequence[tuple[int, str]] = (),
    wide: Sequence[str] = (),
) -> Shown:
    """A table of cells already in words, as HTML that scrolls in its own box and can be sorted (class `sortable`).

    Args:
        data: text, a column a heading. Figures of one column have equal decimals, so right-aligned ones align by decimals.
            Settings that all rows share are told once, under the table, and columns without a figure are left out (`hoisted`).
        note: stands under the table, as wide as the page's text.
        right: columns of figures.
        bold: (row, column) of the few cells that matter.
        wide: columns of sentences.
    """
    data = data.loc[:, [data[name].ne("").any() for name in data]]
    if data.empty:
        return Shown(_below(note or "No Record to show."))
    digest = hashlib.sha256((title + data.to_csv(index=False)).encode()).hexdigest()[:10]
    whole = data.astype(object).map(str)
    data, said = hoisted(whole, right)
    if len(data) == 2 and letters(data, label_room(data, right, wide), wide) > PAGE_LETTERS:
        data, said = hoisted(whole, right, least=2)  # two rows can repeat their settings as long as they fit the page
    table = GT(data, id=f"table-{digest}")
    if title:
        table = table.tab_header(title=title)
    table = table.cols_align("left").cols_align("right", columns=[name for name in right if name in data])
    room = label_room(data, right, wide)
    kind, size = size_of(letters(data, room, wide))
    if wide:
        table = table.cols_width(cases=dict.fromkeys([name for name in wide if name in data], "10rem" if kind else "15rem"))
    for row, column in (cell for cell in bold if cell[1] in data):
        table = table.tab_style(style.text(weight="bold"), loc.body(columns=[column], rows=[row]))
    table = table.tab_options(
        table_background_color="transparent",
        table_font_color=INK,
        table_font_names=[FONT],
        table_font_size=size,
        heading_align="left",
        data_row_padding="4px",
        table_margin_left="0",
    )
    html = for_any_page(table.as_raw_html(), f"table-{digest}", {list(data).index(name): most for name, most in room.items()})
    return Shown(f'<div class="{f"wide {kind}".strip()}" style="overflow-x:auto">\n{html}\n</div>\n{_below(note, said)}')


def tables_by(
    data: pd.DataFrame, heading: str, note: str = "", right: Sequence[str] = (), wide: Sequence[str] = (), title: str = "{}"
) -> Shown:
    """A table for each value of the column `heading`, which its title says, over one note: a row then need not repeat it.

    title: with "{}" where the value stands.
    """
    if data.empty:
        return table_html(data, note=note)
    rest, said = hoisted(data.drop(columns=heading).astype(object).map(str), right)
    parts = [
        table_html(rest[data[heading] == name].reset_index(drop=True), title.format(name), right=right, wide=wide).html
        for name in dict.fromkeys(data[heading])
    ]
    return Shown("".join(parts) + _below(note, said))


def _below(*sentences: str) -> str:
    """Sentences under a table, or in its place; what stands between backticks is code."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(" ".join(filter(None, sentences)), quote=False))
    return f'<p class="muted">{text}</p>\n' if text else ""


def _rate(row: Row, factor: float = 1.0) -> str:
    return status_text(row) if missing(row["rate"]) else f"{row['rate'] / factor:{RATE_FORMS[factor]}}"


def _bounds(row: Row, name: str = "rate", form: str = ",.0f", factor: float = 1.0) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "–" if missing(low) else f"{low / factor:{form}}–{high / factor:{form}}"


RATE_FORMS = {1.0: ",.0f", 1e6: ".3f", 1e9: ".3f"}
"""How rates are written, by the factor that their column's heading names (`wording.scaled`)."""


def _ratio(row: Row, name: str, form: str = ".2f") -> str:
    if missing(row[name]):
        return "–" if row["n"] == 0 else "no baseline"
    bounds = "" if missing(row[f"{name}_low"]) or row[f"{name}_low"] == row[f"{name}_high"] else f" ({_bounds(row, name, form)})"
    return f"{row[name]:{form}}{bounds}"


def _same(data: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Without those of `columns` in which every row says the same."""
    return data.drop(columns=[name for name in columns if name in data and data[name].nunique() == 1])


def scaling_gt(frame: pd.DataFrame, title: str = "", without: Collection[str] = ()) -> Shown:
    """Every point with its throughput and three baselines, a table a job: the same placement on one device, the best single device,
    independent replicas on as many.

    The fastest placement on most devices is bold where its interval lies above every other's.
    without: placements that serve as baselines and have no row.
    """
    table = scaling_table(frame)
    table = table[~table["placement"].isin(list(without))]
    if table.empty:
        return table_html(pd.DataFrame(), note="No Record to show: nothing has been measured yet.")
    tables = [_job_table(panel, f"{title}: {name}" if title else name) for name, panel in panels(table)]
    note = (
        "Ratios of units/s, with 95% intervals. Itself on 1: the same placement on one device, as the documents compare. Best single: the "
        "fastest single device of the job, whatever its placement. Efficiency is either over the number of devices. n: repeats over "
        f"launches. {common(table)}"
    )
    return Shown("".join(part.html for part in tables) + f'<p class="muted">{escape(note)}</p>\n')


def _job_table(panel: pd.DataFrame, title: str) -> Shown:
    panel = panel.sort_values(["placement", "framework", "devices"], key=_by_order).reset_index(drop=True)
    factor, letter = scaled(panel["rate"].max())
    units, count = f"{letter} {UNIT_NAMES[panel['unit'].iloc[0]]}".strip(), device_words(panel["device_type"].iloc[0])
    rows = [
        {
            "Placement": look(row["placement"]).label,
            "Framework": FRAMEWORK_NAMES.get(row["framework"], row["framework"]),
            count: str(row["devices"]),
            units: _rate(row, factor),
            "95% interval": _bounds(row, form=RATE_FORMS[factor], factor=factor),
            "against itself on 1": _ratio(row, "speedup"),
            "against the best single": _ratio(row, "speedup_best"),
            "of independent replicas": _ratio(row, "ceiling_ratio"),
            "n": _repeats(row),
            "why": row["reason"] if row["n"] == 0 else "",
        }
        for _, row in panel.iterrows()
    ]
    fastest = _clear_winner(panel)
    data = _same(pd.DataFrame(rows), ["Framework"])
    figures = [str(name) for name in data if name not in ("Placement", "Framework", "why", "n")]
    return table_html(
        data, title, f"{panel['scaling'].iloc[0].capitalize()} scaling.", figures, [(fastest, units)] if fastest is not None else []
    )


def _repeats(row: Row) -> str:
    """Repeats over launches; points with too few of them for the headline are marked as screening."""
    if not row["n"]:
        return "0"
    counts = f"{row['n']} over {row['launches']}" if row["n"] > 1 else "1"
    return f"{counts}, screening" if row["tier"] == "screening" else counts


def _by_order(column: pd.Series) -> pd.Series:
    return column.map(lambda name: look(name).order) if column.name == "placement" else column


def _clear_winner(panel: pd.DataFrame) -> int | None:
    """The number of the fastest row on most devices, if its interval lies above every other's; independent replicas do not compete."""
    rows = panel[(panel["devices"] == panel["devices"].max()) & (panel["placement"] != "independent") & panel["rate_low"].notna()]
    rows = rows.sort_values("rate", ascending=False)
    return int(rows.index[0]) if len(rows) > 1 and rows["rate_low"].iloc[0] > rows["rate_high"].iloc[1:].max() else None


def beside_document(frame: pd.DataFrame, experiment: str = "Exp4", published: pd.DataFrame | None = None, title: str = "") -> Shown:
    """000's table of one experiment beside ours: words/s and speedup against one GPU, a row a number of GPUs, batch and way.

    Ours are the points that rebuild the experiment (`documents.experiment_of`). Where none has the document's lengths, points of
    the same placement and batch with other lengths stand in, and the column "our input" says so.
    """
    published = published_experiments() if published is None else published
    theirs = published[published["experiment"] == experiment]
    if theirs.empty:
        known = ", ".join(dict.fromkeys(published["experiment"]))
        raise ValueError(f"document 000 has no experiment {experiment!r}: choose one of {known}")
    table = _rebuilding(scaling_table(label_missing(frame)), experiment)
    told = ["framework_version"] if rival_versions(table).ne("").any() else ["framework"]
    rows = []
    for batch in dict.fromkeys(theirs["batch_size"]):
        document = theirs[theirs["batch_size"] == batch].set_index("gpus")
        ways = [
            group
            for _, group in table[table["batch_size"] == batch].groupby(
                [*PANEL, "framework", "framework_version"], dropna=False, sort=False
            )
        ]
        for way in ways or [table.iloc[:0]]:
            ours = way.set_index("devices")
            for count in sorted({*document.index, *ours.index}):
                rows.append(_beside(int(batch), int(count), document, ours, told))
    data = _same(pd.DataFrame(rows), ["how", "our input"])
    ways_told = [name for name in ("batch", "how", "our input") if name in data]
    data = data.assign(way=[", ".join(part for part in row if part != "–") for row in data[ways_told].to_numpy()]).drop(columns=ways_told)
    figures = ["GPUs", "document: words/s", "document: speedup", "ours: words/s", "95% interval", "ours: speedup"]
    note = (
        f"Document 000, {experiment}: {DOCUMENT_GPU}, TensorFlow 1.8, one run a row, 50 batches from the start. Weak scaling: the batch is "
        "each GPU's. Ours: another machine and framework; what can be compared is the shape. "
        + (common(table) if len(table) else "Ours is not yet measured.")
    )
    return tables_by(data, "way", note, figures, title=f"{title}: {{}}" if title else "{}")


def _rebuilding(table: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Our points of the experiment; without any, those that differ from it in the sentences' lengths alone."""
    exact = table[[experiment_of(row) == experiment for _, row in table.iterrows()]]
    if len(exact):
        return exact
    placement = "exp4" if experiment == "Exp5" else experiment.lower()
    return table[(table["model"] == "nmt000") & (table["placement"] == placement) & (table["scaling"] == "weak")]


def _beside(batch: int, count: int, document: pd.DataFrame, ours: pd.DataFrame, told: list[str]) -> dict[str, str]:
    """told: the fields that name our framework."""
    row = ours.loc[count] if count in ours.index else None
    first = ours.iloc[0] if len(ours) else None
    known = document.loc[count] if count in document.index else None
    own = {} if row is None else {**row, "devices": count}
    return {
        "batch": f"batch {batch} a GPU",
        "GPUs": str(count),
        "document: words/s": "–" if known is None else f"{known['words_per_s']:,.0f}",
        "document: speedup": "–" if known is None else f"{1.0 if missing(known['speedup']) else known['speedup']:.2f}",
        "ours: words/s": _rate(own) if own else "not measured",
        "95% interval": _bounds(own) if own else "–",
        "ours: speedup": _ratio(own, "speedup") if own else "–",
        "n": _repeats(own) if own else "0",
        "our input": describe(first, ["input_label", "sequence_length"]) if first is not None else "–",
        "how": describe(first, [*told, "precision", "execution"]) if first is not None else "–",
    }
