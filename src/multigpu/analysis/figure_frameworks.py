"""Exp1-Exp4 against GPUs in both frameworks: a panel an experiment, a line a way of doing it, the document's as a dotted one."""

from __future__ import annotations

from typing import Any, Literal

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes

from multigpu.analysis.documents import DOCUMENT_GPU
from multigpu.analysis.frameworks import TENSORFLOW, WAYS, Way, document_experiments, experiments, same_job
from multigpu.analysis.layout import grid_of_axes, label_lines, margin_for, name_panel
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import FRAMEWORK_LINES, INK, RC, look
from multigpu.analysis.wording import plural, ratio_text, repeats_text
from multigpu.grid.entries import EXPERIMENTS

WIDTH, HEIGHT = 2.3, 1.9
EDGE = 1.06
"""Where an axis ends, over its largest mark."""
ONE_PROCESS: Any = (0, (1, 1.4))
DOCUMENT = "document"
FILLS = {"tf32": "full", "bf16": "full", "fp32": "none"}
"""Marks of fp32 are hollow, so that the lines of one framework are told apart without colour too."""


def line_of(way: Way) -> Any:
    """The line of a way: the framework's own, dotted where PyTorch has one process for all GPUs."""
    return ONE_PROCESS if way.framework == "torch" and way.processes == "one" else FRAMEWORK_LINES[way.framework]


def figure_frameworks(frame: pd.DataFrame, value: Literal["rate", "speedup"] = "rate") -> Picture:
    """words/s, or speedup over one GPU of the same placement and way, against GPUs.

    Args:
        frame: of `load_frame`.
        value: "speedup" also draws the document's own, whose rates of another decade would lie on the axis.
    """
    table = experiments(frame)
    counts = table.groupby(["placement", "way"])["devices"].transform("nunique")
    table = table[table[value].notna() & (counts > 1)]  # a lone mark is no line: the tables hold it
    if table["way"].nunique() < 2:
        return message("Exp1 to Exp4 were not measured in both frameworks yet.")
    document = document_experiments()
    document = document[document["devices"] <= table["devices"].max()] if value == "speedup" else document.iloc[:0]
    shown = [placement for placement in EXPERIMENTS if (table["placement"] == placement).any()]
    top = max(float(table[value].max()), float(document["speedup"].max()) if len(document) else 0.0)
    data: list[dict[str, object]] = []
    with mpl.rc_context(RC):
        labels = margin_for([way.name for way in WAYS if (table["way"] == way.name).any()])
        finding = _rate_finding(table) if value == "rate" else _speedup_finding(table, document)
        picture, axes = grid_of_axes(len(shown), finding, WIDTH, HEIGHT, 2, labels, names=[look(name).label for name in shown])
        for index, (ax, placement) in enumerate(zip(axes, shown, strict=True)):
            own = table[table["placement"] == placement]
            data += _panel(ax, placement, own, document[document["placement"] == placement], value, top)
            if index % 2 == 0:
                ax.set_ylabel("words/s" if value == "rate" else "speedup (times)")
    how = "Words/s of all GPUs" if value == "rate" else "Speedup over one GPU of the same placement in the same way"
    picture.caption = (
        f"{how}; NMT of 000, batch 128 a GPU, every sentence 100 words, weak scaling. Broken: TensorFlow, one process; full: PyTorch, a "
        f"process a GPU; dotted: PyTorch, one process; hollow marks: fp32. Arithmetic differs between lines, as each says. "
        f"{repeats_text(table)}; {', '.join(dict.fromkeys(same_job(frame)['machine']))}."
        + (" An arrow: the interval ends beyond the axis." if (table[f"{value}_high"] > EDGE * top).any() else "")
        + (f" Thin: the document ({DOCUMENT_GPU}, TensorFlow 1.8, fp32, real lengths)." if len(document) else "")
    )
    picture.data = pd.DataFrame(data)
    picture.alt = f"Lines of {value} against the number of GPUs. {'; '.join(_alt(table, placement, value) for placement in shown)}."
    return picture


