"""Phases of a step by number of GPUs: each replica's shares, and launch skew, the document's beside ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.patches import Patch

from multigpu.analysis.document_phases import REPLICA_PHASES, document_replicas, document_whole, replicas_frame
from multigpu.analysis.document_phases_page import COUNTS, by_machine, leading, pooled, skew_text, ways, wholes
from multigpu.analysis.document_phases_words import compared, skew_finding
from multigpu.analysis.figure_step import LOOKS
from multigpu.analysis.layout import grid_of_axes, label_lines, margin_for, name_panel
from multigpu.analysis.picture import Picture
from multigpu.analysis.style import CEILING, INK, RC
from multigpu.analysis.wording import joined, percent_text
from multigpu.record import Record

WIDTH, HEIGHT = 3.1, 1.25
SKEW_WIDTH, SKEW_HEIGHT = 4.2, 2.8
COLOURS = (("#d55e00", "^"), ("#0072b2", "o"), ("#009e73", "s"), ("#aa3377", "v"), ("#b07a00", "P"), ("#6a5acd", "X"))
"""Of the ways in their order."""
FLAT = 0.01
"""Lines of launch skew that stay below this share lie on each other."""


def replica_shares(replicas: pd.DataFrame) -> pd.DataFrame:
    """Each phase's share in the sum of a replica's phases (of `REPLICA_PHASES`), as the document takes shares; NaN counts as 0.

    whole: whether the update's time is known, so that no phase is missing from the sum.
    """
    times = replicas.reindex(columns=[f"{phase}_s" for phase in REPLICA_PHASES]).astype(float).fillna(0.0)
    shares = times.div(times.sum(axis=1), axis=0).rename(columns=lambda name: name.removesuffix("_s"))
    early = replicas["early_update"].astype(bool) if "early_update" in replicas else False
    return pd.concat([replicas[["devices", "rank"]], shares], axis=1).assign(whole=~pd.Series(early, index=replicas.index))


def document_shares() -> pd.DataFrame:
    """The document's, of forward and backward on each GPU and of merge and update, which it gives for all of them together."""
    whole = document_whole()[["devices", "merge_s", "update_s"]]
    return replica_shares(document_replicas().merge(whole, on="devices"))


def figure_shares(records: Sequence[Record]) -> Picture:
    """A bar a replica, grouped by number of GPUs, a panel a way (of `leading` Records), with the counts that
    were measured; the document's first.
    """
    records = leading(records)
    panels = {"Document 000 (P100)": document_shares()}
    panels |= {name: replica_shares(pooled(replicas_frame(mine), ["devices", "rank"])) for name, mine in ways(records).items()}
    with mpl.rc_context(RC):
        picture, axes = grid_of_axes(
            len(panels),
            shares_finding(panels, *compared(records)),
            WIDTH,
            HEIGHT,
            2,
            left=0.7,
            legend=True,
            names=list(panels),
            row_gap=0.75,
        )
        for place, (ax, (name, table)) in enumerate(zip(axes, panels.items(), strict=True)):
            name_panel(ax, name)
            drawn = table[table["devices"].isin(COUNTS)]
            counts = sorted({int(count) for count in drawn["devices"]})
            begins = {count: sum(counts[:at]) + 1.2 * at for at, count in enumerate(counts)}
            at = np.array([begins[count] + rank for count, rank in zip(drawn["devices"], drawn["rank"], strict=True)], float)
            bottom = np.zeros(len(drawn))
            for phase in REPLICA_PHASES:
                share = 100 * drawn[phase].to_numpy(float)
                colour, hatch, _ = LOOKS[phase]
                ax.bar(at, share, 0.86, bottom=bottom, color=colour, hatch=hatch, edgecolor=INK, linewidth=0.3)
                bottom = bottom + share
            ax.set_xlim(-0.8, begins[counts[-1]] + counts[-1] - 0.2)
            ax.set_ylim(0, 100)
            ax.set_yticks([0, 50, 100])
            if place % 2 == 0:
                ax.set_ylabel("% of sum")
            ax.set_xticks([begins[count] + (count - 1) / 2 for count in counts], [str(count) for count in counts])
            ax.tick_params(axis="x", length=0)
            ax.grid(axis="x", visible=False)
        for ax in axes[-2:]:
            ax.set_xlabel("GPUs; a bar for each, GPU 0 first")
        used = [phase for phase in REPLICA_PHASES if any((table[phase] > 0).any() for table in panels.values())]
        looks = [(LOOKS[phase][0], LOOKS[phase][1], LOOKS[phase][2]) for phase in used]
        picture.legend_line([Patch(facecolor=c, hatch=h, edgecolor=INK, linewidth=0.4, label=label) for c, h, label in looks])
    picture.data = pd.concat([table.assign(panel=name) for name, table in panels.items()], ignore_index=True)
    picture.caption = (
        "Shares of the sum of a replica's phases, which overlap where the sum is longer than the step. The document gives merge and update "
        f"for all GPUs together and no pull.{_unknown(records)} {_repeats(records)}{_machines(records)}"
    )
    picture.alt = "Stacked bars of phases, a bar a replica. " + "; ".join(
        f"{name}: forward {percent_text(mine['forward'].min())} to {percent_text(mine['forward'].max())} on {mine['devices'].max()}"
        for name, table in panels.items()
        if len(mine := table[table["devices"] == table["devices"].max()])
    )
    return picture


