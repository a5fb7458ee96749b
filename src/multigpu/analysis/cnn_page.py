"""What the pages on document 001 show beside figures: claims with their verdicts, and the commands that measure what is missing."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html
from multigpu.grid import cost_s, find_grid, points

SCALING_GRIDS = ("cnn_pairs", "cnn_models", "cnn_captured", "cnn_strong", "cnn_batches")
UPDATE_GRIDS = ("cnn_updates", "cnn_pairs", "cnn_models", "cnn_batches")
FORMAT_GRIDS = ("cnn_formats", "cnn_formats_captured", "cnn_compiled", "cnn_ladders")


def on_many(frame: pd.DataFrame, least: int = 3) -> pd.DataFrame:
    """The rows of models that one machine measured on so many numbers of devices at least; all rows where there are none of these."""
    job = ["machine", "model", "batch_size"]
    counts = frame[frame["status"].eq("ok")].groupby(job)["devices"].nunique().to_dict()
    chosen = [counts.get(own, 0) >= least for own in zip(*(frame[name] for name in job), strict=True)]
    return frame[chosen] if any(chosen) else frame


def as_measured(frame: pd.DataFrame) -> pd.DataFrame:
    """Every row under the name of the machine that measured it, which `same_gpus.as_one` may have changed.

    A table that names machines divides rows of one alone; under the changed name a point of several repeats may stand beside one that the
    other machine measured once, while its own twin, repeated as often, keeps the old name.
    """
    return frame.assign(machine=frame["measured_on"])


def repeats_cell(n: int, launches: int) -> str:
    """Repeats over launches: "5/4", or that there was one."""
    return "once" if n == 1 else f"{n}/{launches}"


def rebuild_table(grids: Sequence[str], devices: Sequence[int]) -> Shown:
    """The commands that measure what a page shows, with points, measurements and the seconds that each may take."""
    counts = ",".join(map(str, devices))
    rows = []
    for name in grids:
        planned = find_grid(name, devices)
        rows.append(
            {
                "command": f"python -m multigpu measure --grid {name} --devices {counts}",
                "points": f"{len({entry.run.digest for entry in planned}):,}",
                "measurements": f"{len(points(planned)):,}",
                "seconds": f"{cost_s(planned):,.0f}",
            }
        )
    note = "Seconds: at most, from the grids' own estimates; a budget measures the first ones first, and nothing is measured twice."
    return table_html(pd.DataFrame(rows), "", note, ["points", "measurements", "seconds"])
