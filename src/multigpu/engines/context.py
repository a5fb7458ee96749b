"""What follows from a Run alone, for the trainers of every engine."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

from multigpu.placements import find_placement
from multigpu.placements.row import Placement
from multigpu.placements.traffic import Assigned, assign
from multigpu.run import Run
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
