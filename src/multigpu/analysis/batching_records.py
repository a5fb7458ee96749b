"""What batching cost in measured steps: modes beside each other, step time against its batch, and its autocorrelation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from multigpu.analysis.autocorrelation import LAGS, autocorrelation, band, ljung_box
from multigpu.analysis.batching import shard_frame, text_source
from multigpu.analysis.formulas import pooled_rate, ratio_interval
from multigpu.analysis.metrics import POINT
from multigpu.inputs.pieces import SELECTIONS
from multigpu.record import Record

BUCKETED = ("lengths_000", "bucket_means_000", "catalogs", *SELECTIONS, "text_files")
"""Inputs whose sentences differ in length."""
SETTING = tuple(name for name in POINT if name not in ("batching", "sequence_length", "input_label"))
"""What two modes of one setting have in common."""


def ragged(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that were measured on sentences of different lengths."""
    return frame[(frame["unit"] == "words") & frame["inputs"].isin(BUCKETED) & (frame["status"] == "ok")]


def modes_table(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a setting and mode: its rate, and how it stands to every replica drawing its own bucket.

    On one device a shared bucket is an own one, so that an own mode's single device serves both.

    Returns:
        the columns of SETTING; batching; n; launches; rate (words/s, pooled); step_time_s; jitter_s (median over repeats); gain: rate
        over that of "own", with gain_low and gain_high (95%; NaN with n = 1); speedup over one device in the same mode, with
        speedup_low and speedup_high; keys.
    """
    rows: list[dict[str, Any]] = []
    one = tuple(name for name in SETTING if name not in ("devices", "scaling"))
    groups = dict(iter(ragged(frame).groupby([*SETTING, "batching"], dropna=False, sort=False)))
    by_name = {(_hashable(key[:-1]), key[-1]): group for key, group in groups.items()}
    singles = {
        (_hashable(tuple(group.iloc[0][name] for name in one)), key[-1]): group
        for key, group in groups.items()
        if group["devices"].iloc[0] == 1
    }
    for key, group in groups.items():
        mode, first = str(key[-1]), group.iloc[0]
        of_one = _hashable(tuple(first[name] for name in one))
        single = singles.get((of_one, mode))
        if single is None and mode == "shared":
            single = singles.get((of_one, "own"))
        gain, speedup = _ratio(group, by_name.get((_hashable(key[:-1]), "own"))), _ratio(group, single)
        rows.append(
            {name: first[name] for name in SETTING}
            | {
                "batching": mode,
                "n": len(group),
                "launches": group["launch_id"].nunique(),
                "rate": pooled_rate(group["units"], group["wall_s"]),
                "step_time_s": float(group["wall_s"].sum() / group["timed_steps"].sum()),
                "jitter_s": float(group["jitter_s"].median()),
                **{f"gain{end}": value for end, value in zip(("", "_low", "_high"), gain, strict=True)},
                **{f"speedup{end}": value for end, value in zip(("", "_low", "_high"), speedup, strict=True)},
                "keys": ", ".join(group["key"]),
            }
        )
    return (
        pd.DataFrame(rows).sort_values(["inputs", "placement", "devices"], kind="stable").reset_index(drop=True) if rows else pd.DataFrame()
    )


def _hashable(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key with every kind of missing value as None, so that equal settings are equal."""
    return tuple(None if pd.isna(value) else value for value in key)


def _ratio(own: pd.DataFrame, base: pd.DataFrame | None) -> tuple[float, float, float]:
    """The ratio of two pooled rates with its interval; NaN without a base."""
    if base is None:
        return (np.nan,) * 3
    ratio = pooled_rate(own["units"], own["wall_s"]) / pooled_rate(base["units"], base["wall_s"])
    if own is base:
        return 1.0, 1.0, 1.0
    sides = [(each["units"].tolist(), each["wall_s"].tolist()) for each in (own, base)]
    low, high = ratio_interval(*sides[0], *sides[1], own["launch_id"].tolist(), base["launch_id"].tolist())
    return ratio, low, high


def slowest_steps(record: Record) -> np.ndarray:
    """Seconds of every timed step of the slowest replica, shape (timed_steps,).

    Raises:
        ValueError: the Record holds no measurement.
    """
    if record.measurement is None:
        raise ValueError(f"Record {record.key} holds no measurement ({record.status})")
    return np.max(np.array(record.measurement.step_time_s), axis=0)[record.run.warmup_steps :]


FIT_SETTING = (
    *("machine", "inputs", "model", "batch_size", "framework", "precision", "execution", "placement"),
    *("processes", "devices", "device_type", "batching", "shuffle"),
)
"""What repeats of one fit have in common."""


def fit_steps(record: Record, column: str = "positions") -> dict[str, Any]:
    """Least squares of the step's time (slowest replica) on its largest shard: t = fixed_s + s_per_unit x.

    The shards are counted from the source again, which must be the one that was measured.

    Args:
        column: of `shard_frame`: words, positions or width.

    Returns:
        key, the fields of FIT_SETTING, column, fixed_s, s_per_unit, r2 (share of the variance of step times that the batch explains; NaN
        where shards or times do not vary), steps, and waiting_share of these steps by this column.

    Raises:
        ValueError: the Record holds no measurement, or its input reads otherwise today.
    """
    run, times = record.run, slowest_steps(record)
    if text_source(run).fingerprint != record.input_fingerprint:
        raise ValueError(f"Record {record.key} read an input that is another today: its shards cannot be counted again")
    shards = shard_frame(run, run.warmup_steps + run.timed_steps)
    by_step = shards[shards["step"] >= run.warmup_steps].groupby("step")[column]
    largest = by_step.max().to_numpy(float)
    away, late = largest - largest.mean(), times - times.mean()
    varies = float(away @ away) > 0 and float(late @ late) > 0
    slope = float(away @ late / (away @ away)) if varies else np.nan
    return {
        "key": record.key,
        **{name: record.machine.name if name == "machine" else getattr(run, name) for name in FIT_SETTING},
        "column": column,
        "fixed_s": float(times.mean() - slope * largest.mean()),
        "s_per_unit": slope,
        "r2": float((away @ late) ** 2 / ((away @ away) * (late @ late))) if varies else np.nan,
        "steps": len(times),
        "waiting_share": 1 - float(by_step.mean().sum() / largest.sum()),
    }


def fits_frame(records: Iterable[Record], column: str = "positions") -> pd.DataFrame:
    """`fit_steps` of every Record on ragged text that can be counted again, a row each."""
    rows = []
    for record in records:
        if record.status != "ok" or record.run.inputs not in BUCKETED or record.run.traced_steps:
            continue
        try:
            rows.append(fit_steps(record, column))
        except ValueError:  # another corpus than today's: its times stand, its shards are not known
            continue
    return pd.DataFrame(rows)


MEMORY_COLUMNS = ("inputs", "batching", "shuffle", "batch_size", "devices", "seed", "steps", "lag", "r", "band", "ljung_box", "key")


def memory_frame(records: Iterable[Record], lags: int = LAGS) -> pd.DataFrame:
    """Autocorrelation of step time, a row a Record of ragged text and lag (MEMORY_COLUMNS).

    r: of the slowest replica's timed steps; band: half the width that holds 95% of each r without memory; ljung_box: Q over the
    number of lags, about 1 without memory. Records with fewer than five steps a lag are left out.
    """
    rows: list[tuple[Any, ...]] = []
    for record in records:
        run = record.run
        if record.status != "ok" or run.inputs not in BUCKETED or run.traced_steps or run.timed_steps < 5 * lags:
            continue
        times = slowest_steps(record)
        found, total = autocorrelation(times, lags), ljung_box(times, lags)
        fixed = (run.inputs, run.batching, run.shuffle, run.batch_size, run.devices, run.seed, len(times))
        rows += [(*fixed, lag, float(r), band(len(times)), total, record.key) for lag, r in enumerate(found, start=1)]
    return pd.DataFrame(rows, columns=list(MEMORY_COLUMNS))
