"""What a mode of batching costs: waiting counted from the sentences alone, and rates as they were measured."""

from __future__ import annotations

from dataclasses import dataclass

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from multigpu.analysis.layout import grid_of_axes, label_lines, margin_for, name_panel
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import CEILING, INK, RC, look
from multigpu.analysis.wording import (
    BATCHING_NAMES,
    FRAMEWORK_NAMES,
    device_words,
    devices_text,
    joined,
    percent_text,
    plural,
    ratio_text,
    repeats_text,
)

WIDTH, HEIGHT = 3.0, 2.3


@dataclass(frozen=True)
class ModeLook:
    """Colour and marker of a mode."""

    colour: str
    marker: str


MODE_LOOKS = {"own": ModeLook("#d55e00", "o"), "shared": ModeLook("#0072b2", "s"), "fixed": ModeLook(CEILING, "D")}
INPUT_NAMES = {
    "lengths_000": "lengths of 000",
    "bucket_means_000": "bucket means of 000",
    "catalogs": "the committed corpus",
    "pieces": "the corpus in pieces",
    "pieces_package": "one package, up to 30 pieces",
    "pieces_short": "one package, up to 14 pieces",
}


def figure_waiting(counted: pd.DataFrame) -> Picture:
    """Share of all replicas' time spent waiting for the largest shard, against replicas: a panel an input, a line a mode.

    Args:
        counted: of `batching_frame`.
    """
    if counted.empty:
        return message("Nothing was counted: no Run on sentences of different lengths.")
    shown = list(dict.fromkeys(counted["inputs"]))
    with mpl.rc_context(RC):
        labels = margin_for(BATCHING_NAMES.values())
        names = [INPUT_NAMES.get(name, name) for name in shown]
        picture, axes = grid_of_axes(len(shown), _waiting_finding(counted), WIDTH, HEIGHT, 2, labels, names=names)
        for ax, name, title in zip(axes, shown, names, strict=True):
            _waiting_panel(ax, counted[counted["inputs"] == name], title)
        axes[0].set_ylabel("waiting, share of all replicas' time")
    batch, steps = counted["batch_size"].iloc[0], sorted(set(counted["steps"]))
    picture.caption = (
        f"Counted, not measured: {batch} sentences a replica, weak scaling, {steps[0]} to {steps[-1]} steps (one period of the law, one "
        "epoch of the corpus). A step is taken to last as long as its largest shard, a shard in proportion to its positions, padding "
        "included; time that does not grow with positions makes the share smaller. One width pads every shard to 100 words a side."
    )
    picture.data = counted
    picture.alt = "Lines of waiting against replicas. " + "; ".join(
        f"{INPUT_NAMES.get(row['inputs'], row['inputs'])}, {BATCHING_NAMES[row['batching']]}: {percent_text(row['waiting_share'])} on "
        f"{row['devices']}"
        for _, row in counted[counted["devices"] == counted["devices"].max()].iterrows()
    )
    return picture


def _waiting_finding(counted: pd.DataFrame) -> str | None:
    most = counted["devices"].max()
    at = counted[(counted["devices"] == most) & (counted["inputs"] == counted["inputs"].iloc[0])].set_index("batching")["waiting_share"]
    if not {"own", "shared"} <= set(at.index):
        return None
    return (
        f"By counting alone, {most} replicas that draw their own buckets wait {percent_text(at['own'])} of their time; "
        f"with a shared bucket {percent_text(at['shared'])}"
    )


def _waiting_panel(ax: Axes, counted: pd.DataFrame, title: str) -> None:
    name_panel(ax, title)
    ends = []
    for mode, style in MODE_LOOKS.items():
        line = counted[counted["batching"] == mode].sort_values("devices")
        if len(line):
            x, y = line["devices"].to_numpy(float), line["waiting_share"].to_numpy(float)
            ax.plot(x, y, color=style.colour, marker=style.marker, markersize=4, clip_on=False)
            ends.append((float(x[-1]), float(y[-1]), BATCHING_NAMES[mode], style.colour))
    ax.set_ylim(0, 0.65)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, 0))
    ax.set_xticks(sorted(counted["devices"].unique()))
    ax.set_xlabel("replicas, weak scaling")
    label_lines(ax, ends, HEIGHT)


def figure_gain(modes: pd.DataFrame, counted: pd.DataFrame) -> Picture:
    """Rate with a shared bucket over that with own buckets, against devices: a line a placement, and what counting allows at most.

    A panel is of one machine, the one that has most of it (`_of_one_machine`): a line through points of two would show their difference.

    Args:
        modes: of `modes_table`.
        counted: of `batching_frame`, for the bound.
    """
    table = modes[(modes["batching"] == "shared") & modes["gain"].notna() & (modes["inputs"] == "lengths_000")] if len(modes) else modes
    if table.empty:
        return message("No Record of a shared bucket beside own buckets yet: `python -m multigpu measure --grid batching` measures both.")
    table = _of_one_machine(table)
    with mpl.rc_context(RC):
        kinds = list(dict.fromkeys(zip(table["framework"], table["device_type"], strict=True)))
        names = [f"{FRAMEWORK_NAMES.get(framework, framework)}, {device_words(kind)}" for framework, kind in kinds]
        labels = margin_for([look(name).label for name in table["placement"]] + ["counted bound"])
        picture, axes = grid_of_axes(len(kinds), _gain_finding(table), WIDTH, HEIGHT, 2, labels, names=names)
        for ax, kind, name in zip(axes, kinds, names, strict=True):
            own = table[(table["framework"] == kind[0]) & (table["device_type"] == kind[1])]
            _gain_panel(ax, own, _bound(counted, own), name)
        axes[0].set_ylabel("rate, shared over own (times)")
    picture.caption = (
        f"Words/s with one bucket for all replicas of a step over words/s with a bucket each, lengths of 000; {repeats_text(table)}; "
        f"{', '.join(dict.fromkeys(table['machine']))}. Dashed: what counting allows if a shard's time is in proportion to its positions."
    )
    picture.data = table
    picture.alt = "Lines of the gain of sharing against devices. " + "; ".join(
        f"{look(row['placement']).label} ({row['framework']}) on {row['devices']}: "
        f"{ratio_text(row['gain'], row['gain_low'], row['gain_high'])}"
        for _, row in table.iterrows()
    )
    return picture


