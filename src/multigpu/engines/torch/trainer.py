"""What every placement's step has in common: a module in memory of the placement's choosing, and its gradients."""

from __future__ import annotations

import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from multigpu.engines.context import RunContext
from multigpu.engines.torch.devices import Device, Devices, all_devices
from multigpu.engines.torch.dispatch import wire as dispatch
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.wire import Wire
from multigpu.kernels import batch_norm, lstm_launch
from multigpu.placements.partition import bounds
from multigpu.run import Run


@dataclass(frozen=True)
class Context(RunContext):
    """All that a trainer may know of its Run.

    devices: of the replicas in this process: of one, or of all where one process dispatches for all.
    wire: what moves data between these, the host and other processes' (`Wire`, or that of `dispatch`).
    capacity: embedding variable -> the most rows that one shard looks up.
    shared: a folder of memory-backed files, the same for all replicas of this Run.
    timeout_s: how long one process waits for another on the host.
    """

    devices: Devices
    wire: Any
    capacity: dict[str, int]
    shared: Path
    timeout_s: float

    @property
    def device(self) -> Device:
        """This process's first."""
        return self.devices.each[0]

    @property
    def rank(self) -> int:
        """Of this process's first replica."""
        return self.devices.ranks[0]


def open_context(run: Run, rank: int, threads: int, capacity: dict[str, int], shared: Path, timeout_s: float) -> Context:
    """What a trainer of replica `rank` may know, or one of all replicas where one process dispatches for all.

    threads: of the host, for this process.
    """
    if run.processes == "one":
        devices = all_devices(run, threads)
        return Context(run, devices, dispatch.Wire(devices), capacity, shared, timeout_s)
    return Context(run, Devices([Device(run, rank, threads)]), Wire(rank, run.devices), capacity, shared, timeout_s)


class StepModule(Protocol):
    """What every workload's module offers beside being one."""

    def lookups(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Embedding variable -> ids of the rows that this batch looks up."""
        ...

    def compile_parts(self) -> None:
        """Have the library compile the parts of the model for which it can (at their first call)."""
        ...


def build_module(run: Run) -> nn.Module:
    """The Run's model on the meta device: shapes and layouts, no memory.

    Called with a batch (and rows looked up elsewhere), it returns the sum of the shard's loss; `StepModule` says the rest. The workload's
    `build(model, ...)` names the fields of the Run that it obeys.
    """
    build = importlib.import_module(f"multigpu.workloads.{run.workload}.torch").build
    _, *fields = inspect.signature(build).parameters
    with torch.device("meta"):
        return build(run.description, **{field: getattr(run, field) for field in fields})


def substituted(run: Run, device: torch.device) -> str | None:
    """What of the Run something else than it asked for computed on this device, and why; None where nothing did."""
    if run.recurrence == "persistent":
        name, reason = "recurrence 'persistent'", lstm_launch.library_instead(device)
    elif run.batch_norm == "fused":
        name, reason = "batch_norm 'fused'", batch_norm.library_instead(device)
    else:
        return None
    return None if reason is None else f"{name} was left to the library: {reason}"


def total_of(losses: list[Tensor]) -> Tensor:
    """What the losses of a shard's parts add up to, for whoever reads it."""
    return losses[0].detach() if len(losses) == 1 else torch.stack([loss.detach() for loss in losses]).sum()


class AnyTrainer(ABC):
    """What a trainer of one replica and one of all replicas of a process have in common."""

    context: Any
    wire: Any

    @abstractmethod
    def step(self, shards: Any) -> Any:
        """Forward, backward, merge and update on the shard of every replica in question; each one's share of the loss."""

    def counted_step(self, shards: Any) -> tuple[Any, dict[str, int]]:
        """A step, and the bytes whose movement this process started in it, by kind."""
        self.wire.counts.clear()
        losses = self.step(shards)
        return losses, dict(self.wire.counts)

    def skipped_steps(self) -> int | None:
        """Steps so far whose update was left out because a gradient overflowed; None: none can be."""
        return None

    def piece(self, name: str, value: Tensor) -> Tensor:
        """What of a whole variable `owned` tells: all of it, unless the placement cuts variables."""
        return value

    def close(self) -> None:
        """Give back what outlives Python's own memory."""
        self.context.closing.close()


class Trainer(AnyTrainer):
    """One replica's side of a placement.

    `step` trains on one shard and returns its share of the joined batch's mean loss (0-dim, on the device; shares of
    all replicas add up to the mean). It may return before the device has finished.

    takes_terms: whether it divides the loss by a shard's `terms` where that has them.
    """

    takes_terms = False

    def __init__(self, context: Context) -> None:
        self.context = context
        self.device, self.wire, self.rank, self.replicas = context.device, context.wire, context.rank, context.replicas
        self.module = build_module(context.run)
        if "compiled" in context.run.execution:
            cast(StepModule, self.module).compile_parts()

    def lookups(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Embedding variable -> ids of the rows that this batch looks up."""
        return cast(StepModule, self.module).lookups(batch)

    def loss(self, shard: Shard, terms: int | Tensor, rows: dict[str, Tensor] | None = None) -> Tensor:
        """The shard's loss over `terms`, to be differentiated."""
        with self.device.autocast():
            total = self.module(shard.device, rows)
        return total / terms

    def parts(self, shard: Shard, rows: dict[str, Tensor] | None = None) -> list[tuple[Shard, dict[str, Tensor] | None]]:
        """The parts of a shard (and of rows looked up for it) that pass forward and backward one after another: `micro_steps` of them."""
        count = self.context.run.micro_steps
        if count is None:
            return [(shard, rows)]
        size = len(next(iter(shard.device.values())))
        cuts = [slice(*bounds(size, count, index)) for index in range(count)]

        def cut(tensors: dict[str, Tensor], where: slice) -> dict[str, Tensor]:
            return {name: tensor[where] for name, tensor in tensors.items()}

        return [(replace(shard, device=cut(shard.device, own), host=cut(shard.host, own)), rows and cut(rows, own)) for own in cuts]

    @abstractmethod
    def owned(self) -> Iterator[tuple[str, Tensor]]:
        """The current values of which this replica holds the master copy, by variable (every replica: of its own copies)."""

    def full_values(self) -> dict[str, Tensor]:
        """All variables on the CPU, contiguous: for checkpoints and comparisons. Called on every replica.

        Under placements with one master a variable, only rank 0's answer is complete.
        """
        return {name: value.detach().cpu().contiguous().clone() for name, value in self.owned()}
