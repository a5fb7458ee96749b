"""Tables for notebooks and the report: figures with their intervals, a missing one with its reason, the document's beside ours."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from html import escape

import pandas as pd
from great_tables import GT, loc, style

from multigpu.analysis.documents import DOCUMENT_GPU, experiment_of, published_experiments
from multigpu.analysis.findings import PANEL, panels
from multigpu.analysis.layout import common
from multigpu.analysis.metrics import label_missing, scaling_table
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import INK, look
from multigpu.analysis.wording import FRAMEWORK_NAMES, UNIT_NAMES, Row, describe, device_words, missing, status_text

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
        right: columns of figures. Columns in which every cell is empty are left out.
        bold: (row, column) of the few cells that matter.
        wide: columns of sentences.
    """
    data = data.loc[:, [data[name].ne("").any() for name in data]]
    if data.empty:
        return Shown(f'<p class="muted">{escape(note or "No Record to show.")}</p>')
    digest = hashlib.sha256((title + data.to_csv(index=False)).encode()).hexdigest()[:10]
    table = GT(data.astype(object).map(str), id=f"table-{digest}")
    if title:
        table = table.tab_header(title=title)
    if note:
        table = table.tab_source_note(note)
    table = table.cols_align("left").cols_align("right", columns=[name for name in right if name in data])
    if wide:
        table = table.cols_width(cases=dict.fromkeys([name for name in wide if name in data], "15rem"))
    for row, column in bold:
        table = table.tab_style(style.text(weight="bold"), loc.body(columns=[column], rows=[row]))
    table = table.tab_options(
        table_background_color="transparent",
        table_font_color=INK,
        table_font_names=[FONT],
        table_font_size="0.92rem",
        heading_align="left",
        data_row_padding="4px",
        table_margin_left="0",
    )
    return Shown(f'<div class="wide" style="overflow-x:auto">\n{_for_any_page(table.as_raw_html(), f"table-{digest}")}\n</div>\n')


def _for_any_page(html: str, name: str) -> str:
    """GT's HTML for a light or a dark page, its style kept to this one table.

    Text takes the page's colour and rules a middle grey; figures are equally wide, so that decimals stand under each other; rules
    for what the table does not have are left out, and no blank line ends the HTML within a Markdown page.
    """
    css, table = html.split("</style>", 1)
    rules = [line.strip() for line in css.splitlines() if line.strip()]
    used = [rule for rule in rules if (part := re.match(rf"#{name} \.(gt_\w+)", rule)) is None or part.group(1) in table]
    css = "\n".join(used).replace("thead, tbody, tfoot, tr, td, th {", ", ".join(["thead", *_scoped(name)]) + " {")
    css = re.sub(r"^tr \{", f"#{name} tr {{", css, flags=re.MULTILINE)
    css += f"\n#{name} td.gt_right {{ white-space: nowrap; padding-left: 12px; }}\n#{name} td.gt_left {{ min-width: 5rem; }}"
    css = re.sub(r"#(D3D3D3|A8A8A8)", "rgba(128,128,128,0.45)", css.replace("font-color(transparent)", INK)).replace(INK, "currentColor")
    table = table.replace('class="gt_table"', 'class="gt_table sortable" style="font-variant-numeric:tabular-nums"', 1)
    return css + "\n</style>\n" + "\n".join(line for line in table.splitlines() if line.strip())


def _scoped(name: str) -> list[str]:
    return [f"#{name} {element}" for element in ("tbody", "tfoot", "tr", "td", "th")]


def _rate(row: Row, name: str = "rate") -> str:
    return status_text(row) if missing(row[name]) else f"{row[name]:,.0f}"


def _bounds(row: Row, name: str = "rate", form: str = ",.0f") -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "–" if missing(low) else f"{low:{form}} to {high:{form}}"


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
        f"fastest single device of the job, whatever its placement. n: repeats over launches. {common(table)}"
    )
    return Shown("".join(part.html for part in tables) + f'<p class="muted">{escape(note)}</p>\n')


