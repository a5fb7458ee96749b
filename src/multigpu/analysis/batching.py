"""What batching costs before anything runs: padding, and how unequal the replicas' shards are, counted from the source alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

import pandas as pd

from multigpu.run import Batching, Run
from multigpu.workloads import workloads

STEP_COLUMNS = {"step": "int64", "rank": "int64", "words": "int64", "positions": "int64", "width": "int64"}


def text_source(run: Run) -> Any:
    """The source of a Run, whose shards can be counted without making them: `shapes(step)` says what every rank's shard counts.

    Raises:
        ValueError: the Run reads no words, or its input cannot be opened.
    """
    if run.description.unit != "words":
        raise ValueError(f"{run.model!r} reads {run.description.unit}: padding and imbalance are counted for words")
    return workloads()[run.workload].inputs[run.inputs](run, run.description)


def shard_frame(run: Run, steps: int | None = None) -> pd.DataFrame:
    """What each shard of each step counts, a row a step and rank.

    Args:
        steps: how many; one period, or one epoch of a corpus, unless given.

    Returns:
        step, rank; words: without padding, as document 000 counts them; positions: with padding, of both sides (target: and EOS);
        width: positions of the longer side, which is how often a recurrent layer has to wait for the one before.

    Raises:
        ValueError: as `text_source`.
    """
    source = text_source(run)
    rows = [
        (step, rank, shape.units, sum(shape.lookups.values()), max(shape.source_width, shape.target_width))
        for step in range(steps or source.period or source.steps_per_epoch)
        for rank, shape in enumerate(source.shapes(step))
    ]
    return pd.DataFrame(rows, columns=list(STEP_COLUMNS)).astype(STEP_COLUMNS)


def shard_costs(shards: pd.DataFrame) -> dict[str, float]:
    """What the batching of `shard_frame`'s rows costs.

    Returns:
        steps (counted), words_per_step (all replicas), padding_share (positions that hold no word over all); imbalance: mean over the
        steps of the largest shard's words over the mean shard's, 1 for equal shares. waiting_share: the share of all replicas' time
        spent waiting if a shard's time is in proportion to its positions and every step lasts as long as its largest shard; weighted by
        time, so that an unequal step of a short bucket costs little. waiting_share_width: so too, by positions in sequence.
    """
    by_step = shards.groupby("step")
    most, mean = by_step.max(), by_step.mean()
    waiting = 1 - mean.sum() / most.sum()
    return {
        "steps": len(mean),
        "words_per_step": float(shards["words"].sum() / len(mean)),
        "padding_share": 1 - float(shards["words"].sum() / shards["positions"].sum()),
        "imbalance": float((most["words"] / mean["words"]).mean()),
        "waiting_share": float(waiting["positions"]),
        "waiting_share_width": float(waiting["width"]),
    }


def batching_frame(runs: Iterable[Run], steps: int | None = None) -> pd.DataFrame:
    """A row a Run: inputs, batching, shuffle, devices, batch_size, and what its batching costs by counting alone (`shard_costs`)."""
    names = ("inputs", "batching", "shuffle", "devices", "batch_size")
    return pd.DataFrame([{name: getattr(run, name) for name in names} | shard_costs(shard_frame(run, steps)) for run in runs])


def runs_by_mode(devices: Iterable[int], inputs: Iterable[str], batch_size: int = 128) -> list[Run]:
    """Document 000's batches in every mode and on every number of devices: to count, not to measure."""
    return [
        Run(workload="nmt", model="nmt000", placement="ddp", devices=count, batch_size=batch_size, inputs=name, batching=mode)
        for name in inputs
        for mode in get_args(Batching)
        for count in devices
    ]
