"""Every GPU of a machine by itself: its rate, clocks, power and temperature; and what an image or word costs in joules."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from multigpu.analysis.frame import typed_frame
from multigpu.analysis.statistics import interval, sample
from multigpu.conditions import LEAST_ENERGY_S
from multigpu.record import Record

PLAIN = {
    *("workload", "model", "placement", "devices", "batch_size", "precision", "execution", "layout", "sequence_length", "cross_entropy"),
    *("warmup_steps", "timed_steps", "seed", "device_ids"),
}
"""Fields that an ordinary Run may set."""

JOB = ["machine", "model", "batch_size", "precision", "execution", "how"]
STATE = ["sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c"]
GPU_COLUMNS = {
    **dict.fromkeys(("key", "launch", "machine", "model", "execution", "precision", "how"), "string"),
    **dict.fromkeys(("batch_size", "devices", "gpu"), "int64"),
    **dict.fromkeys(("units_per_s", *STATE), "float64"),
}


def gpu_frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row a GPU and Record that tells one GPU's own rate, with clocks, power and temperature as found after the timed steps.

    how: "alone" (a Run on that GPU alone, which `device_ids` names), or "beside others" (independent replicas, each by its own events:
    they share the host).
    """
    rows = []
    for record in records:
        run, m = record.run, record.measurement
        if record.status != "ok" or m is None or set(run.model_dump(exclude_defaults=True)) - PLAIN:
            continue
        if len(m.device_states) != run.devices or (run.placement != "independent" if run.devices > 1 else run.device_ids is None):
            continue
        who = {name: getattr(run, name) for name in ("model", "execution", "precision", "batch_size", "devices")}
        who |= {"key": record.key, "launch": record.launch_id, "machine": record.machine.name}
        units = np.array(run.shard_sizes) / sum(run.shard_sizes) * m.units
        for rank, state in enumerate(m.device_states):
            own = {"gpu": run.chosen_devices[rank], "units_per_s": float(units[rank]) / m.event_time_s[rank]}
            rows.append(who | own | {"how": "alone" if run.devices == 1 else "beside others"} | state.model_dump())
    return typed_frame(rows, GPU_COLUMNS)


def gpu_points(frame: pd.DataFrame) -> pd.DataFrame:
    """Repeats pooled, a row a GPU, job and `how`: means, n, and `share` of the first GPU's rate with `half` the width of its 95% interval.

    The interval is that of all ratios here (`analysis.statistics`): Student's t on logarithms, launches as units where they differ; NaN
    where either GPU was measured once, 0 of the first, whose share is 1. GPUs beside others are compared within each Record, so that what
    slows all of them falls out; one alone brings its own repeats' scatter and the first one's.

    Of GPUs beside others the Runs on most of them only; jobs that were measured on one GPU only are left out.
    """
    points = []
    for values, group in frame.groupby(JOB, sort=False):
        if group["gpu"].nunique() < 2:
            continue
        group = group[group["devices"] == group["devices"].max()]
        first = group[group["gpu"] == group["gpu"].min()]
        within = group["how"].iloc[0] == "beside others"
        rates = first.set_index("key")["units_per_s"]
        for gpu, own in group.groupby("gpu"):
            shares = own["units_per_s"] / (own["key"].map(rates) if within else rates.mean())
            compared = [(shares, own)] if within else [(own["units_per_s"], own), (first["units_per_s"], first)]
            width = interval([sample(values.tolist(), rows["launch"].tolist()) for values, rows in compared])
            half = 0.0 if gpu == group["gpu"].min() else shares.mean() * math.sinh(width)
            row = dict(zip(JOB, values, strict=True)) | {"gpu": gpu, "n": len(own), "half": half, "share": shares.mean()}
            points.append(row | own[["units_per_s", *STATE]].mean().to_dict())
    return pd.DataFrame(points, columns=[*JOB, "gpu", "n", "half", "share", "units_per_s", *STATE])


COUNTER_STEP_S = 0.1
"""The longest time between two movements of NVML's counter of energy; over a window, what one reading may miss at either end."""
ENERGY_JOB = ["unit", "devices", "model", "batch_size", "placement", "execution", "precision"]

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
        also: columns beside `ENERGY_JOB` that tell points apart, such as the machine.

    Returns:
        joules_per_unit: the mean; least, most: of the windows; units_per_s, power_w, window_s: means; uncertain: the largest of what
        counters' steps leave open; n.
    """
    known = frame[frame["joules_per_unit"].notna()]
    grouped = known.groupby([*ENERGY_JOB, *also], sort=True, dropna=False)
    joules = grouped["joules_per_unit"]
    means = grouped[["joules_per_unit", "units_per_s", "power_w", "window_s"]].mean()
    return means.assign(least=joules.min(), most=joules.max(), uncertain=grouped["uncertain"].max(), n=grouped.size()).reset_index()
