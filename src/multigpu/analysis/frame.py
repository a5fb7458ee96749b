"""Records as one tidy frame: a row each, every column named with its unit, checked before anything is computed from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pandas as pd

from multigpu.analysis.fields import RUN_FIELDS, dtype_of
from multigpu.analysis.formulas import jitter, step_memory, throughput
from multigpu.kept import Kept
from multigpu.placements.traffic import KINDS
from multigpu.record import Measurement, Record, RecordStore
from multigpu.run import Run

IDENTITY: dict[str, str] = {
    "key": "string",
    "attempt": "int64",
    "repeat": "int64",
    **dict.fromkeys(("status", "reason", "machine", "gpu", "cpu", "launch_id", "boot", "measured_at", "commit"), "string"),
    "clean_tree": "bool",
    "neighbours": "int64",
    "framework_version": "string",
    "timing_version": "int64",
    **dict.fromkeys(("input_label", "input_fingerprint"), "string"),
    **{name: dtype_of(name) for name in RUN_FIELDS},
    "unit": "string",
}
"""Columns that every row has (fields of a Run that default to None only where they mean something)."""

MEASURED: dict[str, str] = {
    **dict.fromkeys(("units", "padded_units"), "Int64"),
    **dict.fromkeys(
        ("wall_s", "step_time_s", "units_per_s", "padded_units_per_s", "event_step_time_s", "median_step_s", "jitter_s", "step_memory"),
        "float64",
    ),
    "peak_memory_gib": "float64",
    **{f"moved_bytes_{kind}": "Int64" for kind in KINDS},
    **{f"predicted_bytes_{kind}": "Int64" for kind in KINDS},
    "moved_bytes": "Int64",
    "host_threads": "Int64",
    **dict.fromkeys(
        ("startup_s", "build_s", "warmup_s", "total_s", "overhead_s", "loss_first", "loss_last", "parameter_change"), "float64"
    ),
    "flags": "string",
    **dict.fromkeys(("sm_clock_mhz", "power_w", "temperature_c"), "float64"),
}
"""Columns that are missing (NaN or NA) where the status is not ok."""

COLUMNS = IDENTITY | MEASURED


def frame_of(records: Iterable[Record]) -> pd.DataFrame:
    """The frame of `records`, one row each in their order; without any, an empty frame with every column.

    Traced Runs are left out, so that none competes with a timed one: `traces.phases_frame` holds what they are for.

    A Record that contradicts itself never comes so far: its store refuses it (`record.faults_of`).
    """
    return typed_frame([_row(record) for record in records if not record.run.traced_steps], COLUMNS)


def typed_frame(rows: Sequence[Mapping[str, Any]], types: Mapping[str, str]) -> pd.DataFrame:
    """The rows as a frame with these columns and dtypes, also without any row; what a row lacks is missing."""
    return pd.DataFrame({name: pd.Series([row.get(name) for row in rows], dtype=dtype) for name, dtype in types.items()})


def _records(store: RecordStore | Path | str) -> Iterable[Record]:
    return store if isinstance(store, RecordStore) else RecordStore(Path(store))


def load_frame(store: RecordStore | Path | str, machine: str | None = None) -> pd.DataFrame:
    """The frame of every Record in `store`, the latest attempt of each, or of those of one machine.

    Raises:
        ValueError: a file is no Record, or contradicts itself; the sentence names it.
    """
    return frame_of(record for record in _records(store) if machine is None or record.machine.name == machine)


def identity(record: Kept) -> dict[str, Any]:
    """What a Record of any kind has of `IDENTITY`: key, attempt, status, its machine with GPU ("" without) and CPU."""
    own = {name: getattr(record, name) for name in type(record).model_fields if name in IDENTITY}
    machine = record.machine
    return own | {"machine": machine.name, "gpu": machine.gpus[0] if machine.gpus else "", "cpu": machine.cpu}


def _row(record: Record) -> dict[str, Any]:
    run = record.run
    row = {name: getattr(run, name) for name in RUN_FIELDS} | identity(record)
    row |= {
        "neighbours": record.lane.neighbours if record.lane else 0,
        "framework_version": record.framework_version,
        "unit": run.description.unit,
    }
    if record.status == "ok" and record.measurement is not None:
        row |= _measured(run, record.measurement)
    return row


def _measured(run: Run, m: Measurement) -> dict[str, Any]:
    timed = [times[run.warmup_steps :] for times in m.step_time_s]  # [rank][timed step]
    slowest = max(timed, key=sum, default=[])
    states, cycle = m.device_states, run.semantics.every
    return {
        "units": m.units,
        "padded_units": m.padded_units,
        "wall_s": m.wall_s,
        "step_time_s": m.wall_s / run.timed_steps,
        "units_per_s": throughput(m.units, m.wall_s) if m.wall_s > 0 else None,
        "padded_units_per_s": throughput(m.padded_units, m.wall_s) if m.wall_s > 0 else None,
        "event_step_time_s": fmean(m.event_time_s) / run.timed_steps if m.event_time_s else None,
        "median_step_s": median(slowest) if slowest else None,
        "jitter_s": jitter(slowest),
        "step_memory": step_memory(slowest),
        "peak_memory_gib": max(m.peak_memory_gib, default=None),
        **{f"moved_bytes_{kind}": None if m.moved_bytes is None else round(m.moved_bytes.get(kind, 0) / cycle) for kind in KINDS},
        **{f"predicted_bytes_{kind}": round(m.predicted_bytes.get(kind, 0) / cycle) for kind in KINDS},
        "moved_bytes": None if m.moved_bytes is None else round(sum(m.moved_bytes.values()) / cycle),
        "host_threads": m.host_threads,
        "startup_s": m.startup_s,
        "build_s": m.build_s,
        "warmup_s": m.warmup_s,
        "total_s": m.total_s,
        "overhead_s": m.total_s - m.warmup_s - m.wall_s,
        "loss_first": m.loss[0] if m.loss else None,
        "loss_last": m.loss[-1] if m.loss else None,
        "parameter_change": m.parameter_change,
        "flags": ", ".join(m.flags),
        "sm_clock_mhz": fmean(s.sm_clock_mhz for s in states) if states else None,
        "power_w": fmean(s.power_w for s in states) if states else None,
        "temperature_c": fmean(s.temperature_c for s in states) if states else None,
    }


STEP_COLUMNS = {"key": "string", "rank": "int64", "step": "int64", "timed": "bool", "step_time_s": "float64"}


def step_times(store: RecordStore | Path | str, keys: Sequence[str]) -> pd.DataFrame:
    """Every step of the Records called `keys`, warm-up included: a row a rank and step (key, rank, step, timed, step_time_s).

    Records without a measurement have no steps; keys that `store` does not hold are left out.
    """
    rows = []
    wanted = set(keys)
    for record in _records(store):
        if record.key in wanted and record.status == "ok" and record.measurement is not None:
            for rank, times in enumerate(record.measurement.step_time_s):
                rows += [(record.key, rank, step, step >= record.run.warmup_steps, time) for step, time in enumerate(times)]
    return pd.DataFrame(rows, columns=list(STEP_COLUMNS)).astype(STEP_COLUMNS)


def export(frame: pd.DataFrame, path: Path | str) -> Path:
    """Write `frame` to `path` as its suffix says: .csv, .json (a list of rows) or .parquet.

    Raises:
        ValueError: another suffix, or the file cannot be written; one sentence says which.
    """
    path = Path(path)
    try:
        match path.suffix:
            case ".csv":
                frame.to_csv(path, index=False)
            case ".json":
                frame.to_json(path, orient="records", indent=1)
            case ".parquet":
                frame.to_parquet(path, index=False)
            case _:
                raise ValueError(f"cannot export to {path.name!r}: choose .csv, .json or .parquet")
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror or error}") from None
    return path
