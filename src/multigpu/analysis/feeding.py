"""What feeding costs: rates with images from the device, the host and JPEG files, how long steps waited, and where the host gives out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import tables_by
from multigpu.analysis.wording import FRAMEWORK_NAMES, MODEL_NAMES, devices_text, missing, percent_text
from multigpu.conditions import ON_DEVICE
from multigpu.reading import with_untraced_steps
from multigpu.record import Record
from multigpu.same_gpus import kind_of

COMPARED = ("synthetic", "synthetic_host", "jpeg_folder")
"""Inputs that this page is about, in its order."""

SOURCES = {"synthetic": "synthetic, on the device", "synthetic_host": "synthetic, from the host", "jpeg_folder": "JPEG files"}
EQUAL = 0.95
"""Of the rate with synthetic images: from here on input counts as no burden (claim C13's margin)."""

JOB = ("machine", "framework", "model", "batch_size", "placement", "execution", "precision", "layout", "devices")
FED = ("inputs", "input_workers", "prefetch", "staging", "image_dtype")
ALSO = ("workload", "device_type", "data", "seed", "warmup_steps", "timed_steps", "processes")
"""Fields of a Run that may differ from their defaults without making it another question."""

COLUMNS = {
    "key": "string",
    "launch_id": "string",
    **dict.fromkeys(
        (
            "machine",
            "framework",
            "model",
            "placement",
            "execution",
            "precision",
            "layout",
            "inputs",
            "staging",
            "image_dtype",
            "device_type",
        ),
        "string",
    ),
    **dict.fromkeys(("batch_size", "devices", "prefetch"), "int64"),
    "input_workers": "Int64",
    **dict.fromkeys(("images_per_s", "sustained_per_s", "step_s", "wait_s"), "float64"),
}


def waited_s(record: Record) -> float:
    """Host time a step until it had its batch, s: mean over the second half of the timed steps, of the replica that waited most; 0
    where batches stay on the device, NaN where waits were not recorded.
    """
    run, m = record.run, record.measurement
    if run.inputs in ON_DEVICE:
        return 0.0
    if m is None or not m.input_wait_s:
        return math.nan
    half, end = run.warmup_steps + run.timed_steps // 2, run.warmup_steps + run.timed_steps
    return float(np.array(m.input_wait_s)[:, half:end].mean(axis=1).max())


def fed_on(records: Iterable[Record], machines: Iterable[str]) -> list[Record]:
    """The Records of these machines and of others with the same GPUs, each under its own name, since what feeds a GPU is its own host;
    traced ones `with_untraced_steps`.
    """
    every, names = list(records), set(machines)
    kinds = {kind_of(record.machine) for record in every if record.machine.name in names} - {""}
    return with_untraced_steps(record for record in every if record.machine.name in names or kind_of(record.machine) in kinds)


def feeding_frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row an ok Record of image models on the inputs that are compared.

    images_per_s: over all timed steps. sustained_per_s: over the second half of them, by the slowest replica's clock, when nothing is
    left of what was made before the clock started. step_s: mean of that half. wait_s: likewise, of the replica that waited most; 0 where
    batches stay on the device, NaN where the wait was not recorded. Where steps are marked by the host, whose marks may lie before the
    work, rate and step are those of the whole window.
    """
    rows = []
    for record in records:
        run, m = record.run, record.measurement
        if record.status != "ok" or m is None or run.inputs not in COMPARED or run.description.unit != "images":
            continue
        if set(run.model_dump(exclude_defaults=True)) - {*JOB, *FED, *ALSO}:
            continue  # another question: traced, other devices, another wire ...
        steps = np.array(m.step_time_s)[:, run.warmup_steps + run.timed_steps // 2 :]
        wait_s = waited_s(record)
        rate = m.units / run.timed_steps / float(steps.mean(axis=1).max())
        sure = m.step_clock == "device"
        sustained, step_s = (rate, float(steps.mean())) if sure else (m.units / m.wall_s, m.wall_s / run.timed_steps)
        fields = {name: getattr(run, name) for name in (*JOB, *FED, "device_type") if name != "machine"}
        figures = {"images_per_s": m.units / m.wall_s, "sustained_per_s": sustained, "step_s": step_s, "wait_s": wait_s}
        rows.append(fields | figures | {"key": record.key, "machine": record.machine.name, "launch_id": record.launch_id})
    return pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=dtype) for name, dtype in COLUMNS.items()})


def feeding_points(frame: pd.DataFrame) -> pd.DataFrame:
    """Repeats pooled, a row a way of feeding a job: n, launches, means of `sustained_per_s`, `step_s` and `wait_s`, and beside the same
    job with images that stay on the device (NaN without one) the `share` of its rate and `longer_s`, what the step takes more.
    """
    if frame.empty:
        return frame.assign(n=[], launches=[], share=[], longer_s=[])
    grouped = frame.groupby([*JOB, *FED, "device_type"], dropna=False, sort=False)
    points = grouped.agg(
        n=("key", "size"),
        launches=("launch_id", "nunique"),
        low=("sustained_per_s", "min"),
        high=("sustained_per_s", "max"),
        sustained_per_s=("sustained_per_s", lambda rates: 1 / (1 / rates).mean()),
        wait_s=("wait_s", "mean"),
        step_s=("step_s", "mean"),
    ).reset_index()
    held: dict[tuple[str, ...], pd.Series] = {}
    for _, row in points[points["inputs"] == "synthetic"].sort_values("sustained_per_s").iterrows():
        held[_job(row)] = row  # the fastest one stays
    own = [held.get(_job(row)) for _, row in points.iterrows()]
    rates, steps = ([math.nan if row is None else float(row[name]) for row in own] for name in ("sustained_per_s", "step_s"))
    points["share"], points["longer_s"] = points["sustained_per_s"] / rates, points["step_s"] - steps
    order = points["inputs"].map({name: number for number, name in enumerate(COMPARED)})
    return points.assign(_order=order).sort_values([*JOB, "_order", "input_workers", "prefetch"], kind="stable").drop(columns="_order")


def _job(row: pd.Series) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in JOB)


class Knee(NamedTuple):
    """rate(w) = min(per_worker x w, ceiling): below `workers` = ceiling / per_worker the workers decide, above it something else."""

    per_worker: float
    ceiling: float
    workers: float


def knee(workers: Sequence[int], rates: Sequence[float]) -> Knee:
    """The knee of rates over workers, by least squares of logarithms over every split into rising and level points.

    Where no point is level, `ceiling` is infinite: the host's limit lies beyond the workers that were tried.

    Raises:
        ValueError: fewer than two points, or a number that is not positive.
    """
    w, r = (np.asarray(values, dtype=float) for values in (workers, rates))
    if len(w) < 2 or not ((w > 0).all() and (r > 0).all()):
        raise ValueError(f"a knee needs at least two positive points: there are {len(w)}")
    order = np.argsort(w)
    w, r = np.log(w[order]), np.log(r[order])
    best, found = math.inf, Knee(math.nan, math.inf, math.inf)
    for rising in range(1, len(w) + 1):
        slope = float((r[:rising] - w[:rising]).mean())
        level = float(r[rising:].mean()) if rising < len(w) else math.inf
        error = float(((np.minimum(slope + w, level) - r) ** 2).sum())
        if error < best * (1 - 1e-9):
            best, found = error, Knee(math.exp(slope), math.exp(level), math.exp(level - slope))
    if found.workers > EQUAL * math.exp(w[-1]):  # the last point alone is hardly below the line: it may as well still rise
        return Knee(math.exp(float((r - w).mean())), math.inf, math.inf)
    return found


def around(workers: Sequence[int], found: Knee) -> tuple[int, int] | None:
    """The measured numbers of workers next to a knee, between which it was fitted; None where there is none."""
    below, above = [count for count in workers if count <= found.workers], [count for count in workers if count > found.workers]
    return (max(below), min(above)) if below and above else None


def sweeps(points: pd.DataFrame) -> list[tuple[pd.Series, pd.DataFrame]]:
    """Jobs that were fed by at least three numbers of workers in one way of staging, most devices first: any row, and all rows."""
    files = points[(points["inputs"] == "jpeg_folder") & points["input_workers"].gt(0)]
    found = []
    for _, rows in files.groupby([*JOB, "prefetch", "staging", "image_dtype"], dropna=False, sort=False):
        if rows["input_workers"].nunique() >= 3:
            found.append((rows.iloc[0], rows.sort_values("input_workers")))
    return sorted(found, key=lambda item: -item[0]["devices"])


def job_text(row: pd.Series) -> str:
    """A job in words, with the machine that fed it: a host has its own cores."""
    on = f"{devices_text(row['devices'], row['device_type'])} of {row['machine']}"
    own = f"{MODEL_NAMES.get(row['model'], row['model'])}, batch {row['batch_size']} a device, {row['precision']}, {row['execution']}, {on}"
    return own if row["framework"] == "torch" else f"{own}, {FRAMEWORK_NAMES[row['framework']]}"


def swept_text(row: pd.Series) -> str:
    """A job, and as what its images cross where that is not float32, in words."""
    return job_text(row) + ("" if missing(row["image_dtype"]) else f", images cross as {row['image_dtype']}")


NOT_FED = (
    "No Record feeds images from the host yet: `python -m multigpu measure --grid inputs` measures them on GPUs, `inputs_small` anywhere."
)


def feeding_table(points: pd.DataFrame) -> Shown:
    """Every way of feeding every job, beside images that stay on the device."""
    fed = {_job(row) for _, row in points.iterrows() if row["inputs"] not in ON_DEVICE}
    rows = [
        {
            "job": job_text(row),
            "images": SOURCES[row["inputs"]],
            "workers a device": workers_text(row),
            "ahead": "" if row["inputs"] in ON_DEVICE else str(row["prefetch"]),
            "copied on": stream_text(row),
            "cross as": crossing_text(row),
            "images/s": f"{row['sustained_per_s']:,.0f}",
            "of synthetic": "–" if missing(row["share"]) else percent_text(row["share"]),
            "longer (ms a step)": "" if row["inputs"] in ON_DEVICE else _ms(row["longer_s"]),
            "waiting (ms a step)": "" if row["inputs"] in ON_DEVICE else _ms(row["wait_s"]),
            "n": str(row["n"]),
        }
        for _, row in points.iterrows()
        if _job(row) in fed
    ]
    note = (
        "Second half of the timed steps. Longer: than a step of the same job on images that stay on the device, which is what feeding "
        "costs. Waiting: host time until a step had its batch, of the replica that waited most; meanwhile its GPU may compute steps "
        "launched before. n = 1: screening."
    )
    right = ["images/s", "of synthetic", "longer (ms a step)", "waiting (ms a step)", "n"]
    return tables_by(pd.DataFrame(rows), "job", note if rows else NOT_FED, right)


def _ms(seconds: float) -> str:
    return "–" if missing(seconds) else f"{1e3 * seconds:,.1f}"


def stream_text(row: pd.Series) -> str:
    """On which stream a batch is copied to the device."""
    if row["inputs"] in ON_DEVICE or row["framework"] != "torch":
        return ""
    return "the step's stream" if missing(row["staging"]) else "its own stream"


def crossing_text(row: pd.Series) -> str:
    """As what a batch's images cross to the device."""
    if row["inputs"] in ON_DEVICE or row["framework"] != "torch":
        return ""
    return "float32" if missing(row["image_dtype"]) else str(row["image_dtype"])


def workers_text(row: pd.Series) -> str:
    """Who makes the batches."""
    if row["inputs"] in ON_DEVICE:
        return ""
    return "a thread" if missing(row["input_workers"]) else "none" if row["input_workers"] == 0 else str(row["input_workers"])
