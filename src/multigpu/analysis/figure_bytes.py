"""Bytes that one step moves, by kind, stacked: what a placement sends, counted and predicted."""

from __future__ import annotations

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from multigpu.analysis.findings import bytes_finding, line_name, panels
from multigpu.analysis.layout import common, gaps, grid_of_axes, margin_for, name_panel, rows_from_top
from multigpu.analysis.metrics import POINT, label_missing, summary
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import INK, KINDS, RC, look
from multigpu.analysis.wording import bytes_text, bytes_unit, devices_text

WIDTH, ROW = 2.55, 0.3


def figure_bytes(frame: pd.DataFrame, devices: int | None = None, columns: int = 2) -> Picture:
    """Bytes a step over all replicas: a panel a job, a bar a placement, stacked by kind; a tick marks the prediction.

    Args:
        frame: of `load_frame`.
        devices: how many; the most measured unless given.
    """
    frame = label_missing(frame)
    counts = frame.loc[frame["status"] == "ok", "devices"]
    devices = int(counts.max()) if devices is None and len(counts) else devices
    frame = frame[(frame["status"] != "ok") | frame["moved_bytes"].notna()]  # some cannot be counted
    table = summary(frame[frame["devices"] == devices])
    drawn = table[table["n"] > 0]
    if drawn.empty:
        return message("No traffic to draw: no Record with status ok counts the bytes of a step.")
    ok = frame[(frame["status"] == "ok") & (frame["devices"] == devices)]
    columns_of = [f"{what}_bytes_{kind}" for what in ("moved", "predicted") for kind in KINDS]
    means = ok.astype(dict.fromkeys(columns_of, "float64")).groupby(list(POINT), dropna=False, sort=False)[columns_of].mean().reset_index()
    drawn = drawn.reset_index(drop=True)
    drawn = pd.concat([drawn, means[columns_of]], axis=1)  # both in the order in which points first appear
    shown = list(panels(drawn))
    with mpl.rc_context(RC):
        rows = max(panel.groupby(["placement", "framework"]).ngroups for _, panel in shown)
        names = [name for name, _ in shown]
        left = margin_for(line_name(row, panel) for _, panel in shown for _, row in panel.iterrows())
        picture, axes = grid_of_axes(
            len(shown), bytes_finding(drawn), WIDTH, ROW * rows + 0.2, columns, row_gap=0.85, left=left, legend=True, names=names
        )
        factor, unit = bytes_unit(float(drawn["moved_bytes"].max()))
        for ax, (name, panel) in zip(axes, shown, strict=True):
            _panel(ax, name, panel, factor, unit, rows)
        used = [kind for kind in KINDS if drawn[f"moved_bytes_{kind}"].gt(0).any()]
        patches = [Patch(facecolor=KINDS[k][0], hatch=KINDS[k][1], edgecolor=INK, linewidth=0.4, label=KINDS[k][2]) for k in used]
        picture.legend_line(patches)
    on = devices_text(devices or 1, drawn["device_type"].iloc[0])
    picture.caption = (
        f"Bytes of one step over all replicas on {on}, counted by the engine; the tick is the prediction from the placement's "
        f"row. All-reduce counts what replicas hand in: a ring then sends 2 (P-1)/P times as much. {common(drawn, repeats=False)}"
        + gaps(table)
    )
    picture.data = drawn[["machine", "model", "batch_size", "scaling", "placement", "framework", "devices", "n", *columns_of, "keys"]]
    picture.alt = "Bars of bytes moved in a step. " + "; ".join(_alt(name, panel) for name, panel in shown) + "."
    return picture


def _panel(ax: Axes, name: str, panel: pd.DataFrame, factor: float, unit: str, most_rows: int) -> None:
    name_panel(ax, name)
    rows = sorted((row for _, row in panel.iterrows()), key=lambda row: (look(row["placement"]).order, row["framework"]), reverse=True)
    longest = float(panel["moved_bytes"].max()) / factor
    for y, row in enumerate(rows):
        left = 0.0
        for kind, (colour, hatch, _) in KINDS.items():
            width = row[f"moved_bytes_{kind}"] / factor
            if width:
                ax.barh(y, width, 0.62, left=left, color=colour, hatch=hatch, edgecolor=INK, linewidth=0.4)
            left += width
        predicted = sum(row[f"predicted_bytes_{kind}"] for kind in KINDS) / factor
        ax.plot([predicted, predicted], [y - 0.4, y + 0.4], color=INK, linewidth=1.2)
        text = bytes_text(row["moved_bytes"]) if row["moved_bytes"] else "nothing moves"
        ax.annotate(text, (left, y), (5, 0), textcoords="offset points", va="center", fontsize=8)
    ax.set_yticks(range(len(rows)), [line_name(row, panel) for row in rows])
    rows_from_top(ax, len(rows), most_rows)
    ax.set_xlim(0, max(longest, 1e-9) * 1.32)
    ax.locator_params(axis="x", nbins=5)
    ax.set_xlabel(f"{unit} a step, {panel['scaling'].iloc[0]} scaling")


def _alt(name: str, panel: pd.DataFrame) -> str:
    return f"{name}: " + ", ".join(
        f"{line_name(row, panel)} {bytes_text(row['moved_bytes']) if row['moved_bytes'] else 'nothing'}" for _, row in panel.iterrows()
    )
