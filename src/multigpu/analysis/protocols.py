"""One set of Records under two protocols: as the 2018 translation study timed, and with the warm-up left out.

The study trained 50 batches, from the first one on, and divided all words by all time. The same sums over our Records' own steps,
warm-up included, say how much of a figure is the protocol.
"""

from collections.abc import Iterable

import pandas as pd

from multigpu.analysis.batching import shard_frame, text_source
from multigpu.record import Record

BATCHES = 50
"""Batches that the study timed."""

_NOTHING_COUNTED = pd.DataFrame({"key": pd.Series(dtype="string"), "step": pd.Series(dtype="int64"), "units": pd.Series(dtype="int64")})


def as_published(
    frame: pd.DataFrame, steps: pd.DataFrame, batches: int = BATCHES, counted: pd.DataFrame = _NOTHING_COUNTED
) -> pd.DataFrame:
    """The rows of `frame` with the units, wall time (s) and rate of their first `batches` steps, warm-up included.

    A Record of fewer steps counts as if it had gone on to `batches` at the pace of its timed ones: its warm-up would else weigh more than
    in the study's 50 batches, and Records of different lengths would not compare.

    Args:
        frame: a row a Record, of `frame.frame_of`; rows whose steps may differ in units (lengths of their own) are left out unless
            `counted` has them, since Records keep the units of the timed steps alone.
        steps: of `frame.step_times`. A step lasts until its slowest replica has ended it.
        counted: of `counted_units`: units of every step of Records on sentences of different lengths.
    """
    known = frame["inputs"].eq("synthetic") | frame["key"].isin(counted["key"])
    even = frame[frame["status"].eq("ok") & known & frame["key"].isin(steps["key"])].copy()
    first = steps[steps["step"] < batches]
    slowest = first.groupby(["key", "step"])["step_time_s"].max().groupby(level="key")
    wall, count = (even["key"].map(found).astype(float) for found in (slowest.sum(), slowest.size()))
    steady = even["units"] / even["timed_steps"]
    own = counted[counted["step"] < batches].groupby("key")["units"].sum()
    units = even["key"].map(own).astype(float).fillna(steady * count)
    wall += (batches - count) * even["wall_s"] / even["timed_steps"]
    units += (batches - count) * steady
    return even.assign(units=units, wall_s=wall, units_per_s=units / wall)


def counted_units(records: Iterable[Record]) -> pd.DataFrame:
    """Words of every step, warm-up included, of all replicas: a row a measured Record and step (key, step, units).

    They are counted from the source as it reads today. A Record whose input was another, or whose own words over the timed steps are
    not what is counted, is left out.
    """
    known: dict[tuple[object, ...], pd.Series] = {}
    found = [_NOTHING_COUNTED]
    for record in records:
        run, measured = record.run, record.measurement
        if measured is None or text_source(run).fingerprint != record.input_fingerprint:
            continue
        batch = (run.model, run.inputs, run.batching, run.shuffle, run.seed, run.devices, run.batch_size, run.warmup_steps, run.timed_steps)
        if batch not in known:
            known[batch] = shard_frame(run, run.warmup_steps + run.timed_steps).groupby("step")["words"].sum()
        units = known[batch]
        if int(units[units.index >= run.warmup_steps].sum()) == int(measured.units):
            found.append(pd.DataFrame({"key": record.key, "step": units.index, "units": units.to_numpy()}))
    return pd.concat(found, ignore_index=True) if len(found) > 1 else _NOTHING_COUNTED
