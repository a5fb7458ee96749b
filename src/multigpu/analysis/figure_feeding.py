"""Rate against the workers that decode: where the line bends, more of them no longer help."""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd

from multigpu.analysis.feeding import JOB, around, knee, sweeps, swept_text
from multigpu.analysis.layout import grid_of_axes, name_panel
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import CEILING, RC, look

WIDTH, HEIGHT = 2.9, 2.0
NONE = "No sweep of workers to draw: `python -m multigpu measure --grid inputs` measures one on GPUs."


def _finding(shown: Sequence[tuple[pd.Series, pd.DataFrame]]) -> str:
    """What a worker makes, and how many a device still help, of the job on the most devices."""
    row, rows = shown[0]
    workers = [int(count) for count in rows["input_workers"]]
    found = knee(workers, rows["sustained_per_s"].tolist())
    beside = around(workers, found)
    level = f"rates still rise at {max(workers)}, the most that were tried"
    if beside is not None:
        level = f"more than about {found.workers:.1f} a device bring nothing, by a fit between the measured {beside[0]} and {beside[1]}"
    return f"A worker makes {found.per_worker / row['devices']:,.0f} images/s; {level}"


def figure_workers(points: pd.DataFrame) -> Picture:
    """A panel a job: sustained rate with JPEG files over workers a device, the fitted knee, and the rate with synthetic images."""
    shown = sweeps(points)
    if not shown:
        return message(NONE)
    synthetic = points[points["inputs"] == "synthetic"].set_index(list(JOB))["sustained_per_s"]
    colour, parts, bends = look("ddp").colour, [], []
    with mpl.rc_context(RC):
        names = [swept_text(row) for row, _ in shown]
        picture, axes = grid_of_axes(len(shown), _finding(shown), WIDTH, HEIGHT, names=names, left=0.85)
        for ax, name, (row, rows) in zip(axes, names, shown, strict=True):
            name_panel(ax, name)
            workers, rates = rows["input_workers"].astype(int).to_numpy(), rows["sustained_per_s"].to_numpy()
            found = knee(list(workers), list(rates))
            line = np.unique([0.0, min(found.workers, workers.max()), workers.max()])
            ax.plot(line, np.minimum(found.per_worker * line, found.ceiling), color=colour, linewidth=1.0)
            ax.plot(workers, rates, "o", color=colour)
            own = synthetic.get(tuple(row[field] for field in JOB), math.nan)
            own = float(np.max(own)) if np.ndim(own) else float(own)
            if not math.isnan(own):
                ax.axhline(own, color=CEILING, linestyle=(0, (4, 2)), linewidth=1.2)
                ax.annotate("synthetic", (0, own), xytext=(3, 3), textcoords="offset points", color=CEILING, fontsize=8)
            ax.set_xlim(0, 1.05 * workers.max())
            ax.set_xticks(workers, [str(count) for count in workers])
            ax.set_ylim(0, 1.15 * max([*rates, 0 if math.isnan(own) else own]))
            ax.set_xlabel("workers a device")
            bends.append("no bend" if math.isinf(found.workers) else f"a bend at {found.workers:.1f} workers")
            parts.append(rows.assign(panel=name, synthetic_per_s=own))
            ax.yaxis.set_major_formatter("{x:,.0f}")
        axes[0].set_ylabel("images/s")
    picture.data = pd.concat(parts, ignore_index=True)
    once = "; each point was measured once (screening)" if picture.data["n"].eq(1).all() else ""
    picture.caption = (
        "Points: JPEG files of about 500 x 375 pixels decoded, cropped, flipped and normalised by workers of PyTorch's loader, second half "
        "of the timed steps. Line: min(rate of a worker x workers, ceiling), a fit to these points: where it bends between two of them "
        f"nothing was measured. Dashed: images that stay on the device. {', '.join(dict.fromkeys(picture.data['machine']))}{once}."
    )
    picture.alt = "; ".join(f"{name}: images/s over workers, {bend}" for name, bend in zip(names, bends, strict=True)) + "."
    return picture