def _job_table(panel: pd.DataFrame, title: str) -> Shown:
    panel = panel.sort_values(["placement", "framework", "devices"], key=_by_order).reset_index(drop=True)
    units, count = UNIT_NAMES[panel["unit"].iloc[0]], device_words(panel["device_type"].iloc[0])
    rows = [
        {
            "Placement": look(row["placement"]).label,
            "Framework": FRAMEWORK_NAMES.get(row["framework"], row["framework"]),
            count: str(row["devices"]),
            "n": _repeats(row),
            units: _rate(row),
            "95% interval": _bounds(row),
            "against itself on 1": _ratio(row, "speedup"),
            "efficiency (%)": "–" if missing(row["efficiency"]) else f"{100 * row['efficiency']:.1f}",
            "against the best single": _ratio(row, "speedup_best"),
            "of independent replicas": _ratio(row, "ceiling_ratio"),
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
    rows = []
    for batch in dict.fromkeys(theirs["batch_size"]):
        document = theirs[theirs["batch_size"] == batch].set_index("gpus")
        ways = [group for _, group in table[table["batch_size"] == batch].groupby([*PANEL, "framework"], dropna=False, sort=False)]
        for way in ways or [table.iloc[:0]]:
            ours = way.set_index("devices")
            for count in sorted({*document.index, *ours.index}):
                rows.append(_beside(int(batch), int(count), document, ours))
    data = _same(pd.DataFrame(rows), ["batch", "how", "our input"])
    figures = ["GPUs", "batch", "document: words/s", "document: speedup", "ours: words/s", "95% interval", "ours: speedup"]
    note = (
        f"Document 000, {experiment}: {DOCUMENT_GPU}, TensorFlow 1.8, one run a row, 50 batches from the start. Weak scaling: the batch is "
        "each GPU's. Ours: another machine and framework; what can be compared is the shape. "
        + (common(table) if len(table) else "Ours is not yet measured.")
    )
    return table_html(data, title, note, figures)


def _rebuilding(table: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Our points of the experiment; without any, those that differ from it in the sentences' lengths alone."""
    exact = table[[experiment_of(row) == experiment for _, row in table.iterrows()]]
    if len(exact):
        return exact
    placement = "exp4" if experiment == "Exp5" else experiment.lower()
    return table[(table["model"] == "nmt000") & (table["placement"] == placement) & (table["scaling"] == "weak")]


def _beside(batch: int, count: int, document: pd.DataFrame, ours: pd.DataFrame) -> dict[str, str]:
    row = ours.loc[count] if count in ours.index else None
    first = ours.iloc[0] if len(ours) else None
    known = document.loc[count] if count in document.index else None
    own = {} if row is None else {**row, "devices": count}
    return {
        "batch": str(batch),
        "GPUs": str(count),
        "document: words/s": "–" if known is None else f"{known['words_per_s']:,.0f}",
        "document: speedup": "–" if known is None else f"{1.0 if missing(known['speedup']) else known['speedup']:.2f}",
        "ours: words/s": _rate(own) if own else "not measured",
        "95% interval": _bounds(own) if own else "–",
        "ours: speedup": _ratio(own, "speedup") if own else "–",
        "n": _repeats(own) if own else "0",
        "our input": describe(first, ["input_label", "sequence_length"]) if first is not None else "–",
        "how": describe(first, ["framework", "precision", "execution"]) if first is not None else "–",
    }


def records_table(frame: pd.DataFrame, title: str = "") -> Shown:
    """Every Record of the frame: what it measured, under which key, and why it has no figure where it has none."""
    rows = [
        {
            "Record": row["key"],
            "Run": describe(row, ["model", "batch_size", "scaling", "input_label", "sequence_length", "precision", "execution"]),
            "Placement": look(row["placement"]).label,
            "Devices": str(row["devices"]),
            "repeat": str(row["repeat"]),
            "launch": row["launch_id"],
            "units/s": status_text(row) if row["status"] != "ok" else f"{row['units_per_s']:,.0f}",
            "why": row["reason"],
            "flags": "" if missing(row["flags"]) else row["flags"],
            "commit": row["commit"][:10] + ("" if row["clean_tree"] else " (changed)"),
        }
        for _, row in frame.iterrows()
    ]
    return table_html(pd.DataFrame(rows), title, "" if rows else "No Record to show.", ["Devices", "repeat", "units/s"], wide=["Run"])
