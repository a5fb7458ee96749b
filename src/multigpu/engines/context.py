"""What the engines of all frameworks have in common: what follows from a Run alone, its stages, and how a user's model is compared.

Imports no framework.
"""

import importlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from multigpu.placements import find_placement
from multigpu.placements.row import Placement
from multigpu.placements.traffic import Assigned, assign
from multigpu.record import Equivalence
from multigpu.run import Run
from multigpu.stages.check import graph_of, places_of
from multigpu.workloads import part_of, workloads
from multigpu.workloads.base import Model, Optimizer


@dataclass(frozen=True)
class RunContext:
    """A trainer's Run, its model, placement and rule. Engines add their devices.

    closing: what must be given back when the Run ends, however far its building came.
    """

    run: Run
    closing: ExitStack = field(default_factory=ExitStack, kw_only=True, compare=False)

    @property
    def replicas(self) -> int:
        return self.run.devices

    @property
    def model(self) -> Model:
        return self.run.description

    @property
    def placement(self) -> Placement:
        return find_placement(self.run.placement)

    @property
    def assigned(self) -> list[Assigned]:
        return assign(self.placement, self.model.variables, self.replicas)

    @property
    def rule(self) -> Optimizer:
        """The Run's update rule: the workload's own, or a plain one by name."""
        return self.run.rule

    @property
    def captured(self) -> bool:
        """Whether the step will be one CUDA graph."""
        return "captured" in self.run.execution


def functions_of(run: Run) -> dict[str, Any]:
    """Stage -> what it computes, of the Run's model."""
    return importlib.import_module(part_of(run.workload, run.framework)).stage_functions(run.description)


def stage_arrays(run: Run) -> tuple[Any, dict[str, int]]:
    """What makes a batch's arrays for the stages of the Run's model, and array -> the device of the stage that reads it."""
    staged, graph, places = workloads()[run.workload].stages, graph_of(run), places_of(run)
    assert staged
    return staged.arrays, {array: places[stage.name] for stage in graph.stages for array in stage.arrays}


class OneShard:
    """A session of one shard a step, however many devices work on it: units and the loss are counted once, with the first device's part."""

    def shards(self, index: int) -> list[Any]:
        shards: list[Any] = super().shards(index)  # type: ignore[misc]
        own: Any = self
        counted = own.batches[index][0]
        own.batches[index] = [counted, *(replace(counted, units=0, padded_units=0) for _ in own.devices.ranks[1:])]
        return shards


STEPS = 3
SAMPLES = 4
"""Of a shard of the compared steps, where the model takes batches of any size."""

TOLERANCE = {("fp64", "sgd"): 1e-8, ("fp64", "adam"): 1e-5, ("fp32", "sgd"): 1e-3, ("fp32", "adam"): 5e-2}
"""How far variables may be from the reference's, over how far the reference moved, by precision and rule. Sums of another order differ in
the last bits, which a deep model multiplies from step to step, and Adam where a gradient is next to nothing.
"""


_known: dict[Run, Equivalence | None] = {}


def told_once(run: Run, compare: Callable[[], Equivalence | None]) -> dict[str, Any]:
    """What a Run's comparison found, as parts of a Record say it. A process compares a Run once: repeats would only say it again."""
    if run not in _known:
        _known[run] = compare()
    found = _known[run]
    return {"equivalence": found.model_dump() if found else None}


def compared(run: Run, precision: str, any_rows: bool) -> Run:
    """The Run whose steps are compared: as `run`, in a precision that shows what is computed, on few samples."""
    size = min(run.batch_size, SAMPLES) if any_rows else run.batch_size
    form = "eager" if run.framework == "torch" else run.execution
    return run.model_copy(update={"precision": precision, "batch_size": size, "execution": form})


def tolerance_of(run: Run, precision: str) -> float:
    """How far variables may be apart when the Run was compared in this precision."""
    return max(run.semantics.tolerance, TOLERANCE[precision, "sgd" if run.rule.name == "sgd" else "adam"])
