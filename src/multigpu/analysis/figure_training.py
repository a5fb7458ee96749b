"""Loss curves of every placement, and how far apart they lie."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from multigpu.analysis.layout import grid_of_axes, margin_for, name_panel, rows_from_top
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import CEILING, INK, RC, in_order, look
from multigpu.analysis.training import ALLOWED, shape_text, windowed
from multigpu.analysis.wording import joined, plural

NOTHING = "No TrainingRecord to draw: `python -m multigpu train` trains the default grid."


def figure_curves(table: pd.DataFrame, curves: pd.DataFrame) -> Picture:
    """Training loss against epochs, a panel a job, a line a placement; `table`: of `same_curve_table`."""
    if table.empty:
        return message(NOTHING)
    panels = list(dict.fromkeys(table["panel"]))
    judged = table[table["same"].notna()]
    same = int(judged["same"].sum())
    said = f"{same} of {len(judged)} joined runs compared follow their reference to the end within what rounding does"
    finding = said if len(judged) else "no joined run has a tolerance that tells it from independent replicas"
    drawn = []
    with mpl.rc_context(RC):
        picture, axes = grid_of_axes(len(panels), finding, 3.4, 2.1, 2, legend=False, names=panels)
        for ax, name in zip(axes, panels, strict=True):
            name_panel(ax, name)
            panel = table[table["panel"] == name]
            for placement in in_order(panel["placement"]):
                style = look(placement)
                for _, row in panel[panel["placement"] == placement].iterrows():
                    line = curves[curves["key"] == row["key"]]
                    loss = windowed(line["loss"].to_numpy())
                    epochs = line["epoch"].to_numpy()[np.minimum(np.arange(1, len(loss) + 1) * 10, len(line)) - 1]
                    apart = row["semantics"] != "joined"
                    ax.plot(epochs, loss, color=style.colour, linewidth=1.4 if apart else 1.0, linestyle=":" if apart else "-")
                    drawn.append(
                        pd.DataFrame({"panel": name, "placement": placement, "precision": row["precision"], "epoch": epochs, "loss": loss})
                    )
            ax.set_yscale("log")
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            ax.yaxis.set_minor_locator(NullLocator())
            ax.set_xlabel("epochs")
        axes[0].set_ylabel("training loss, mean of 10 points")
    placements = ", ".join(look(name).label for name in in_order(table["placement"]))
    picture.caption = (
        f"A line a run, {len(table)} of them, {plural(table['seed'].nunique(), 'seed')}: {placements}. Where joined placements follow one "
        "curve, their lines lie on each other; independent replicas (dotted, mean of all) see one shard each and go their own way. "
        f"{', '.join(dict.fromkeys(table['machine']))}."
    )
    picture.data = pd.concat(drawn, ignore_index=True)
    picture.alt = f"Training loss against epochs for {placements}. {finding}."
    return picture


LEAST, MOST = 3e-3, 30.0
"""Ends of the axis of distances over tolerances: what lies beyond stands at the edge."""


def figure_distance(table: pd.DataFrame) -> Picture:
    """How far each joined placement's curve lies from the reference, in tolerances, beside independent replicas."""
    table = table[table["role"].isin(["compared", "yardstick"])]
    if table.empty:
        return message(NOTHING)
    table = table.assign(
        in_tolerances=_over(table["distance"], table["tolerance"]), replicas_in=_over(table["replicas"], table["tolerance"])
    )
    panels = list(dict.fromkeys(table["panel"]))
    sizes = {name: len(table[table["panel"] == name]) for name in panels}
    shapes = table.groupby("placement")["processes"].nunique()
    both = set(shapes[shapes > 1].index)  # a placement with one shape alone has it in the caption: long labels take the room of the marks
    labels = {
        key: f"{look(row['placement']).label}{shape_text(row['processes']) if row['placement'] in both else ''}{_form(row)}"
        for key, row in table.set_index("key").iterrows()
    }
    judged, beyond = table[table["same"].notna()], table[table["same"].eq(False)]
    finding = "no joined run has a tolerance that tells it from independent replicas"
    if len(beyond):
        finding = f"{len(beyond)} of {len(judged)} joined runs compared lie further from their reference than the tolerance"
    elif len(judged):
        finding = "no joined placement lies further from its reference than the tolerance"
    with mpl.rc_context(RC):
        most = max(sizes.values())
        picture, axes = grid_of_axes(len(panels), finding, 2.6, 0.21 * most + 0.2, 2, left=margin_for(labels.values()), names=panels)
        for ax, name in zip(axes, panels, strict=True):
            panel = table[table["panel"] == name].sort_values("in_tolerances")
            name_panel(ax, name)
            rows_from_top(ax, len(panel), most)
            ax.axvline(1, color=INK, linewidth=1)
            for place, (_, row) in enumerate(panel.iterrows()):
                style, y = look(row["placement"]), len(panel) - 1 - place
                inner = "none" if pd.isna(row["same"]) else style.colour
                ax.plot(_within(row["in_tolerances"]), y, marker=style.marker, color=style.colour, markerfacecolor=inner, clip_on=False)
                if not pd.isna(row["replicas_in"]):
                    apart = ">" if row["replicas_in"] > MOST else "|"
                    ax.plot(_within(row["replicas_in"]), y, marker=apart, markersize=5 if apart == ">" else 9, color=CEILING, clip_on=False)
            ax.set_xscale("log")
            ax.set_xlim(LEAST, MOST)
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            ax.tick_params(axis="y", pad=7)
            ax.set_yticks(range(len(panel) - 1, -1, -1), [labels[key] for key in panel["key"]])
            ax.set_xlabel("distance of the loss over tolerance")
    picture.caption = (
        "Means over 10 points at a time, the largest relative difference to the end of the budget, over its tolerance: left of the line a "
        "run follows its reference. The reference is ddp in fp64, or in "
        f"fp32 where no fp64 was run. The tolerance is {ALLOWED:g} times the drift, which is how far rounding alone led ddp in fp32 "
        "from fp64 (or, without fp64, the median distance of all); in fp64, which rounds 2²⁹ times as finely, that "
        f"much less. Bars: independent replicas; arrows: beyond {MOST:g} tolerances. Open marks are not counted: of ddp in fp32, whose "
        "distance is the drift, and of runs within a tolerance that independent replicas keep too, or beside which none were trained. A "
        "run that is equal in all seven digits that a Record keeps stands at the left edge."
    )
    one = [look(name).label for name in in_order(table.loc[table["processes"] == "one", "placement"]) if name not in both]
    if one:
        picture.caption += f" With one process for all devices: {joined(one)}."
    picture.data = table
    picture.alt = f"Distance of every joined run's loss curve from its reference, in tolerances. {finding}."
    return picture


def _over(distances: pd.Series, tolerances: pd.Series) -> pd.Series:
    """Distances in tolerances; 0 where the distance is, inf beyond a tolerance of nothing, NaN without either."""
    return (distances / tolerances).where(distances.ne(0) | tolerances.isna(), 0.0)


def _within(times: float) -> float:
    return min(max(times, LEAST), MOST) if not pd.isna(times) else LEAST


def _form(row: pd.Series) -> str:
    extra = [
        text
        for text in (row["precision"] if row["precision"] != "fp32" else "", row["execution"] if row["execution"] != "eager" else "")
        if text
    ]
    return f", {', '.join(extra)}" if extra else ""
