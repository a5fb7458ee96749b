"""Records as one tidy frame: a row each, every column named with its unit, checked before anything
is computed from it.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pandas as pd

from multigpu.analysis.boots import named_boots
from multigpu.analysis.fields import RUN_FIELDS, columns, dtype_of
from multigpu.analysis.formulas import jitter, step_memory, throughput
from multigpu.placements.resolve import semantics_of
from multigpu.placements.traffic import KINDS
from multigpu.records.base import Kept
from multigpu.records.record import Measurement, Record
from multigpu.spec.run import Run
from multigpu.workloads import description_of

IDENTITY: dict[str, str] = {
    **columns("identity"),
    **{name: dtype_of(name) for name in RUN_FIELDS},
    "unit": "string",
}
"""Columns that every row has (a Run's fields default to None only where that means something)."""

WHOLE = ("units", "padded_units", "host_threads")
SECONDS = ("wall_s", "startup_s", "build_s", "warmup_s", "total_s", "parameter_change")
STATE = ("sm_clock_mhz", "power_w", "temperature_c")
STEPS = ("step_time_s", "event_step_time_s", "median_step_s", "jitter_s", "step_memory")
OTHERS = (
    "units_per_s",
    "padded_units_per_s",
    "peak_memory_gib",
    "overhead_s",
    "launch_s",
    "loss_first",
    "loss_last",
)

MEASURED: dict[str, str] = {
    **dict.fromkeys(
        (
            *WHOLE,
            "moved_bytes",
            *(f"{of}_bytes_{kind}" for of in ("moved", "predicted") for kind in KINDS),
        ),
        "Int64",
    ),
    **dict.fromkeys((*SECONDS, *STEPS, *OTHERS, *STATE), "float64"),
    "flags": "string",
}
"""Columns that are missing (NaN or NA) where the status is not ok."""

COLUMNS = IDENTITY | MEASURED


def frame_of(records: Iterable[Record]) -> pd.DataFrame:
    """The frame of `records` but traced ones (`traces.phases_frame`), one row each in their order;
    without any, an empty one. Boots are those of `named_boots`.
    """
    rows = [_row(record) for record in records if not record.run.traced_steps]
    frame = typed_frame(rows, COLUMNS)
    return frame.assign(boot=named_boots(frame))


def typed_frame(rows: Sequence[Mapping[str, Any]], types: Mapping[str, str]) -> pd.DataFrame:
    """The rows as a frame with these columns and dtypes, also without any row; what a row lacks is
    missing.
    """
    return pd.DataFrame(
        {
            name: pd.Series([row.get(name) for row in rows], dtype=dtype)
            for name, dtype in types.items()
        }
    )


def identity(record: Kept) -> dict[str, Any]:
    """Return the fields of `IDENTITY` of a Record of any kind: key, attempt, status, its machine
    with GPU ("" without) and CPU.
    """
    own = {name: getattr(record, name) for name in type(record).model_fields if name in IDENTITY}
    machine = record.machine
    return own | {
        "machine": machine.name,
        "gpu": machine.gpus[0] if machine.gpus else "",
        "cpu": machine.cpu,
    }


def _row(record: Record) -> dict[str, Any]:
    run = record.run
    row = run.values_of(*RUN_FIELDS) | identity(record)
    row["neighbours"] = record.lane.neighbours if record.lane else 0
    row["framework_version"] = record.framework_version
    row["unit"] = description_of(run).unit
    if record.status == "ok" and record.measurement is not None:
        row |= _measured(run, record.measurement)
    return row


def _measured(run: Run, m: Measurement) -> dict[str, Any]:
    timed = [times[run.warmup_steps :] for times in m.step_time_s]  # [rank][timed step]
    slowest = max(timed, key=sum, default=[])
    moved, cycle = m.moved_bytes, semantics_of(run).every
    return {name: getattr(m, name) for name in (*WHOLE, *SECONDS)} | {
        "step_time_s": m.wall_s / run.timed_steps,
        "units_per_s": throughput(m.units, m.wall_s) if m.wall_s > 0 else None,
        "padded_units_per_s": throughput(m.padded_units, m.wall_s) if m.wall_s > 0 else None,
        "event_step_time_s": fmean(m.event_time_s) / run.timed_steps if m.event_time_s else None,
        "median_step_s": median(slowest) if slowest else None,
        "jitter_s": jitter(slowest),
        "step_memory": step_memory(slowest),
        "peak_memory_gib": max(m.peak_memory_gib, default=None),
        **{
            f"moved_bytes_{kind}": None if moved is None else round(moved.get(kind, 0) / cycle)
            for kind in KINDS
        },
        **{
            f"predicted_bytes_{kind}": round(m.predicted_bytes.get(kind, 0) / cycle)
            for kind in KINDS
        },
        "moved_bytes": None if moved is None else round(sum(moved.values()) / cycle),
        "overhead_s": m.total_s - m.warmup_s - m.wall_s,
        "launch_s": m.launch_s,
        "loss_first": m.loss[0] if m.loss else None,
        "loss_last": m.loss[-1] if m.loss else None,
        "flags": ", ".join(m.flags),
        **{
            name: fmean(getattr(state, name) for state in m.device_states)
            if m.device_states
            else None
            for name in STATE
        },
    }


def export(frame: pd.DataFrame, path: Path | str) -> Path:
    """Write `frame` to `path` as its suffix says: .csv, .json (a list of rows) or .parquet.
    ValueError: it cannot be written so.
    """
    path = Path(path)
    how: dict[str, Any] = {
        ".csv": {"index": False},
        ".json": {"orient": "records", "indent": 1},
        ".parquet": {"index": False},
    }
    if path.suffix not in how:
        raise ValueError(f"cannot export to {path.name!r}: choose .csv, .json or .parquet")
    try:
        getattr(frame, f"to_{path.suffix[1:]}")(path, **how[path.suffix])
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror or error}") from None
    return path
