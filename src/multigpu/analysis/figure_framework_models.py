"""A step of document 001's models on one GPU in both frameworks, a row a model, milliseconds on a logarithmic axis."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.lines import Line2D

from multigpu.analysis.figure_ladder import FORMS as LOOKS
from multigpu.analysis.framework_models import ABSENT, GRIDS, HOST, hosts_text, job_name, models, updates
from multigpu.analysis.layout import grid_of_axes, margin_for, rows_from_top
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import INK, RC
from multigpu.analysis.wording import missing, percent_text

WIDTH, ROW = 4.2, 0.3
MARKS: dict[str, tuple[str, str, bool, str]] = {
    "captured_s": (LOOKS["captured"][0], LOOKS["captured"][1], True, "PyTorch, captured"),
    "eager_s": (LOOKS["eager"][0], LOOKS["eager"][1], True, "PyTorch, eager"),
    "tensorflow_s": (LOOKS["graph"][0], LOOKS["graph"][1], True, "TensorFlow"),
    "exp2_s": (LOOKS["graph"][0], "^", False, "TensorFlow, variables on the CPU"),
}
"""Of each column of `steps`: colour, marker, whether it is filled, name."""

APART = 0.14
"""Of a row's height, from its middle to PyTorch's marks above it and TensorFlow's below."""


def steps(frame: pd.DataFrame) -> pd.DataFrame:
    """`framework_models.models` with exp2_s, a step with variables on the CPU (NaN: not measured on the machine of the row)."""
    table, placed = models(frame), updates(frame)
    if table.empty:
        return table
    names = ["model", "batch_size", "machine", f"{HOST}_s"]
    return table.merge(placed[names] if len(placed) else pd.DataFrame(columns=names), on=names[:3], how="left")


def figure_framework_models(frame: pd.DataFrame) -> Picture:
    """Every model as a row of marks.

    frame: each row under the machine that measured it (`cnn_page.as_measured`).
    """
    table = steps(frame)
    if table.empty:
        return message(f"{ABSENT} {GRIDS} does.")
    rows = table.iloc[::-1].reset_index(drop=True)
    names = [job_name(row) for _, row in rows.iterrows()]
    with mpl.rc_context(RC):
        picture, (ax,) = grid_of_axes(1, _finding(table), WIDTH, ROW * len(rows) + 0.2, 1, left=margin_for(names), legend=True)
        handles = []
        for name, (colour, marker, filled, label) in MARKS.items():
            look: dict[str, Any] = {"color": colour, "marker": marker, "mfc": colour if filled else "none", "linestyle": "none"}
            place = APART if label.startswith("PyTorch") else -APART
            ax.plot(rows[name], [y + place for y in range(len(rows))], zorder=3, **look)
            handles.append(Line2D([], [], label=label, **look))
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter(lambda x, _: f"{1e3 * x:g}")
        ax.tick_params(axis="x", which="minor", labelbottom=False)
        ax.grid(axis="x", which="minor", color=INK, alpha=0.06)
        ax.set_yticks(range(len(rows)), names)
        rows_from_top(ax, len(rows), len(rows))
        ax.spines["left"].set_visible(False)
        ax.set_xlabel("milliseconds a step (log scale)")
        picture.legend_line(handles)
    picture.caption = (
        "A step of so many images on one GPU, bf16, channels last (NHWC). TensorFlow: one process, its graph, variables on the "
        "GPU (Exp4), or on "
        f"the CPU (Exp2; hollow). PyTorch: ddp. Marks without bars: the table has repeats and intervals. {hosts_text(table)}"
    )
    columns = ["model", "batch_size", "machine", "captured_on", "eager_on", *MARKS, "tensorflow_n", "captured_n", "eager_n"]
    picture.data = table[columns]
    picture.alt = "Dots of milliseconds a step, a row a model. " + "; ".join(_told(row) for _, row in table.iterrows()) + "."
    return picture


def _finding(table: pd.DataFrame) -> str | None:
    """Between which shares of a captured step's rate TensorFlow's lie."""
    shares = table["over_captured"].dropna()
    if len(shares) < 2:
        return None
    ends = " to ".join(dict.fromkeys(percent_text(share) for share in (shares.min(), shares.max())))
    return f"TensorFlow's graph reaches {ends} of the rate of PyTorch's captured step"


def _told(row: Any) -> str:
    parts = [f"{label} {1e3 * row[name]:.2f} ms" for name, (*_, label) in MARKS.items() if not missing(row[name])]
    return f"{job_name(row)}: {', '.join(parts)}"
