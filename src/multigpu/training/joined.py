"""Which placements train one model to the end of a budget, with how many processes, and which of them a step late. Imports no framework."""

from __future__ import annotations

from multigpu.placements import find_placement, placements
from multigpu.workloads import find_model

NAMING = {"name", "title", "source", "summary", "engines", "look", "refusals"}
"""Of a row, what says nothing about where parts live."""
TABLES = {"embeddings", "lookup", "travels"}
"""And what says where tables do, which image models have none of."""


def joined_placements(execution: str = "eager", unit: str = "images") -> list[str]:
    """Placements in PyTorch whose curves are compared with `ddp`'s, in this form of execution: those that should follow it, `ddp` first,
    and independent replicas, which need not.

    unit: of the model: a loss over all replicas' predictions needs one prediction an image.
    """
    found = [
        name
        for name, row in placements().items()
        if (row.semantics.is_equal_training or not row.semantics.is_one_model)
        and row.compute == "replica"
        and (row.loss == "replica" or unit == "images")
        and any(e.framework == "torch" and execution in e.executions for e in row.engines)
    ]
    return sorted(found, key=lambda name: (name != "ddp", name == "independent", name))


def placed(name: str) -> dict[str, str]:
    """Fields of a Run under this placement in PyTorch: a process a device, or one for all of them where it has no other shape."""
    shapes = {engine.processes for engine in find_placement(name).engines if engine.framework == "torch"}
    return {"placement": name} if "per_device" in shapes else {"placement": name, "processes": "one"}


def told_apart(names: list[str], model: str) -> list[str]:
    """Without the placements of image models that differ from a later one in nothing but where tables live, if the model has none: a CNN
    under `exp3` is one under `exp4`.
    """
    if any(variable.kind == "embedding" for variable in find_model("cnn", model).variables):
        return names
    rows = {name: find_placement(name).model_dump_json(exclude=NAMING | TABLES) for name in names}
    last = {row: name for name, row in rows.items()}
    return [name for name in names if last[rows[name]] == name]


def staged_twins() -> dict[str, str]:
    """Every placement that computes with variables one step old -> the joined one that differs from it in nothing else, for a model
    without tables: what staging does to training is the difference of their curves.
    """
    left_out = NAMING | TABLES | {"staged", "semantics"}
    rows = {name: row.model_dump_json(exclude=left_out) for name, row in placements().items()}
    staged = sorted(name for name, row in placements().items() if row.staged)
    return {name: next(other for other in joined_placements() if rows[other] == rows[name]) for name in staged}
