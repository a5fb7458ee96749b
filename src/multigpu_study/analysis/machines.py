"""Every GPU by itself, what an image or word costs in joules, and the ceilings behind bounds."""

import math
from collections.abc import Iterable
from dataclasses import asdict, fields

import numpy as np
import pandas as pd

from multigpu.analysis.limits import Ceiling, ceilings
from multigpu.analysis.statistics import combined, half_width, log_samples
from multigpu.placements.resolve import shard_sizes
from multigpu.records.record import Record
from multigpu.spec.rules.devices import LEAST_ENERGY_S
from multigpu.workloads import description_of
from multigpu_study.analysis.columns import columns


def ceilings_frame(gpu: str) -> pd.DataFrame:
    """The ceilings used for bounds on this GPU, a row each; empty where none is known."""
    return pd.DataFrame(
        [asdict(ceiling) for ceiling in ceilings(gpu).values()],
        columns=[field.name for field in fields(Ceiling)],
    )


PLAIN = set(columns("plain_run"))
"""Fields that an ordinary Run may set."""

JOB = ["machine", "model", "batch_size", "precision", "execution", "how"]

STATE = ["sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c"]


def _own_rates(records: Iterable[Record]) -> pd.DataFrame:
    """A row a GPU and Record that tells one GPU's own rate, with clocks, power and temperature as
    found after the timed steps.
    """
    rows = []
    for record in records:
        run, m = record.run, record.measurement
        if record.status != "ok" or m is None or set(run.model_dump(exclude_defaults=True)) - PLAIN:
            continue
        if len(m.device_states) != run.devices or (
            run.placement != "independent" if run.devices > 1 else run.device_ids is None
        ):
            continue
        who = run.values_of("model", "execution", "precision", "batch_size", "devices")
        who |= {"key": record.key, "launch": record.launch_id, "machine": record.machine.name}
        units = np.array(shard_sizes(run)) / sum(shard_sizes(run)) * m.units
        for rank, state in enumerate(m.device_states):
            own = {
                "gpu": run.chosen_devices[rank],
                "units_per_s": float(units[rank]) / m.event_time_s[rank],
            }
            rows.append(
                who
                | own
                | {"how": "alone" if run.devices == 1 else "beside others"}
                | state.model_dump()
            )
    return pd.DataFrame(
        rows, columns=["key", "launch", *JOB, "devices", "gpu", "units_per_s", *STATE]
    )


def gpu_points(records: Iterable[Record]) -> pd.DataFrame:
    """Every GPU's own rate, repeats pooled, a row a GPU, job and `how`: means, n, and `share` of
    the first GPU's rate with `half` the width of its 95% interval. how: "alone" (a Run on that GPU
    alone), or "beside others" (independent replicas, each by its own events). The interval is that
    of all ratios here; NaN where either GPU was measured once, 0 of the first, whose share is 1.
    GPUs beside others are compared within each Record, so that what slows all falls out, of Runs on
    most of them only. Jobs on one GPU are left out.
    """
    points = []
    for values, group in _own_rates(records).groupby(JOB, sort=False):
        if group["gpu"].nunique() < 2:
            continue
        group = group[group["devices"] == group["devices"].max()]
        first = group[group["gpu"] == group["gpu"].min()]
        within = group["how"].iloc[0] == "beside others"
        rates = first.set_index("key")["units_per_s"]
        for gpu, own in group.groupby("gpu"):
            shares = own["units_per_s"] / (own["key"].map(rates) if within else rates.mean())
            if within:
                compared = [(shares, own)]
            else:
                compared = [(own["units_per_s"], own), (first["units_per_s"], first)]
            sides = [
                log_samples(values, rows["how"], rows["launch"]).assign(rate=1.0)
                for values, rows in compared
            ]
            width = half_width(*combined(sides)[["log_variance", "log_freedom"]].iloc[0])
            half = 0.0 if gpu == group["gpu"].min() else shares.mean() * math.sinh(width)
            row = dict(zip(JOB, values, strict=True)) | {
                "gpu": gpu,
                "n": len(own),
                "half": half,
                "share": shares.mean(),
            }
            points.append(row | own[["units_per_s", *STATE]].mean().to_dict())
    return pd.DataFrame(points, columns=[*JOB, "gpu", "n", "half", "share", "units_per_s", *STATE])


ENERGY_JOB = ["unit", "devices", "model", "batch_size", "placement", "execution", "precision"]


def energy_points(records: Iterable[Record]) -> pd.DataFrame:
    """Return the energy of a unit by `ENERGY_JOB` and machine, of Records with a window of at least
    10 s: on no shorter one figures rest. joules_per_unit: the mean over windows of what all GPUs'
    counters moved, over the units trained
        within; least, most: of the windows.
    """
    rows = []
    for record in records:
        run, windows = record.run, record.measurement.energy if record.measurement else []
        window_s = min((window.window_s for window in windows), default=0.0)
        if window_s >= LEAST_ENERGY_S:
            units = sum(one.units for one in windows)
            joules = [one.end_j - one.start_j for one in windows]
            power_w = sum(moved / one.window_s for moved, one in zip(joules, windows, strict=True))
            job = (description_of(run).unit, *(getattr(run, name) for name in ENERGY_JOB[1:]))
            figures = (sum(joules) / units, units / window_s, power_w)
            rows.append((record.key, record.machine.name, *job, *figures))
    frame = pd.DataFrame(
        rows, columns=["key", "machine", *ENERGY_JOB, "joules_per_unit", "units_per_s", "power_w"]
    )
    means = {name: (name, "mean") for name in ("joules_per_unit", "units_per_s", "power_w")}
    others = {
        "least": ("joules_per_unit", "min"),
        "most": ("joules_per_unit", "max"),
        "n": ("key", "size"),
    }
    return (
        frame.groupby([*ENERGY_JOB, "machine"], dropna=False).agg(**means, **others).reset_index()
    )