def _apart(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    """TensorFlow's rows on the most GPUs that have an interval, the largest value first."""
    own = rows[(rows["way"] == TENSORFLOW) & rows[f"{value}_low"].notna()]
    return own[own["devices"] == own["devices"].max()].sort_values(value, ascending=False)


def _rate_finding(table: pd.DataFrame) -> str | None:
    """How much faster the fastest placement of TensorFlow's own way is than the slowest, if their intervals are apart."""
    own = _apart(table, "rate")
    if len(own) < 2 or not own["rate_low"].iloc[0] > own["rate_high"].iloc[-1]:
        return None
    first, last = own.iloc[0], own.iloc[-1]
    times = ratio_text(first["rate"] / last["rate"])
    where = f"{TENSORFLOW} on {plural(int(first['devices']), 'GPU')}"
    return f"{where}: {look(first['placement']).label} trains {times} what {look(last['placement']).label} does"


def _speedup_finding(table: pd.DataFrame, document: pd.DataFrame) -> str | None:
    """What several GPUs give TensorFlow today and gave it in the document, over the placements that both have."""
    own = _apart(table, "speedup")
    theirs = document[document["placement"].isin(own["placement"]) & (document["devices"] == own["devices"].max())]
    if theirs.empty or not own["speedup_low"].min() > theirs["speedup"].max():
        return None
    ends = (f"{rows['speedup'].min():.2f} to {rows['speedup'].max():.2f}" for rows in (own, theirs))
    on = plural(int(own["devices"].max()), "GPU")
    return f"{TENSORFLOW} on {on}: {' times one GPU; in the document '.join(ends)} times"


def _panel(ax: Axes, placement: str, own: pd.DataFrame, document: pd.DataFrame, value: str, top: float) -> list[dict[str, object]]:
    style, data = look(placement), []
    name_panel(ax, style.label)
    ends: list[tuple[float, float, str, str]] = []
    for way in WAYS:
        points = own[own["way"] == way.name].sort_values("devices")
        if points.empty:
            continue
        x, y = points["devices"].to_numpy(float), points[value].to_numpy(float)
        low, high = (points[f"{value}_{end}"].to_numpy(float) for end in ("low", "high"))
        beyond = high > EDGE * top
        drawn = [y - low, high.clip(max=EDGE * top) - y]
        ax.errorbar(x, y, yerr=drawn, fmt="none", ecolor=style.colour, elinewidth=1.2, capsize=2)
        ax.plot(x[beyond], [EDGE * top] * beyond.sum(), "^", color=style.colour, markersize=6, clip_on=False, zorder=4)
        ax.plot(
            x, y, color=style.colour, linestyle=line_of(way), marker=style.marker, markersize=4.5, fillstyle=FILLS[way.precision], zorder=3
        )
        ends.append((x[-1], y[-1], way.name, style.colour))
        kept = points[["placement", "way", "devices", "n", value, f"{value}_low", f"{value}_high", "keys"]]
        data += [{str(name): cell for name, cell in row.items()} for row in kept.to_dict("records")]
    if len(document):
        line = document.sort_values("devices")
        ax.plot(line["devices"], line["speedup"], color=INK, linewidth=0.8, marker="o", markersize=3, fillstyle="none", zorder=2)
        ends.append((float(line["devices"].iloc[-1]), float(line["speedup"].iloc[-1]), DOCUMENT, INK))
        data += [
            {"placement": placement, "way": DOCUMENT, "devices": int(row["devices"]), "n": 1, value: float(row["speedup"])}
            for _, row in line.iterrows()
        ]
    most = int(own["devices"].max())
    ax.set_xlim(0, most * 1.03)
    ax.set_xticks(sorted(own["devices"].unique()))
    ax.set_ylim(0, EDGE * top)
    ax.set_xlabel("GPUs, weak scaling")
    if value == "rate":
        ax.yaxis.set_major_formatter(lambda y, _: f"{y / 1e6:g} M")
    else:
        ax.plot([0, most], [0, most], color=INK, linewidth=0.8, alpha=0.4)
    label_lines(ax, ends, HEIGHT)
    return data


def _alt(table: pd.DataFrame, placement: str, value: str) -> str:
    own = table[table["placement"] == placement]
    most = own[own["devices"] == own["devices"].max()].sort_values(value, ascending=False)
    form = (lambda x: f"{x / 1e6:.2f} M words/s") if value == "rate" else (lambda x: f"{x:.2f} times")
    values = ", ".join(f"{row['way']} {form(row[value])}" for _, row in most.iterrows())
    return f"{look(placement).label} on {plural(int(own['devices'].max()), 'GPU')}: {values}"
