"""What batching costs before anything runs: padding, and how unequal the replicas' shards are, counted from the source alone."""

from collections.abc import Iterable
from typing import Any, get_args

import pandas as pd

from multigpu.run import Batching, Run, build_run
from multigpu.workloads import open_source


def text_source(run: Run) -> Any:
    """The source of a Run, whose shards can be counted without making them: `shapes(step)` says what every rank's shard counts.

    Raises:
        ValueError: the Run reads no words, or its input cannot be opened.
    """
    if run.description.unit != "words":
        raise ValueError(f"{run.model!r} reads {run.description.unit}: padding and imbalance are counted for words")
    return open_source(run)


def shard_frame(run: Run, steps: int | None = None) -> pd.DataFrame:
    """What each shard of each step counts, a row a step and rank.

    Args:
        steps: how many; one period, or one epoch of a corpus, unless given.

    Returns:
        step, rank; words: without padding, as document 000 counts them; positions: with padding, of both sides (target: and EOS).

    Raises:
        ValueError: as `text_source`.
    """
    source = text_source(run)
    rows = [
        (step, rank, shape.units, sum(shape.lookups.values()))
        for step in range(steps or source.period or source.steps_per_epoch)
        for rank, shape in enumerate(source.shapes(step))
    ]
    return pd.DataFrame(rows, columns=["step", "rank", "words", "positions"])


def shard_costs(shards: pd.DataFrame) -> dict[str, float]:
    """What the batching of `shard_frame`'s rows costs.

    Returns:
        words_per_step (all replicas), padding_share (positions that hold no word over all); imbalance: mean over the steps of the largest
        shard's words over the mean shard's, 1 for equal shares. waiting_share: the share of all replicas' time spent waiting if a
        shard's time is in proportion to its positions and every step lasts as long as its largest shard; weighted by time, so that an
        unequal step of a short bucket costs little.
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
    """Document 000's batches in every mode on each number of devices: batching, devices and `shard_costs`."""
    job = {"workload": "nmt", "model": "nmt000", "placement": "ddp", "batch_size": 128, "inputs": "lengths_000"}
    settings = [{"batching": mode, "devices": count} for mode in get_args(Batching) for count in devices]
    return pd.DataFrame([setting | shard_costs(shard_frame(build_run(**job, **setting))) for setting in settings])
