"""The grids of training (`grids/training/`): what is trained for which question, what matters most
first. Imports no framework.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pydantic.fields import FieldInfo

from multigpu.grids import find_grid
from multigpu.grids.expand import Kind, expand
from multigpu.grids.planned import Planned, having
from multigpu.machine.machine import gpu_count
from multigpu.placements import find_placement, placements
from multigpu.workloads import find_model
from multigpu_study.grids import FOLDER
from multigpu_study.training.build import build_training_run
from multigpu_study.training.experiment import TrainingItem
from multigpu_study.training.run import FIELDS, TrainingRun

NAMING = {"name", "title", "source", "summary", "engines", "look", "refusals"}
"""Of a row, what says nothing about where parts live."""
TABLES = {"embeddings", "lookup"}
"""And what says where tables do, which image models have none of."""


def joined_placements(unit: str = "images") -> list[str]:
    """Placements in PyTorch whose curves are compared with `ddp`'s: `ddp` first, those that should
    follow it, and independent replicas.
    unit: of the model: a loss over all replicas' predictions needs one prediction an image.
    """
    found = [
        name
        for name, row in placements().items()
        if (row.semantics.facts.is_equal_training or not row.semantics.facts.is_one_model)
        and row.compute == "replica"
        and (row.loss == "replica" or unit == "images")
        and any(e.framework == "torch" and "eager" in e.executions for e in row.engines)
    ]
    return sorted(found, key=lambda name: (name != "ddp", name == "independent", name))


def placed(name: str) -> dict[str, str]:
    """Fields of a PyTorch Run: a process a device, or one for all where that is its only shape."""
    shapes = {
        engine.processes for engine in find_placement(name).engines if engine.framework == "torch"
    }
    return (
        {"placement": name} if "per_device" in shapes else {"placement": name, "processes": "one"}
    )


def told_apart(names: list[str], model: str) -> list[str]:
    """Without those that differ from a later one in nothing but where tables live, if the image
    model has none (exp3 is exp4).
    """
    if any(variable.kind == "embedding" for variable in find_model("cnn", model).variables):
        return names
    rows = {name: find_placement(name).model_dump_json(exclude=NAMING | TABLES) for name in names}
    last = {row: name for name, row in rows.items()}
    return [name for name in names if last[rows[name]] == name]


def staged_twins() -> dict[str, str]:
    """Staged placement -> the joined one that differs from it in nothing else but tables."""
    left_out = NAMING | TABLES | {"staged", "semantics"}
    rows = {name: row.model_dump_json(exclude=left_out) for name, row in placements().items()}
    staged = sorted(name for name, row in placements().items() if row.staged)
    return {
        name: next(other for other in joined_placements() if rows[other] == rows[name])
        for name in staged
    }


TRAININGS = FOLDER / "training"


class PlannedTraining(Planned[TrainingRun]):
    """A training, with its seconds with start-up shared. Each is trained once, as seeds are
    fields.
    """

    def trial(self, repeat: int = 0, launch: int = 0) -> TrainingItem:
        return TrainingItem.of(self.run, timeout_s=max(600.0, 20 * self.cost_s))


def joined_over() -> int:
    """GPUs that share a global batch: four, or two on a machine without so many."""
    return 2 if 0 < gpu_count() < 4 else 4


def _build(global_batch: int | None = None, **fields: Any) -> TrainingRun:
    """global_batch: of all devices together, in place of each one's. A placement has the processes
    that it must have, unless told.
    """
    if global_batch:
        fields["batch_size"] = global_batch // fields["devices"]
    return build_training_run(**placed(fields["placement"]) | fields)


KIND = Kind(
    fields=FIELDS | {"global_batch": FieldInfo(default=None)},
    build=_build,
    lists={
        "devices": {"joined_over": lambda _: [joined_over()]},
        "placement": {
            "joined": lambda _: joined_placements(),
            "joined_images": lambda _: told_apart(joined_placements(), "resnet20"),
            "joined_words": lambda _: joined_placements(unit="words"),
            "staged_and_twins": lambda _: [
                name for pair in staged_twins().items() for name in pair
            ],
        },
    },
    conditions={
        "ddp_on_one": lambda fields, _: fields["devices"] > 1 or fields["placement"] == "ddp"
    },
    planned=PlannedTraining,
)


def read_grid(name: str) -> list[PlannedTraining]:
    """The entries of a file of `grids/training/`; what several train stands where the last of them
    does, as the first says it.
    """
    found: list[Any] = [*expand(TRAININGS / f"{name}.yaml", KIND)][::-1]
    return [*{entry.run.digest: entry for entry in found}.values()][::-1]


def headline() -> list[PlannedTraining]:
    """Select for claims from `training` (rules for the rate, precisions, batches, every seed), one
    run of all else, and every placement on as many GPUs as share a batch, with `ddp` on one, whose
    step efficiency is counted from.
    """

    def kept(training: TrainingRun) -> bool:
        claimed = training.schedule != "luong10" and training.run.precision != "tf32"
        return (training.run.seed == 0 or claimed) and (
            training.run.execution == "captured" or training.run.devices in (1, joined_over())
        )

    return [entry for entry in read_grid("training") if kept(entry.run)]


GRIDS: dict[str, Callable[[], list[PlannedTraining]]] = {
    **{file.stem: partial(read_grid, file.stem) for file in sorted(TRAININGS.glob("*.yaml"))},
    "training_headline": headline,
}


def restricted(
    planned: list[PlannedTraining], fields: Mapping[str, object]
) -> list[PlannedTraining]:
    """The entries that have these values in the fields of their TrainingRun or its Run; a
    ValueError if none has.
    """
    own = TrainingRun.model_fields
    return having(
        planned,
        fields,
        lambda entry, name: getattr(entry.run if name in own else entry.run.run, name),
    )


def possible_here(name: str) -> list[PlannedTraining]:
    """The entries of a grid that this machine's GPUs allow; a ValueError that names all if there is
    no such grid.
    """
    here = gpu_count()
    return [
        entry
        for entry in find_grid(name, grids=GRIDS)
        if entry.run.run.device_type == "cpu" or not here or entry.run.run.devices <= here
    ]
