"""A Run with all that judges it handed in."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from multigpu.spec.model import Model
from multigpu.spec.parallel import ParallelDims, shard_sizes
from multigpu.spec.row import Row
from multigpu.spec.run import Run


@dataclass(frozen=True)
class Stages:
    """A placement that puts the stages of one model on devices.

    at_most: devices that it uses. by_digits: whether the Run's `stage_devices` says where.
    places: the device of every stage; None where the workload declares no stages.
    staged_workloads: names of those that do.
    """

    at_most: int
    by_digits: bool
    places: Callable[[], Mapping[str, int]] | None
    staged_workloads: Callable[[], Sequence[str]]


@dataclass(frozen=True)
class Case:
    """A Run, its placement's row and its model's description, and what may be chosen instead.

    frameworks, inputs: names of those that the workload has. stages: None of a placement that gives
        every device a replica or a part of each layer.
    """

    run: Run
    row: Row
    model: Model
    frameworks: Sequence[str]
    inputs: Sequence[str]
    stages: Stages | None = None

    @cached_property
    def dims(self) -> ParallelDims:
        return ParallelDims.of(self.run, self.row)

    @cached_property
    def smallest_shard(self) -> int:
        """Rows of the smallest shard of a step."""
        return min(shard_sizes(self.run, self.row))

    @property
    def is_process_a_device(self) -> bool:
        """Whether PyTorch carries the Run out with a process a device."""
        return (self.run.framework, self.run.processes) == ("torch", "per_device")
