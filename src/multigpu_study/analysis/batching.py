"""Count shards of text, and what their batching costs."""

from collections.abc import Iterable
from typing import Any, get_args

import pandas as pd

from multigpu.build import build_run
from multigpu.records.record import Record
from multigpu.spec.run import Batching, Run
from multigpu.workloads import description_of
from multigpu.workloads.sources import open_source

_NOTHING_COUNTED = pd.DataFrame(
    {
        "key": pd.Series(dtype="string"),
        "step": pd.Series(dtype="int64"),
        "units": pd.Series(dtype="int64"),
    }
)


def as_published(
    frame: pd.DataFrame,
    steps: pd.DataFrame,
    batches: int = 50,
    counted: pd.DataFrame = _NOTHING_COUNTED,
) -> pd.DataFrame:
    """The rows of `frame` with the units, wall time (s) and rate of their first `batches` steps,
    warm-up included. A Record of fewer steps counts as if it had gone on to `batches` at the pace
    of its timed ones: its warm-up would else weigh more, and Records of different lengths would not
        compare. A step (`frame.step_times`) lasts until its slowest replica has ended it. Rows
        whose steps may differ in units are left out unless `counted` (of `counted_units`) has them:
        Records keep the units of timed steps alone.
    """
    known = frame["inputs"].eq("synthetic") | frame["key"].isin(counted["key"])
    even = frame[frame["status"].eq("ok") & known & frame["key"].isin(steps["key"])].copy()
    first = steps[steps["step"] < batches]
    slowest = first.groupby(["key", "step"])["step_time_s"].max().groupby(level="key")
    wall, count = (
        even["key"].map(found).astype(float) for found in (slowest.sum(), slowest.size())
    )
    steady = even["units"] / even["timed_steps"]
    own = counted[counted["step"] < batches].groupby("key")["units"].sum()
    units = even["key"].map(own).astype(float).fillna(steady * count)
    wall += (batches - count) * even["wall_s"] / even["timed_steps"]
    units += (batches - count) * steady
    return even.assign(units=units, wall_s=wall, units_per_s=units / wall)


def counted_units(records: Iterable[Record]) -> pd.DataFrame:
    """Words of every step of all replicas, from the source as it reads today, of Records whose own
    words these are (key, step, units).
    """
    known: dict[tuple[object, ...], pd.Series] = {}
    found = [_NOTHING_COUNTED]
    for record in records:
        run, measured = record.run, record.measurement
        if measured is None or text_source(run).fingerprint != record.input_fingerprint:
            continue
        made = run.model, run.inputs, run.batching, run.shuffle, run.seed
        taken = run.devices, run.batch_size, run.warmup_steps, run.timed_steps
        batch = (*made, *taken)
        if batch not in known:
            known[batch] = (
                shard_frame(run, run.warmup_steps + run.timed_steps).groupby("step")["words"].sum()
            )
        units = known[batch]
        if int(units[units.index >= run.warmup_steps].sum()) == int(measured.units):
            found.append(
                pd.DataFrame({"key": record.key, "step": units.index, "units": units.to_numpy()})
            )
    return pd.concat(found, ignore_index=True) if len(found) > 1 else _NOTHING_COUNTED


def text_source(run: Run) -> Any:
    """Open a Run's source; `shapes(step)` counts each rank's shard. ValueError: it has no words."""
    if description_of(run).unit != "words":
        raise ValueError(
            f"{run.model!r} reads {description_of(run).unit}: padding and imbalance are counted for"
            " words"
        )
    return open_source(run)


def shard_frame(run: Run, steps: int | None = None) -> pd.DataFrame:
    """Count each shard's contents, a row a step (of one period, or an epoch of a corpus, unless
    given) and rank: step, rank; words, as document 000 counts them; positions: with padding, of
    both sides
        (target: and EOS).
    """
    source = text_source(run)
    rows = [
        (step, rank, shape.units, sum(shape.lookups.values()))
        for step in range(steps or source.period or source.steps_per_epoch)
        for rank, shape in enumerate(source.shapes(step))
    ]
    return pd.DataFrame(rows, columns=["step", "rank", "words", "positions"])


def shard_costs(shards: pd.DataFrame) -> dict[str, float]:
    """Return the costs of the batching of `shard_frame`'s rows: words_per_step (all replicas),
    padding_share (of positions); imbalance: mean over the steps of the largest shard's words over
    the mean shard's. waiting_share: of all replicas' time if a shard's is in proportion to its
    positions and
        every step lasts as long as its largest shard; weighted by time: an unequal step of a short
        bucket costs little.
    """
    by_step = shards.groupby("step")[["words", "positions"]]
    most, mean, total = by_step.max(), by_step.mean(), shards[["words", "positions"]].sum()
    return {
        "words_per_step": float(total["words"] / len(mean)),
        "padding_share": 1 - float(total["words"] / total["positions"]),
        "imbalance": float((most["words"] / mean["words"]).mean()),
        "waiting_share": 1 - float(mean["positions"].sum() / most["positions"].sum()),
    }


def batching_frame(devices: Iterable[int]) -> pd.DataFrame:
    """Document 000's batches by mode and number of devices: batching, devices, `shard_costs`."""
    job = {
        "workload": "nmt",
        "model": "nmt000",
        "placement": "ddp",
        "batch_size": 128,
        "inputs": "lengths_000",
    }
    settings = [
        {"batching": mode, "devices": count} for mode in get_args(Batching) for count in devices
    ]
    return pd.DataFrame(
        [setting | shard_costs(shard_frame(build_run(**job, **setting))) for setting in settings]
    )