def shares_finding(panels: dict[str, pd.DataFrame], most: int, found: Collection[str]) -> str | None:
    """The share of forward and backward, mean over the GPUs, on equally many (`most`): the document's, and that of each way of `found`
    whose phases are all known. None without any.
    """

    def passes(table: pd.DataFrame) -> float:
        own = table[table["devices"] == most]
        return 100 * float((own["forward"] + own["backward"]).mean())

    (_, document), *ours = panels.items()
    known = [(name, table) for name, table in ours if name in found and table.loc[table["devices"] == most, "whole"].all()]
    if not known or most not in set(document["devices"]):
        return None
    mine = joined([f"{passes(table):.0f}% ({name})" for name, table in known])
    return f"On {most} GPUs forward and backward are {passes(document):.0f}% of the phases in the document and here {mine}"


def figure_skew(records: Sequence[Record]) -> Picture:
    """Launch skew over the computation's span against the number of GPUs, a line a way (of `leading` Records), the document's dashed; those
    that stay below `FLAT` are grey and have one name.
    """
    records = leading(records)
    lines = {"document 000": document_whole()} | wholes(records)
    flat = [name for name, table in lines.items() if float(table["skew_share"].max()) < FLAT]
    flat = flat if len(flat) > 1 else []
    apart = [name for name in lines if name not in flat]
    longest = _most(lines)
    short = {name for name in apart[1:] if lines[name]["devices"].max() < longest}
    named = {name: f"{name} (to {int(lines[name]['devices'].max())})" if name in short else name for name in lines}
    together = f"the other {len(flat)}, all below {100 * FLAT:.0f}%"
    with mpl.rc_context(RC):
        picture, (ax,) = grid_of_axes(
            1, skew_finding(records), SKEW_WIDTH, SKEW_HEIGHT, 1, margin_for([*(named[name] for name in apart), together])
        )
        ends = []
        for name, table in lines.items():
            colour, marker = (CEILING, ".") if name in flat else (INK, "D") if name == apart[0] else COLOURS[apart.index(name) - 1]
            x, y = table["devices"].to_numpy(float), 100 * table["skew_share"].to_numpy(float)
            ax.plot(x, y, marker=marker, color=colour, linestyle=(0, (3, 2)) if name == apart[0] else "-", markersize=5, clip_on=False)
            ends += [] if name in flat else [(x[-1], y[-1], named[name], colour)]
        ends += [(float(COUNTS[-1]), 0.0, together, INK)] if flat else []
        ax.set_xlim(1, COUNTS[-1])
        ax.set_ylim(0, 1.1 * ax.get_ylim()[1])
        ax.set_xticks(list(COUNTS))
        ax.set_xlabel("GPUs, weak scaling")
        ax.set_ylabel("launch skew (% of the computation's span)")
        label_lines(ax, ends, SKEW_HEIGHT)
    grey = f"Grey: {'; '.join(flat)}. " if flat else ""
    picture.data = pd.concat([table.assign(line=name) for name, table in lines.items()], ignore_index=True)
    picture.caption = (
        "Launch skew: span of forward and backward over all GPUs less the longest of one GPU, over that span; the document's (dashed) "
        f"follows from its tables. {_repeats(records)}{grey}{_machines(records)}"
    )
    picture.alt = "Lines of launch skew against GPUs. " + "; ".join(
        f"{name} on {int(row['devices'])}: {skew_text(row)}" for name, table in lines.items() for row in [table.iloc[-1]]
    )
    return picture


def _most(lines: dict[str, pd.DataFrame]) -> int:
    """The most GPUs of ours, or of the document's without ours."""
    ours = [int(table["devices"].max()) for name, table in lines.items() if name != "document 000"]
    return max(ours, default=COUNTS[-1])


def _machines(records: Sequence[Record]) -> str:
    """Which ways stand on which machine, for a caption."""
    found = {machine: list(ways(mine)) for machine, mine in by_machine(records).items()}
    if len(found) < 2:
        return "".join(f"{machine}." for machine in found)
    first, *others = found
    return f"{'; '.join(f'{joined(found[name])}: {name}' for name in others)}; all else: {first}."


def _unknown(records: Sequence[Record]) -> str:
    """Which way's update is not known on some replica, for a caption: its bar holds the other phases alone."""
    named = [name for name, mine in ways(records).items() if replicas_frame(mine)["early_update"].astype(bool).any()]
    return f" Where the update's time is not known ({', '.join(named)}) a bar holds the other phases alone." if named else ""


def _repeats(records: Sequence[Record]) -> str:
    """How often points were measured, for a caption."""
    counts = [count for mine in ways(records).values() for count in Counter(record.run.devices for record in mine).values()]
    if not counts:
        return ""
    low, high = min(counts), max(counts)
    return "n = 1 (screening). " if high == 1 else f"n = {low}, means. " if low == high else f"n = {low} to {high}, means. "