def _of_one_machine(table: pd.DataFrame) -> pd.DataFrame:
    """Of each framework and kind of device the rows of the machine with the most devices, of equals the one with most rows."""
    best = {}
    for kind, own in table.groupby(["framework", "device_type"]):
        best[kind] = max(own.groupby("machine"), key=lambda item: (item[1]["devices"].max(), len(item[1])))[0]
    chosen = [best[kind] for kind in zip(table["framework"], table["device_type"], strict=True)]
    return table[table["machine"].eq(pd.Series(chosen, index=table.index))]


def _bound(counted: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """devices, bound: how much faster steps without waiting for unequal shards could be."""
    known = counted[(counted["inputs"] == "lengths_000") & counted["devices"].isin(table["devices"])]
    wide = known.pivot_table(index="devices", columns="batching", values="waiting_share")
    if not {"own", "shared"} <= set(wide.columns):
        return pd.DataFrame({"devices": [], "bound": []})
    return pd.DataFrame({"devices": wide.index, "bound": ((1 - wide["shared"]) / (1 - wide["own"])).to_numpy()})


def _gain_finding(table: pd.DataFrame) -> str | None:
    known = table[table["gain_low"].notna() & (table["gain_low"] > 1)]
    if known.empty:
        return _no_gain_finding(table)
    best = known.sort_values("gain").iloc[-1]
    return (
        f"Sharing the bucket makes {look(best['placement']).label} on {best['devices']} {device_words(best['device_type'])} "
        f"{ratio_text(best['gain'], best['gain_low'], best['gain_high'])} as fast"
    )


def _no_gain_finding(table: pd.DataFrame) -> str | None:
    """That on the most devices no interval tells a gain from none; or, without intervals, what was seen once."""
    most = table[table["devices"] == table["devices"].max()]
    on, known = devices_text(int(most["devices"].iloc[0]), most["device_type"].iloc[0]), most[most["gain_low"].notna()]
    if len(known):
        by = dict(iter(known.groupby("framework", sort=False)))
        said = [
            joined([look(name).label for name in sorted(set(own["placement"]), key=lambda name: look(name).order)])
            + (f" in {FRAMEWORK_NAMES.get(str(framework), str(framework))}" if table["framework"].nunique() > 1 else "")
            for framework, own in by.items()
        ]
        text, once = f"On {on} intervals do not tell what a shared bucket brings {joined(said)} from nothing", most[most["gain_low"].isna()]
        if once.empty:
            return text
        ends = dict.fromkeys(f"{value:.2f}" for value in (once["gain"].min(), once["gain"].max()))
        return f"{text}; measured once, others run {' to '.join(ends)} times as fast"
    low, high = float(most["gain"].min()), float(most["gain"].max())
    return f"On {on}, measured once, a shared bucket is {low:.2f} to {high:.2f} times as fast as own ones"


def _gain_panel(ax: Axes, table: pd.DataFrame, bound: pd.DataFrame, title: str) -> None:
    name_panel(ax, title)
    ends = []
    for placement in sorted(set(table["placement"]), key=lambda name: look(name).order):
        line, style = table[table["placement"] == placement].sort_values("devices"), look(placement)
        x, y = line["devices"].to_numpy(float), line["gain"].to_numpy(float)
        low, high = y - line["gain_low"].to_numpy(float), line["gain_high"].to_numpy(float) - y
        ax.errorbar(x, y, yerr=[low, high], fmt="none", ecolor=style.colour, elinewidth=1.2, capsize=2)
        ax.plot(x, y, color=style.colour, marker=style.marker, markersize=4.5)
        ends.append((float(x[-1]), float(y[-1]), style.label, style.colour))
    if len(bound):
        ax.plot(bound["devices"], bound["bound"], color=CEILING, linestyle=(0, (3, 2)), linewidth=1.2)
        ends.append((float(bound["devices"].iloc[-1]), float(bound["bound"].iloc[-1]), "counted bound", CEILING))
    ax.axhline(1.0, color=INK, linewidth=0.8)
    ax.set_ylim(0, None)
    ax.set_xticks(sorted(table["devices"].unique()))
    ax.set_xlabel(f"{device_words(table['device_type'].iloc[0])}, weak scaling")
    label_lines(ax, ends, HEIGHT)


def waiting_sentence(counted: pd.DataFrame) -> str:
    """What counting says of own and shared buckets on the most replicas, input by input."""
    most = int(counted["devices"].max())
    parts = []
    for name in dict.fromkeys(counted["inputs"]):
        at = counted[(counted["devices"] == most) & (counted["inputs"] == name)].set_index("batching")["waiting_share"]
        parts.append(f"{percent_text(at['own'])} and {percent_text(at['shared'])} on {INPUT_NAMES.get(name, name)}")
    return (
        f"Counted from the sentences alone, {plural(most, 'replica')} wait this share of their time for the step's largest shard, with own "
        f"buckets and with a shared one: {'; '.join(parts)}."
    )
