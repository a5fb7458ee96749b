"""What an image or word costs in joules: windows of energy, those of one job pooled."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from multigpu.analysis.frame import typed_frame
from multigpu.conditions import LEAST_ENERGY_S
from multigpu.record import Record

COUNTER_STEP_S = 0.1
"""The longest time between two movements of NVML's counter of energy; over a window, what one reading may miss at either end."""
JOB = ["unit", "devices", "model", "batch_size", "placement", "execution", "precision"]

ENERGY_COLUMNS = {
    **dict.fromkeys(("key", "machine", "model", "placement", "execution", "precision", "unit"), "string"),
    **dict.fromkeys(("devices", "batch_size"), "int64"),
    **dict.fromkeys(("window_s", "joules", "joules_per_unit", "power_w", "units_per_s", "uncertain"), "float64"),
}


def energy_frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row a Record with a window of energy, over all its GPUs.

    joules: what the counters moved; joules_per_unit: over the units trained within the window; power_w: mean of all GPUs together;
    uncertain: the share of a window that the counters' steps leave open at its two ends. All of these are NaN where a window is
        shorter than 10 s, on which no figure may rest.
    """
    rows = []
    for record in records:
        run, windows = record.run, record.measurement.energy if record.measurement else []
        if not windows:
            continue
        window_s = min(window.window_s for window in windows)
        fields = {name: getattr(run, name) for name in ("model", "placement", "execution", "precision", "devices", "batch_size")}
        row = fields | {"key": record.key, "machine": record.machine.name, "unit": run.description.unit, "window_s": window_s}
        if window_s >= LEAST_ENERGY_S:
            joules, units = sum(w.end_j - w.start_j for w in windows), sum(w.units for w in windows)
            row |= {"joules": joules, "joules_per_unit": joules / units, "units_per_s": units / window_s}
            row |= {"power_w": sum((w.end_j - w.start_j) / w.window_s for w in windows), "uncertain": 2 * COUNTER_STEP_S / window_s}
        rows.append(row)
    return typed_frame(rows, ENERGY_COLUMNS)


def energy_points(frame: pd.DataFrame, *also: str) -> pd.DataFrame:
    """The windows of `energy_frame` that are long enough, those of a job pooled.

    Args:
        also: columns beside `JOB` that tell points apart, such as the machine.

    Returns:
        joules_per_unit: the mean; least, most: of the windows; units_per_s, power_w, window_s: means; uncertain: the largest of what
        counters' steps leave open; n.
    """
    known = frame[frame["joules_per_unit"].notna()]
    grouped = known.groupby([*JOB, *also], sort=True, dropna=False)
    joules = grouped["joules_per_unit"]
    means = grouped[["joules_per_unit", "units_per_s", "power_w", "window_s"]].mean()
    return means.assign(least=joules.min(), most=joules.max(), uncertain=grouped["uncertain"].max(), n=grouped.size()).reset_index()
