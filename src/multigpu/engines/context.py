"""What the engines of all frameworks have in common: what follows from a Run alone, its stages, and shards that stages share."""

from __future__ import annotations

import importlib
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from multigpu.placements import find_placement
from multigpu.placements.row import Placement
from multigpu.placements.traffic import Assigned, assign
from multigpu.run import Run
from multigpu.stages.check import graph_of, places_of
from multigpu.workloads import workloads
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
    return importlib.import_module(f"multigpu.workloads.{run.workload}.{run.framework}").stage_functions(run.description)


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
