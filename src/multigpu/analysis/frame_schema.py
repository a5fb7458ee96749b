"""What every frame of Records keeps to, checked before anything is computed from it."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pandera.pandas as pa

from multigpu.analysis.frame import COLUMNS, MEASURED
from multigpu.record import STATUSES
from multigpu.run import Run

_OPTIONAL = {name for name, field in Run.model_fields.items() if field.default is None}
_OFTEN_ABSENT = _OPTIONAL | {"loss_first", "loss_last", "sm_clock_mhz", "power_w", "temperature_c", "peak_memory_gib"}


def _positive_where_ok(frame: pd.DataFrame) -> Any:
    measured = frame[["wall_s", "step_time_s", "units_per_s"]].gt(0).all(axis=1) & frame["units"].gt(0).fillna(False)
    return frame["status"].ne("ok") | measured


def _missing_where_not_ok(frame: pd.DataFrame) -> Any:
    return frame["status"].eq("ok") | frame[list(MEASURED)].isna().all(axis=1)


def _padding_only_adds(frame: pd.DataFrame) -> Any:
    return frame["padded_units"].ge(frame["units"]).fillna(True)


def _rate_is_units_over_time(frame: pd.DataFrame) -> Any:
    difference = (frame["units_per_s"] * frame["wall_s"] - frame["units"].astype("float64")).abs()
    return frame["status"].ne("ok") | difference.le(1e-6 * frame["units"].astype("float64"))


_VALUES = {
    "status": pa.Check.isin(STATUSES, error=f"status is one of {', '.join(STATUSES)}"),
    "devices": pa.Check.ge(1, error="devices are at least 1"),
    "unit": pa.Check.isin(["words", "images", "reviews", "samples"], error="the unit is words, images, reviews or samples"),
}

SCHEMA = pa.DataFrameSchema(
    {
        name: pa.Column(
            dtype,
            nullable=name in MEASURED or name in _OFTEN_ABSENT,
            checks=_VALUES.get(name),
        )
        for name, dtype in COLUMNS.items()
    },
    checks=[
        pa.Check(_positive_where_ok, error="a row with status ok has a positive time and positive units"),
        pa.Check(_missing_where_not_ok, error="a row whose status is not ok has no measured value"),
        pa.Check(_padding_only_adds, error="padded units are at least the units"),
        pa.Check(_rate_is_units_over_time, error="units_per_s is units / wall_s"),
    ],
    unique=["machine", "key", "attempt"],
)


def check_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` itself, if it keeps the schema.

    Raises:
        ValueError: a column is missing, unknown, of a wrong type, or a row contradicts itself; one sentence says which.
    """
    if list(frame.columns) != list(COLUMNS):
        missing = [name for name in COLUMNS if name not in frame.columns]
        unknown = [str(name) for name in frame.columns if name not in COLUMNS]
        faults = [f"it {verb} {', '.join(names)}" for verb, names in (("lacks", missing), ("also has", unknown)) if names]
        raise ValueError(f"this is no frame of Records: {' and '.join(faults) or 'its columns are out of order'}")
    try:
        return SCHEMA.validate(frame)
    except (pa.errors.SchemaError, pa.errors.SchemaErrors) as error:
        column = getattr(getattr(error, "schema", None), "name", None)
        check = getattr(getattr(error, "check", None), "error", None)
        why = check or str(error).splitlines()[0]
        raise ValueError(f"the Records do not make a valid frame{f' (column {column})' if column else ''}: {why}") from None
