"""The grids of training: what is trained for which question, what matters most first, with its cost. Imports no framework.

They are files of `grids/training/`, written as `grid/from_yaml.py` explains; their points have fields of a TrainingRun and of its Run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic.fields import FieldInfo

from multigpu.grid.entries import having
from multigpu.grid.expand import FOLDER, Kind, expand
from multigpu.measure.machine import gpu_count
from multigpu.run import Run
from multigpu.training.joined import joined_placements, placed, staged_twins, told_apart
from multigpu.training.run import TrainingRun, build_training_run

TRAININGS = FOLDER / "training"
IMAGES = "resnet20"
"""Of CIFAR's size: none of them has a table."""


@dataclass(frozen=True)
class PlannedTraining:
    """One entry. question: what it is for. cost_s: seconds, start-up shared. repeats: with equal fields (seeds are fields)."""

    training: TrainingRun
    question: str
    cost_s: float
    repeats: int = 1
    launch: int = 0


def joined_over() -> int:
    """GPUs that share a joined batch where the batch is the question, or the placement: four, or two on a machine without so many."""
    return 2 if 0 < gpu_count() < 4 else 4


def _build(joined_batch: int | None = None, **fields: Any) -> TrainingRun:
    """joined_batch: of all devices together, in place of each one's. A placement has the processes that it must have, unless told."""
    if joined_batch:
        fields["batch_size"] = joined_batch // fields["devices"]
    return build_training_run(**placed(fields["placement"]) | fields)


KIND = Kind(
    fields={
        **Run.model_fields,
        **{name: field for name, field in TrainingRun.model_fields.items() if name != "run"},
        "joined_batch": FieldInfo(default=None),
    },
    build=_build,
    lists={
        "devices": {"joined_over": lambda _: [joined_over()]},
        "placement": {
            "joined": lambda _: joined_placements(),
            "joined_images": lambda _: told_apart(joined_placements(), IMAGES),
            "joined_words": lambda _: joined_placements(unit="words"),
            "staged_and_twins": lambda _: [name for pair in staged_twins().items() for name in pair],
        },
    },
    conditions={"ddp_on_one": lambda fields, _: fields["devices"] > 1 or fields["placement"] == "ddp"},
)


def read_grid(name: str) -> list[PlannedTraining]:
    """The entries of a file of `grids/training/`, what several train where the last of them stands, as the first says it."""
    found = [
        PlannedTraining(point.built, point.settings.question, point.cost_s, point.settings.repeats)
        for point in expand(TRAININGS / f"{name}.yaml", KIND)
    ]
    return list({entry.training.digest: entry for entry in reversed(found)}.values())[::-1]


def headline() -> list[PlannedTraining]:
    """The headline of `training`: what claims need (rules for the rate, precisions and batches, every seed), one run of all else, every
    placement on as many GPUs as share a batch (`joined_over`), and on one `ddp`, whose step their efficiency is counted from.
    """

    def kept(training: TrainingRun) -> bool:
        claimed = training.schedule != "luong10" and training.run.precision != "tf32"
        return (training.run.seed == 0 or claimed) and (training.run.execution == "captured" or training.run.devices in (1, joined_over()))

    return [entry for entry in read_grid("training") if kept(entry.training)]


GRIDS: dict[str, Callable[[], list[PlannedTraining]]] = {
    **{file.stem: partial(read_grid, file.stem) for file in sorted(TRAININGS.glob("*.yaml"))},
    "training_headline": headline,
}


def default_grid() -> str:
    """The grid that fits this machine."""
    return "training" if gpu_count() else "training_cpu"


def restricted(planned: list[PlannedTraining], fields: Mapping[str, object]) -> list[PlannedTraining]:
    """The entries that have these values in the fields of their TrainingRun or its Run.

    Raises:
        ValueError: none has.
    """

    def value(entry: PlannedTraining, name: str) -> object:
        return getattr(entry.training if name in TrainingRun.model_fields else entry.training.run, name)

    return having(planned, fields, value)


def find_grid(name: str) -> list[PlannedTraining]:
    """The entries of a grid, those that need more GPUs than are here left out.

    Raises:
        ValueError: no such grid; the sentence names those that exist.
    """
    if name not in GRIDS:
        raise ValueError(f"unknown grid {name!r}: choose one of {', '.join(GRIDS)}")
    here = gpu_count()
    planned = GRIDS[name]()
    return [entry for entry in planned if entry.training.run.device_type == "cpu" or not here or entry.training.run.devices <= here]
