"""The replicas of one TrainingRun that one process works on: its own, or all of them where one thread dispatches for all devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from multigpu.engines.torch import told
from multigpu.engines.torch.captured import CapturedTrainer
from multigpu.engines.torch.devices import Device, Devices
from multigpu.engines.torch.trainer import Context, Trainer, open_context
from multigpu.engines.torch.wire import barrier
from multigpu.inputs.batch import Source
from multigpu.run import Run


class Tower:
    """One replica of a trainer, which may have several in this process: what it holds, and what updates that."""

    def __init__(self, trainer: Trainer, rank: int) -> None:
        self.trainer = trainer.trainer if isinstance(trainer, CapturedTrainer) else trainer
        self.rank, self.replicas = rank, trainer.replicas
        self.device, self.module = trainer.devices.of(rank), trainer.modules[rank]

    @property
    def replicated(self) -> bool:
        """Whether every replica keeps copies of all variables that must be equal."""
        row = self.trainer.context.placement
        return row.variables == "replica" and row.semantics.replicas_agree and self.replicas > 1

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Those that update what this replica answers for, in one order."""
        return self.trainer.optimizers_of(self.rank)

    def owned(self) -> Iterator[tuple[str, Tensor]]:
        """As `Trainer.owned`."""
        return self.trainer.owned(self.rank)

    def full_values(self) -> dict[str, Tensor]:
        """All variables on the CPU: this replica's copies, or the masters wherever they are."""
        return self.trainer.full_values(self.rank)


def replicas_of(trainer: Trainer) -> list[Tower]:
    """The replicas that a trainer has in this process, by rank."""
    return [Tower(trainer, rank) for rank in trainer.ranks]


@dataclass(frozen=True)
class Process:
    """One process of a TrainingRun, and what it tells the others.

    processes: of the Run. ranks: of the replicas in this one; `devices` are theirs, in this order, and `fed` those on which their shards
    lie. clock: what times a window of steps.
    """

    processes: int
    ranks: list[int]
    devices: list[Device]
    fed: list[Device]
    clock: Device | Devices
    context: Context

    def meet(self) -> None:
        """Wait for the other processes."""
        if self.processes > 1:
            barrier()

    def everyone(self, values: list[Any]) -> list[Any]:
        """Every replica's value, by rank, from those of this process's own."""
        if self.processes == 1:
            return values
        return [value for part in told.everyone(values) for value in part]

    def to_first(self, values: list[Any]) -> list[Any] | None:
        """As `everyone`, in the first process; None in the others."""
        if self.processes == 1:
            return values
        found = told.to_first(values)
        return [value for part in found for value in part] if found is not None else None

    def from_first(self, value: Any) -> Any:
        """The first process's value, in all of them."""
        return told.from_first(value) if self.processes > 1 else value


def open_process(run: Run, rank: int, threads: int, source: Source, shared: Path, timeout_s: float) -> Process:
    """The devices of this process and the context of its trainer.

    Args:
        rank: of this process (0 where it has all devices). threads: of the host, for it.
    """
    context = open_context(run, rank, threads, source.capacity, shared, timeout_s)
    devices, each = context.devices, context.devices.each
    if run.processes != "one":
        return Process(run.devices, [rank], each, each, context.device, context)
    # a joined batch that is sliced lies on the first device
    fed = [context.device] * run.devices if context.placement.loss == "gpu0" else each
    return Process(1, devices.ranks, each, fed, devices, context)
