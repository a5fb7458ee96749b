"""How far each model is from one device's limits: operations a second reached in training, against what arithmetic and memory allow.

The roofline model (Williams, Waterman and Patterson 2009): at I operations a byte, a device of C operations/s and M bytes/s makes at most
min(C, I M). Operations are the model's three passes of multiply-adds, without those that fast convolutions spare where they are used, as
in the tables of bounds (`limits.least_forward_flops`); bytes are those that layers must read or write (`Model`).
"""

from __future__ import annotations

import math

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from multigpu.analysis.layout import grid_of_axes, margin_for, name_panel, spread_labels
from multigpu.analysis.limits import FAST_CONVOLUTIONS, TRAINING_PASSES, ceilings, least_forward_flops, memory_bytes_per_unit
from multigpu.analysis.ordinary import of_today
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import CEILING, PALETTE, RC
from multigpu.analysis.wording import MODEL_NAMES, joined, percent_text, plural
from multigpu.workloads import find_model

WIDTH, HEIGHT = 2.6, 2.3
EXECUTIONS = {"eager": "^", "graph": "^", "captured": "o", "compiled": "s", "compiled_captured": "s", "xla": "s"}
LABEL_GAP_IN = 0.15
MOST_NAMES = 9
"""Models that a panel names; all others are grey points, whose names and shares are in the data."""
NONE = "Nothing to draw: no Run on one GPU whose arithmetic and memory are known (`python -m multigpu ceilings`)."


def rooflines(frame: pd.DataFrame) -> pd.DataFrame:
    """Of every model in every precision, the fastest Run on one device (screening or not) as a point below its roof.

    Returns:
        workload, model, precision, batch_size, execution, gpu, key, n (Records of that kind of Run), records (of the model in that
        precision), intensity (operations a byte), reached and roof (operations/s), limit ("arithmetic" or "memory": which of the
        two is the roof), fast (whether fast convolutions spare some of its operations) and share (reached over roof).
    """
    one = of_today(frame[(frame["status"] == "ok") & (frame["devices"] == 1) & (frame["device_type"] == "cuda")])
    rows = []
    for (workload, name, precision), group in one.groupby(["workload", "model", "precision"], sort=True):
        best = group.sort_values("units_per_s").iloc[-1]
        known, model = ceilings(best["gpu"]), find_model(str(workload), str(name))
        if str(precision) not in known or "memory" not in known:
            continue
        flops = TRAINING_PASSES * least_forward_flops(model, str(precision))
        intensity = flops / memory_bytes_per_unit(model, str(precision))
        flat, slope = known[str(precision)].value, intensity * known["memory"].value
        same = group[(group["batch_size"] == best["batch_size"]) & (group["execution"] == best["execution"])]
        fast = str(precision) in FAST_CONVOLUTIONS and model.spared_flops_per_unit > 0
        rows.append(
            {name: best[name] for name in ("workload", "model", "precision", "batch_size", "execution", "gpu", "key")}
            | {"n": len(same), "records": len(group), "intensity": intensity, "reached": best["units_per_s"] * flops}
            | {"roof": min(flat, slope), "limit": "arithmetic" if flat <= slope else "memory", "fast": fast}
        )
    columns = ["workload", "model", "precision", "batch_size", "execution", "gpu", "key", "n", "records", "intensity", "reached", "roof"]
    table = pd.DataFrame(rows, columns=[*columns, "limit", "fast"]).astype({"fast": bool})
    return table.assign(share=table["reached"] / table["roof"])


def roofline_finding(points: pd.DataFrame) -> str:
    """The nearest and the farthest model, in one sentence; "" without two."""
    if len(points) < 2:
        return ""
    ordered = points.sort_values("share")
    far, near = ordered.iloc[0], ordered.iloc[-1]
    return (
        f"One GPU reaches {percent_text(near['share'])} of what {near['limit']} allows on {_name(near)} in {near['precision']}, "
        f"{percent_text(far['share'])} on {_name(far)} in {far['precision']}"
    )


def named(points: pd.DataFrame) -> pd.Series:
    """Which points are named in their panel: the nearest to its roof and the farthest, and of the others those with the most Records.

    At most MOST_NAMES a precision: more labels would lie over each other.
    """
    chosen: set[object] = set()
    for _, panel in points.groupby("precision"):
        ends = [panel["share"].idxmax(), panel["share"].idxmin()]
        rest = panel.drop(index=ends).sort_values(["records", "share"], ascending=False, kind="stable")
        chosen |= {*ends, *rest.index[: MOST_NAMES - len(set(ends))]}
    return points.index.to_series().isin(chosen)


