"""What batching costs before anything runs: padding, and how unequal the replicas' shards are, counted from the source alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, cast

import pandas as pd

from multigpu.inputs.sentences import TextShape
from multigpu.run import Run
from multigpu.workloads import workloads

MODES = ("own", "shared", "fixed")


class TextSource(Protocol):
    """A source of sentences whose shards can be counted without making them.

    period: steps after which batches repeat, or None. steps_per_epoch: where there is no period.
    """

    @property
    def period(self) -> int | None: ...

    @property
    def steps_per_epoch(self) -> int: ...

    @property
    def fingerprint(self) -> str: ...

    def shapes(self, step: int) -> tuple[TextShape, ...]:
        """What every rank's shard of a step counts."""
        ...


def text_source(run: Run) -> TextSource:
    """The source of a Run.

    Raises:
        ValueError: the Run reads no words, or its input cannot be opened.
    """
    if run.description.unit != "words":
        raise ValueError(f"{run.model!r} reads {run.description.unit}: padding and imbalance are counted for words")
    return cast(TextSource, workloads()[run.workload].inputs[run.inputs](run, run.description))


STEP_COLUMNS = {"step": "int64", "rank": "int64", "words": "int64", "positions": "int64", "width": "int64"}


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
    rows = []
    for step in range(steps or source.period or source.steps_per_epoch):
        for rank, shape in enumerate(source.shapes(step)):
            rows.append((step, rank, shape.units, sum(shape.lookups.values()), max(shape.source_width, shape.target_width)))
    return pd.DataFrame(rows, columns=list(STEP_COLUMNS)).astype(STEP_COLUMNS)


def padding_share(shards: pd.DataFrame) -> float:
    """Positions that hold no word over all positions; a share."""
    return 1 - float(shards["words"].sum() / shards["positions"].sum())


def imbalance(shards: pd.DataFrame, column: str = "words") -> float:
    """Mean over the steps of (the largest shard over the mean shard of the step); a ratio, 1 is equal shares."""
    by_step = shards.groupby("step")[column]
    return float((by_step.max() / by_step.mean()).mean())


def waiting_share(shards: pd.DataFrame, column: str = "positions") -> float:
    """1 - sum of mean shards / sum of largest shards: the share of all replicas' time spent waiting, if a shard's time is in
    proportion to its `column` and every step lasts as long as its largest shard.

    Weighted by time, unlike `imbalance`: a step with a short bucket may be very unequal and yet cost little.
    """
    by_step = shards.groupby("step")[column]
    return 1 - float(by_step.mean().sum() / by_step.max().sum())


def batching_frame(runs: Iterable[Run], steps: int | None = None) -> pd.DataFrame:
    """A row a Run: what its batching costs by counting alone.

    Returns:
        inputs, batching, shuffle, devices, batch_size, steps (counted), words_per_step (all replicas), padding_share, imbalance
        (of words), imbalance_positions, waiting_share (by positions), waiting_share_width (by positions in sequence).
    """
    rows = []
    for run in runs:
        shards = shard_frame(run, steps)
        counted = int(shards["step"].nunique())
        rows.append(
            {name: getattr(run, name) for name in ("inputs", "batching", "shuffle", "devices", "batch_size")}
            | {
                "steps": counted,
                "words_per_step": float(shards["words"].sum() / counted),
                "padding_share": padding_share(shards),
                "imbalance": imbalance(shards),
                "imbalance_positions": imbalance(shards, "positions"),
                "waiting_share": waiting_share(shards),
                "waiting_share_width": waiting_share(shards, "width"),
            }
        )
    return pd.DataFrame(rows)


def runs_by_mode(
    devices: Iterable[int] = range(1, 9), inputs: Iterable[str] = ("lengths_000", "catalogs"), batch_size: int = 128
) -> list[Run]:
    """Document 000's batches in every mode and on every number of devices: to count, not to measure."""
    return [
        Run(workload="nmt", model="nmt000", placement="ddp", devices=count, batch_size=batch_size, inputs=name, batching=mode)  # type: ignore[arg-type]
        for name in inputs
        for mode in MODES
        for count in devices
    ]
