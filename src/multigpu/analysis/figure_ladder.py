"""Throughput and memory against batch: two panels a model, a line a form of execution, up to the batch that no longer fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes

from multigpu.analysis.ladders import FULL, ladder_rows, ladders
from multigpu.analysis.layout import common, grid_of_axes, label_lines, margin_for, name_panel
from multigpu.analysis.metrics import summary
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import INK, RC
from multigpu.analysis.wording import describe, device_word, missing, rate_text

WIDTH, HEIGHT = 2.35, 1.9
FORMS = {
    "eager": ("#d55e00", "o", "eager"),
    "captured": ("#0072b2", "s", "captured"),
    "compiled": ("#009e73", "^", "compiled"),
    "compiled_captured": ("#aa3377", "v", "compiled, captured"),
    "graph": ("#b07a00", "P", "graph"),
    "xla": ("#6a5acd", "X", "xla"),
}
"""Of each form of execution: colour, marker, label."""


MANY = 10_000
"""From this rate on an axis counts thousands: longer numbers would cover its name."""


def figure_ladder(frame: pd.DataFrame, devices: int = 1) -> Picture:
    """Images a second and GiB a GPU over the batch a GPU, on `devices` devices; under DDP where several placements were measured."""
    found = [ladder for ladder in ladders(frame) if ladder["devices"][0] == devices]
    preferred = [ladder for ladder in found if ladder["placement"][0] == "ddp"] or found
    if not preferred:
        return message("No ladder to draw: no model has three batches on one form of execution yet (grid cnn_ladders).")
    models: dict[tuple[Any, ...], list[pd.DataFrame]] = {}
    for ladder in preferred:
        models.setdefault(tuple(ladder.iloc[0][["model", "precision", "layout"]].fillna("")), []).append(ladder)
    names = [describe(own[0].iloc[0], ["model", "precision"]) for own in models.values()]
    titles = [title for name in names for title in (name, f"{name}: memory")]
    with mpl.rc_context(RC):
        labels = margin_for([form[2] for form in FORMS.values()], 0.8)
        picture, axes = grid_of_axes(2 * len(models), _finding(frame, devices), WIDTH, HEIGHT, 2, labels, names=titles)
        for index, own in enumerate(models.values()):
            for ax, title, column in zip(axes[2 * index :][:2], titles[2 * index :], ("rate", "peak_memory_gib"), strict=False):
                name_panel(ax, title)
                _panel(ax, own, column)
    drawn = pd.concat(preferred, ignore_index=True)
    shown = summary(frame[frame["key"].isin([key for keys in drawn["keys"] for key in str(keys).split(", ")])])
    full = drawn["status"].eq("out_of_memory").any()
    picture.caption = (
        ("A cross: a batch that was out of memory. " if full else "")
        + "Memory: the most that was allocated on a GPU, with what cuDNN tries in the warm-up; none beside an earlier Run's model. "
        + common(shown)
    )
    picture.data = drawn[["model", "placement", "execution", "precision", "batch_size", "status", "rate", "peak_memory_gib", "n"]]
    picture.alt = "Lines over the batch a GPU. " + "; ".join(
        f"{describe(own.iloc[0], ['model', 'execution'])}: " + ", ".join(_point(row) for _, row in own.iterrows()) for own in preferred
    )
    return picture


def _panel(ax: Axes, own: list[pd.DataFrame], column: str) -> None:
    ends = []
    for ladder in own:
        colour, marker, label = FORMS[ladder["execution"][0]]
        known = ladder[ladder[column].notna() & (ladder["n"] > 0)]
        ax.plot(known["batch_size"], known[column], color=colour, marker=marker)
        if column == "rate":
            for _, row in known[known["rate_low"].notna()].iterrows():
                ax.plot([row["batch_size"]] * 2, [row["rate_low"], row["rate_high"]], color=colour, linewidth=3, alpha=0.45)
        for batch in ladder.loc[ladder["status"].eq("out_of_memory"), "batch_size"]:
            ax.plot([batch], [0], marker="x", color=colour, markersize=8, clip_on=False, linestyle="none")
        if len(known):
            ends.append((float(known["batch_size"].iloc[-1]), float(known[column].iloc[-1]), label, colour))
    if not ends:  # its Runs were measured beside an earlier Run's model
        ax.text(0.5, 0.5, "no peak to show", transform=ax.transAxes, ha="center", va="center", color=INK, fontsize=8, style="italic")
    ax.set_xscale("log", base=2)
    batches = sorted({int(batch) for ladder in own for batch in ladder["batch_size"]})
    ax.set_xticks(_apart(batches))
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    ax.minorticks_off()
    most = max((float(ladder.loc[ladder["n"] > 0, column].max()) for ladder in own), default=1.0)
    ax.set_ylim(0, 1.08 * most if most > 0 else 1.0)  # of all rungs: memory may be most at a small batch
    thousands = column == "rate" and most >= MANY
    ax.yaxis.set_major_formatter(lambda y, _: f"{y / 1000 if thousands else y:,.6g}")
    device = device_word(own[0]["device_type"][0])
    ax.set_ylabel(f"{'k ' if thousands else ''}images/s" if column == "rate" else f"GiB a {device}")
    ax.set_xlabel(f"images a {device} (log scale)")
    label_lines(ax, ends, HEIGHT)


def _apart(batches: Sequence[int]) -> list[int]:
    """The batches whose names have room on the axis: each four times the one before it, or twice where they are few."""
    least, kept = (2 if len(batches) <= 4 else 4), list(batches[:1])
    for batch in batches:
        if batch >= least * kept[-1]:
            kept.append(batch)
    return kept


def _finding(frame: pd.DataFrame, devices: int) -> str | None:
    """The smallest batch with 95% of the best rate, where models differ most in it; of ladders that go on beyond it."""
    rows = ladder_rows(frame)
    rows = rows[rows["devices"] == devices] if len(rows) else rows
    if rows.empty:
        return None
    rows, every = rows[rows["enough"] < rows["largest"]], rows
    if rows.empty:
        return f"At the largest batch measured, {every['largest'].max():,}, no ladder has reached the end of its gain"
    low, high = (rows.iloc[int((sign * rows["enough"]).to_numpy().argmax())] for sign in (-1, 1))
    share = f"{100 * FULL:.0f}% of its best rate"
    least = f"{describe(low['ladder'], ['model', 'execution'])} reaches {share} from batch {low['enough']:,} on"
    return (
        least if low["enough"] == high["enough"] else f"{least}, {describe(high['ladder'], ['model', 'execution'])} from {high['enough']:,}"
    )


def _point(row: Any) -> str:
    if not row["n"]:
        return f"{row['batch_size']} {str(row['status']).replace('_', ' ')}"
    memory = "" if missing(row["peak_memory_gib"]) else f" and {row['peak_memory_gib']:.1f} GiB"
    return f"{row['batch_size']} {rate_text(row['rate'], unit=row['unit'])}{memory}"