def _label_of(row: pd.Series) -> str:
    return f"{_name(row)} {percent_text(row['share'])}"


def _name(row: pd.Series) -> str:
    return MODEL_NAMES.get(row["model"], str(row["model"]))


def figure_roofline(points: pd.DataFrame) -> Picture:
    """A panel a precision: the roof of one device, and below it the fastest Run of each model."""
    if points.empty:
        return message(NONE)
    panels = list(points.groupby("precision", sort=True))
    names = [str(precision) for precision, _ in panels]
    points = points.reset_index(drop=True)
    spoken = named(points)
    colours = {model: PALETTE[number % len(PALETTE)] for number, model in enumerate(dict.fromkeys(points["model"][spoken]))}
    with mpl.rc_context(RC):
        labels = margin_for([_label_of(row) for _, row in points[spoken].iterrows()])
        picture, axes = grid_of_axes(len(panels), roofline_finding(points), WIDTH, HEIGHT, 1, labels, names=names, left=0.75)
        for ax, (precision, rows) in zip(axes, panels, strict=True):
            name_panel(ax, str(precision))
            known = ceilings(rows["gpu"].iloc[0])
            flat, memory = known[str(precision)].value, known["memory"].value
            ridge = flat / memory
            x = np.geomspace(min(rows["intensity"].min(), ridge) / 3, max(rows["intensity"].max(), ridge) * 3, 200)
            ax.plot(x, np.minimum(flat, x * memory) / 1e12, color=CEILING, linewidth=1.4)
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_ylim(rows["reached"].min() / 4e12, 2 * flat / 1e12)
            ax.set_xlim(x[0], x[-1])
            for (_, row), has_name in zip(rows.iterrows(), spoken[rows.index], strict=True):
                colour, size, above = (colours[row["model"]], 6.0, 3) if has_name else (CEILING, 3.5, 2)
                marker = EXECUTIONS.get(row["execution"], "P")
                ax.plot(row["intensity"], row["reached"] / 1e12, marker, color=colour, markersize=size, zorder=above)
            _label(ax, rows[spoken[rows.index]], colours)
            if ax.get_ylim()[1] < 100 * ax.get_ylim()[0]:  # a power of ten or two alone would hardly tell the scale
                ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            for axis in (ax.xaxis, ax.yaxis):
                axis.set_major_formatter("{x:g}")
                axis.set_minor_formatter(NullFormatter())
            ax.set_xlabel("operations a byte of memory traffic")
            ax.set_ylabel("TFLOP/s of one GPU")
    picture.data = points
    others = f" Grey: {plural(int((~spoken).sum()), 'further model')}, named in the data." if not spoken.all() else ""
    fast = sorted(set(points.loc[points["fast"], "precision"]))
    spared = f" In {joined(fast)} operations are those that fast convolutions leave." if fast else ""
    picture.caption = (
        "Line: the roof, the smaller of measured matrix products and of measured memory bandwidth times operations a byte (where no "
        "measurement is known, the data sheet's). Points: each model's fastest Run on one GPU, whatever its batch and placement; bytes are "
        "those that layers must read or write, one by one. Points below a sloping roof are bound by memory at best. "
        "Triangles: launched kernel by kernel; circles: captured; squares: compiled. Points measured once are screening."
        f"{spared}{others}"
    )
    picture.alt = "; ".join(
        f"{_name(row)}, {row['precision']}: {percent_text(row['share'])} of a roof set by {row['limit']}"
        for _, row in points[spoken].iterrows()
    )
    return picture


def _label(ax: Axes, rows: pd.DataFrame, colours: dict[str, str]) -> None:
    """Names right of the panel in the height of their points, a thin line from each to its own."""
    low, high = ax.get_ylim()
    shares = [(math.log10(value / 1e12) - math.log10(low)) / (math.log10(high) - math.log10(low)) for value in rows["reached"]]
    placed = spread_labels(shares, LABEL_GAP_IN / HEIGHT, 0.02, 1.0)
    for (_, row), share in zip(rows.iterrows(), placed, strict=True):
        colour = colours[row["model"]]
        ax.annotate(
            _label_of(row),
            (row["intensity"], row["reached"] / 1e12),
            xytext=(1.03, share),
            textcoords="axes fraction",
            va="center",
            ha="left",
            fontsize=8,
            fontweight="bold",
            color=colour,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.6, "shrinkA": 0, "shrinkB": 3},
        )
