"""What a slower memory leaves of throughput, a row a job, beside document 001's GPUs of a lower memory clock."""

from __future__ import annotations

import matplotlib as mpl
import pandas as pd

from multigpu.analysis.layout import grid_of_axes, margin_for, name_panel, rows_from_top
from multigpu.analysis.memory_speed import CLOCK, NONE, Kinds, documents_gpus, point_name, short
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import CEILING, INK, PALETTE, RC
from multigpu.analysis.wording import missing

WIDTH, ROW = 4.6, 0.19
MARKERS = {"bf16": "o", "tf32": "s", "fp32": "^", "fp16": "v"}


def figure_memory_speed(points: pd.DataFrame, kinds: Kinds | None) -> Picture:
    """Every job's throughput at CLOCK of memory's speed, as its two measured GPUs have it; hollow: what the document's GPUs kept."""
    if kinds is None or points.empty:
        return message(NONE)
    document = documents_gpus()
    document = document.sort_values("at_clock", ignore_index=True)
    rows = points.iloc[::-1].reset_index(drop=True)
    names = [point_name(row) for _, row in rows.iterrows()]
    theirs = [f"001: GPU {gpu}, AlexNet" for gpu in document["gpu"]]
    count = len(rows) + len(document)
    with mpl.rc_context(RC):
        panel = f"throughput left at {CLOCK:.0%} of memory's speed"
        left = margin_for([*names, *theirs])
        picture, (ax,) = grid_of_axes(1, _finding(points, document), WIDTH, ROW * count + 0.2, 1, left=left, names=[panel])
        name_panel(ax, panel)
        for y, (_, row) in enumerate(rows.iterrows()):
            ax.plot([100 * row["at_clock"]], [y], marker=MARKERS[row["precision"]], color=PALETTE[0], linestyle="none", zorder=3)
            if not missing(row["at_clock_low"]):
                ends = [100 * row["at_clock_low"], 100 * row["at_clock_high"]]
                ax.plot(ends, [y, y], color=PALETTE[0], linewidth=3, alpha=0.45, solid_capstyle="butt")
        for y, (_, row) in enumerate(document.iloc[::-1].iterrows(), len(rows)):
            ax.plot([100 * row["at_clock"]], [y], marker="D", mfc="none", mec=INK, markersize=5, linestyle="none")
        ax.axvline(100, color=INK, linewidth=1)
        ax.axvline(100 * CLOCK, color=CEILING, linewidth=1, linestyle="--")
        ax.text(100 * CLOCK - 0.15, 0, "memory alone", ha="right", va="center", fontsize=8, color=CEILING)
        ax.set_yticks(range(count), [*names, *theirs[::-1]])
        rows_from_top(ax, count, count)
        ax.spines["left"].set_visible(False)
        ax.set_xlabel("throughput (% of that at full memory speed), one GPU")
    picture.caption = (
        f"{short(kinds.slow)} over {short(kinds.fast)}, whose arithmetic is alike and whose memory reaches {100 * kinds.memory:.0f}% of "
        f"the other's: the share of a captured step's rate that is kept, brought to {CLOCK:.0%} of memory's speed as a power of "
        "it. Circles bf16, squares TF32, triangles fp32; bars: 95% intervals. Hollow: the document's GTX 1070 at 95% of the others' memory "
        "clock. Dashed: what a step would keep that did nothing but wait for memory. "
        f"N = {points[['n_slow', 'n_fast']].min().min()} to {points[['n_slow', 'n_fast']].max().max()} a side."
    )
    columns = ["model", "batch_size", "precision", "kept", "at_clock", "at_clock_low", "at_clock_high", "per_memory", "n_slow", "n_fast"]
    own = points[columns].assign(source="here")
    picture.data = pd.concat([own, document.assign(source="001", model="alexnet")], ignore_index=True)
    picture.alt = (
        "Dots of throughput left at 95% of memory's speed. "
        + "; ".join(f"{point_name(row)}: {100 * row['at_clock']:.1f}%" for _, row in points.iterrows())
        + "; document 001: "
        + ", ".join(f"GPU {row['gpu']} {100 * row['at_clock']:.1f}%" for _, row in document.iterrows())
        + "."
    )
    return picture


def _finding(points: pd.DataFrame, document: pd.DataFrame) -> str:
    """The least that is left here, beside the document's least."""
    least = 100 * points["at_clock"].min()
    return (
        f"At {CLOCK:.0%} of memory's speed every step keeps {least:.1f}% or more; document 001's slowest GPU kept "
        f"{100 * document['at_clock'].min():.1f}%"
    )
