"""Collect the curves of a training run: kept on every rank, saved with each checkpoint, and made
into a Record at the end.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, TypedDict

from pydantic import ConfigDict

from multigpu.engines.common.numbers import VariableNumbers
from multigpu.engines.common.session import distances_moved, joined_losses, parameter_change
from multigpu.engines.common.timing import training_fault
from multigpu.placements import find_placement
from multigpu.spec.errors import DidNotTrain
from multigpu.spec.schema import Data
from multigpu_study.training.record import EpochAudit, Evaluation, TrainingMeasurement
from multigpu_study.training.run import TrainingRun
from multigpu_study.training.schedule import global_batch


class SegmentNumbers(TypedDict):
    """All that one replica tells of some steps.

    steps, losses: of each. rates: that its optimizer took. read: items of each step's shard. files:
        that its process wrote until now.
    """

    losses: list[float]
    steps: list[float]
    wall_s: float
    rates: list[float]
    units: int
    checksum: list[int]
    read: list[list[int]]
    files: list[str]
    evaluations: int


class TrainedNumbers(VariableNumbers):
    """All that one replica tells at the end.

    history: of rank 0 alone, as JSON. fault: a duty that was not done.
    """

    fault: str | None
    history: str | None
    steps: int
    per_epoch: int | None
    agree: bool | None
    end_hash: str
    evaluations: int
    files: list[str]
    peak_memory_gib: float
    energy_j: float | None
    state: Any
    threads: int
    startup_s: float
    build_s: float


class History(Data):
    """Per step: joined loss, seconds since the first, rate. diverged: why it cannot go on."""

    model_config = ConfigDict(frozen=False)

    loss: list[float] = []
    seconds: list[float] = []
    rate: list[float] = []
    train_s: float = 0.0
    evaluation_s: float = 0.0
    checkpoint_s: float = 0.0
    units: int = 0
    start_hashes: list[str] = []
    resumed_at: list[int] = []
    scored: list[Evaluation] = []
    audits: list[EpochAudit] = []
    diverged: str = ""

    def add(self, training: TrainingRun, parts: Sequence[SegmentNumbers], stop: int) -> None:
        losses = joined_losses(training.run, parts)
        slowest = max(parts, key=lambda part: part["wall_s"])
        self.loss += losses
        self.seconds += [self.train_s + passed for passed in accumulate(slowest["steps"])]
        self.train_s += slowest["wall_s"]
        self.rate += next(
            (part["rates"] for part in parts if part["rates"]), [math.nan] * len(losses)
        )
        self.units += sum(part["units"] for part in parts)
        bad = next((index for index, loss in enumerate(losses) if not math.isfinite(loss)), None)
        if bad is not None:
            self.diverged = (
                f"diverged: the loss of step {stop - len(losses) + bad} is {losses[bad]}"
            )

    def points(self, every: int) -> tuple[list[float], list[float], list[float]]:
        """Loss, seconds and rate of each `every` steps."""
        parts = [slice(start, start + every) for start in range(0, len(self.loss), every)]
        loss = [sum(self.loss[part]) / len(self.loss[part]) for part in parts]
        return (
            loss,
            [self.seconds[part][-1] for part in parts],
            [self.rate[part][-1] for part in parts],
        )


def figures(value: Any, digits: int = 7) -> Any:
    """A number, or those of a list, with so many significant digits."""
    if isinstance(value, list):
        return [figures(each, digits) for each in value]
    return float(f"{value:.{digits}g}")


def _figures_of(each: Evaluation) -> dict[str, Any]:
    return {
        "seconds": figures(each.seconds, 6),
        "scores": {name: figures(value) for name, value in each.scores.items()},
    }


def measurement(
    training: TrainingRun, parts: Sequence[TrainedNumbers], total_s: float
) -> TrainingMeasurement:
    """The Record's measurement; DidNotTrain: why a duty was not done, or steps trained nothing."""
    if fault := next((part["fault"] for part in parts if part["fault"]), None):
        raise DidNotTrain(fault)
    first, history = parts[0], History.model_validate_json(parts[0]["history"] or "")
    agree = first["agree"]
    if not history.diverged and (
        fault := training_fault(history.loss, distances_moved(training.run, parts), agree)
    ):
        raise DidNotTrain(fault)
    copies = find_placement(training.run.placement).variables == "replica"
    loss, seconds, rate = history.points(training.log_every)
    return TrainingMeasurement(
        steps=first["steps"],
        samples=first["steps"] * global_batch(training),
        units=history.units,
        steps_per_epoch=first["per_epoch"],
        loss=figures(loss),
        seconds=figures(seconds, 6),
        rate=figures(rate),
        evaluations=[each.model_copy(update=_figures_of(each)) for each in history.scored],
        start_hashes=history.start_hashes,
        end_hashes=[part["end_hash"] for part in (parts if copies else parts[:1])],
        replicas_agree=agree,
        parameter_change=figures(parameter_change(training.run, parts)),
        epochs=history.audits,
        evaluations_by_rank=[part["evaluations"] for part in parts],
        files_by_rank=[sorted(part["files"]) for part in parts],
        resumed_at=history.resumed_at,
        **{
            name: figures(getattr(history, name), 6)
            for name in ("train_s", "evaluation_s", "checkpoint_s")
        },
        startup_s=round(max(part["startup_s"] for part in parts), 3),
        build_s=figures(max(part["build_s"] for part in parts), 5),
        total_s=figures(total_s, 6),
        host_threads=first["threads"],
        peak_memory_gib=[round(part["peak_memory_gib"], 4) for part in parts],
        energy_j=[round(part["energy_j"], 1) for part in parts if part["energy_j"] is not None],
        device_states=[part["state"] for part in parts if part["state"]],
        flags=[history.diverged] if history.diverged else [],
    )
