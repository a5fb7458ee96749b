"""What feeding costs: rates with images from the device, the host and JPEG files, how long steps waited, and where the host gives out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import tables_by
from multigpu.analysis.wording import FRAMEWORK_NAMES, MODEL_NAMES, devices_text, missing, percent_text, plural
from multigpu.conditions import ON_DEVICE
from multigpu.record import Record

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


def feeding_frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row an ok Record of image models on the inputs that are compared.

    images_per_s: over all timed steps. sustained_per_s: over the second half of them, by the slowest replica's clock, when nothing is
    left of what was made before the clock started. step_s, wait_s: means of that half, of the replica that waited most; 0 where
    batches stay on the device, NaN where the wait was not recorded.
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
        # TensorFlow's marks are the host's and may lie before the work: its whole window alone is sure
        sustained = rate if m.step_clock == "device" else m.units / m.wall_s
        fields = {name: getattr(run, name) for name in (*JOB, *FED, "device_type") if name != "machine"}
        figures = {"images_per_s": m.units / m.wall_s, "sustained_per_s": sustained, "step_s": float(steps.mean()), "wait_s": wait_s}
        rows.append(fields | figures | {"key": record.key, "machine": record.machine.name, "launch_id": record.launch_id})
    return pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=dtype) for name, dtype in COLUMNS.items()})


def feeding_points(frame: pd.DataFrame) -> pd.DataFrame:
    """Repeats pooled, a row a way of feeding a job: n, launches, means of `sustained_per_s` and `wait_s`, the mean step, and `share` of
    the rate of the same job with images that stay on the device (NaN without one).
    """
    if frame.empty:
        return frame.assign(n=[], launches=[], share=[])
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
    own = points[points["inputs"] == "synthetic"].set_index(list(JOB))["sustained_per_s"].groupby(level=list(JOB)).max()
    held = [own.get(tuple(row[name] for name in JOB), math.nan) for _, row in points.iterrows()]
    points["share"] = points["sustained_per_s"] / held
    order = points["inputs"].map({name: number for number, name in enumerate(COMPARED)})
    return points.assign(_order=order).sort_values([*JOB, "_order", "input_workers", "prefetch"], kind="stable").drop(columns="_order")


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


def sweeps(points: pd.DataFrame) -> list[tuple[pd.Series, pd.DataFrame]]:
    """Jobs that were fed by at least three numbers of workers in one way of staging, most devices first: any row, and all rows."""
    files = points[(points["inputs"] == "jpeg_folder") & points["input_workers"].gt(0)]
    found = []
    for _, rows in files.groupby([*JOB, "prefetch", "staging", "image_dtype"], dropna=False, sort=False):
        if rows["input_workers"].nunique() >= 3:
            found.append((rows.iloc[0], rows.sort_values("input_workers")))
    return sorted(found, key=lambda item: -item[0]["devices"])


def job_text(row: pd.Series) -> str:
    """A job in words."""
    on = devices_text(row["devices"], row["device_type"])
    own = f"{MODEL_NAMES.get(row['model'], row['model'])}, batch {row['batch_size']} a device, {row['precision']}, {row['execution']}, {on}"
    return own if row["framework"] == "torch" else f"{own}, {FRAMEWORK_NAMES[row['framework']]}"


def swept_text(row: pd.Series) -> str:
    """A job, and as what its images cross where that is not float32, in words."""
    return job_text(row) + ("" if missing(row["image_dtype"]) else f", images cross as {row['image_dtype']}")


def _late(best: pd.Series, rows: pd.DataFrame) -> str:
    """Where steps are longer and yet hardly wait, batches are not what is late: "" otherwise."""
    own_s = rows.loc[rows["inputs"] == "synthetic", "step_s"].min()
    lost_s = best["step_s"] - own_s
    if best["share"] >= EQUAL or missing(best["wait_s"]) or not lost_s > 0 or best["wait_s"] > 0.1 * lost_s:
        return ""
    return (
        f" The host has its batches in time: the step itself takes {1e3 * lost_s:.1f} ms longer, waits of the GPU for copies under way "
        "included, if there are any."
    )


def feeding_findings(points: pd.DataFrame) -> list[str]:
    """Does synthetic equal real, and where does the host give out? A sentence for each job that was measured both ways."""
    if points.empty or not points["inputs"].eq("jpeg_folder").any():
        return ["No Record with JPEG files yet: whether synthetic input trains as fast as real input has not been measured."]
    said = []
    for _, rows in points.groupby(list(JOB), dropna=False, sort=False):
        files = rows[(rows["inputs"] == "jpeg_folder") & rows["share"].notna()]
        if files.empty:
            continue
        best = files.sort_values("sustained_per_s").iloc[-1]
        once = "" if best["n"] >= 5 else " (measured once)" if best["n"] == 1 else f" (n = {best['n']})"
        judged = "as fast as synthetic images" if best["share"] >= EQUAL else "slower than synthetic images"
        by = "a thread" if missing(best["input_workers"]) else plural(int(best["input_workers"]), "worker")
        said.append(
            f"{job_text(best)}: JPEG files by {by} a device at best are {judged}{once}: {percent_text(best['share'])} of their rate, "
            f"{1e3 * best['wait_s']:.1f} ms of a step of {1e3 * best['step_s']:.1f} ms spent waiting.{_late(best, rows)}"
        )
    for row, rows in sweeps(points):
        found = knee([int(count) for count in rows["input_workers"]], rows["sustained_per_s"].tolist())
        each = f"{swept_text(row)}: a worker makes {found.per_worker / row['devices']:,.0f} images/s"
        most = int(rows["input_workers"].max())
        beyond = f" and rates still rise at {most} a device: the host does not give out before" if math.isinf(found.ceiling) else ""
        level = f"; beyond {found.workers:.1f} a device more of them bring nothing" if not beyond else ""
        said.append(f"{each}{level}{beyond}.")
    return said


NOT_FED = (
    "No Record feeds images from the host yet: `python -m multigpu measure --grid inputs` measures them on GPUs, `inputs_small` anywhere."
)


def feeding_table(points: pd.DataFrame) -> Shown:
    """Every way of feeding every job, beside images that stay on the device."""
    fed = {tuple(str(row[name]) for name in JOB) for _, row in points.iterrows() if row["inputs"] not in ON_DEVICE}
    rows = [
        {
            "job": job_text(row),
            "images": SOURCES[row["inputs"]],
            "workers a device": workers_text(row),
            "ahead": "" if row["inputs"] in ON_DEVICE else str(row["prefetch"]),
            "copied on": "" if row["inputs"] in ON_DEVICE else "its own stream" if not missing(row["staging"]) else "the step's stream",
            "cross as": crossing_text(row),
            "images/s": f"{row['sustained_per_s']:,.0f}",
            "of synthetic": "–" if missing(row["share"]) else percent_text(row["share"]),
            "waiting (ms a step)": "–" if missing(row["wait_s"]) else f"{1e3 * row['wait_s']:.2f}",
            "n": str(row["n"]),
        }
        for _, row in points.iterrows()
        if tuple(str(row[name]) for name in JOB) in fed
    ]
    note = (
        "Second half of the timed steps. Waiting: host time until a step had its batch, of the replica that waited most. n = 1: screening."
    )
    return tables_by(pd.DataFrame(rows), "job", note if rows else NOT_FED, ["images/s", "of synthetic", "waiting (ms a step)", "n"])


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
