"""What all placements share: a module in memory of the placement's choosing."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from multigpu.engines.common.context import RunContext
from multigpu.engines.common.session import Opening
from multigpu.engines.torch.blocks import blocks_of, recompute
from multigpu.engines.torch.devices import Device, Devices
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.wire import OneProcessWire, Wire
from multigpu.kernels import batch_norm, lstm_launch
from multigpu.placements.partition import bounds
from multigpu.spec.errors import Unsupported
from multigpu.spec.run import Run
from multigpu.workloads import description_of, import_part


@dataclass(frozen=True)
class Context(RunContext):
    """All that a trainer may know of its Run.
    devices: of the replicas in this process: of one, or of all where one process dispatches for
        all.
    wire: what moves data between these, the host and other processes' (`Wire` or `OneProcessWire`).
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
        return self.devices.ranks[0]


def open_context(
    run: Run, rank: int, threads: int, capacity: dict[str, int], shared: Path, timeout_s: float
) -> Context:
    """The context of replica `rank`, or of all that one process dispatches for."""
    if run.processes == "one":
        devices = Devices([Device(run, each, threads) for each in range(run.devices)])
        return Context(run, devices, OneProcessWire(devices), capacity, shared, timeout_s)
    own = Devices([Device(run, rank, threads)])
    return Context(run, own, Wire(rank, run.devices), capacity, shared, timeout_s)


def open_rank(opening: Opening, capacity: dict[str, int]) -> Context:
    """The context of a session, as `open_context`."""
    return open_context(
        opening.run, opening.rank, opening.threads, capacity, opening.shared, opening.timeout_s
    )


def build_module(run: Run) -> Any:
    """The Run's model, an `nn.Module` on the meta device: a batch (and rows looked up elsewhere) ->
    the sum of its loss. `build` names the Run's fields that it obeys. `lookups(batch)`: embedding
    variable -> ids; `compile_parts()`: the library compiles what it can.
    """
    build = import_part(run.workload, "torch").build
    _, *fields = inspect.signature(build).parameters
    with torch.device("meta"):
        return build(description_of(run), **{field: getattr(run, field) for field in fields})


def substituted(run: Run, device: torch.device) -> str | None:
    """Return why the library ran instead of the kernel asked for; None: it did not."""
    if run.recurrence == "persistent":
        name, reason = "recurrence 'persistent'", lstm_launch.library_instead(device)
    elif run.batch_norm == "fused":
        name, reason = "batch_norm 'fused'", batch_norm.library_instead(device)
    else:
        return None
    return None if reason is None else f"{name} was left to the library: {reason}"


def total_of(losses: list[Tensor]) -> Tensor:
    """Add up the losses of a shard's parts."""
    if len(losses) == 1:
        return losses[0].detach()
    return torch.stack([loss.detach() for loss in losses]).sum()


# embedding variable -> rows that one replica looked up, leaves that collect a gradient
Rows = dict[str, Tensor]


class Trainer(ABC):
    """The replicas of a placement that one process works for: one, or all of them, towers that one
    thread dispatches. `step` trains on one shard a replica, by rank, and returns each one's share
    of the global batch's mean loss (0-dim, on its device), perhaps before the devices have
    finished. modules: by rank. takes_terms: whether it divides by a shard's `terms`, if any.
    """

    takes_terms = False
    follow: Callable[[], None] | None = None  # after each captured step: a schedule's next rate

    def __init__(self, context: Context) -> None:
        self.context = context
        self.devices = context.devices
        self.wire = context.wire
        self.replicas = context.replicas
        self.device, self.rank, self.ranks = context.device, context.rank, context.devices.ranks
        self.modules = {rank: build_module(context.run) for rank in self.ranks}
        self.module = self.modules[self.rank]
        for module in self.modules.values():
            if context.run.recompute:
                self._recompute(module)
            if "compiled" in context.run.execution:
                self._compile(module)

    def _recompute(self, module: nn.Module) -> None:
        """Let the model's repeated blocks compute their activations again; else `Unsupported`."""
        blocks = blocks_of(module, None)
        if not blocks:
            raise Unsupported(
                f"recompute is of repeated blocks in a ModuleList or Sequential, and"
                f" {self.context.run.model!r} has none: leave it out"
            )
        for block in blocks.values():
            recompute(block)

    def _compile(self, module: Any) -> None:
        """Compile what the model can, in place."""
        module.compile_parts()

    def loss(
        self, rank: int, shard: Shard, terms: int | Tensor, rows: Rows | None = None
    ) -> Tensor:
        with self.devices.of(rank).autocast():
            total = self.modules[rank](shard.device, rows)
        return total / terms

    def forward(self, rank: int, shard: Shard, terms: int, rows: Rows | None = None) -> Tensor:
        with phase("forward"), self.devices.at(rank):
            return self.loss(rank, shard, terms, rows)

    def backward(self, losses: list[Tensor]) -> None:
        """Pass back all towers at once, so that threads for each GPU dispatch side by side."""
        with phase("backward"):
            torch.autograd.backward(losses)

    def parts(self, shard: Shard, rows: Rows | None = None) -> list[tuple[Shard, Rows | None]]:
        """The `micro_steps` parts of a shard, and of its rows, that pass one after another."""
        count = self.context.run.micro_steps
        if count is None:
            return [(shard, rows)]
        size = len(next(iter(shard.device.values())))
        cuts = [slice(*bounds(size, count, index)) for index in range(count)]

        def cut(tensors: dict[str, Tensor], where: slice) -> dict[str, Tensor]:
            return {name: tensor[where] for name, tensor in tensors.items()}

        return [
            (
                replace(shard, device=cut(shard.device, own), host=cut(shard.host, own)),
                rows and cut(rows, own),
            )
            for own in cuts
        ]

    @abstractmethod
    def step(self, shards: list[Shard]) -> list[Tensor]:
        """Forward, backward, merge and update."""

    def counted_step(self, shards: list[Shard]) -> tuple[list[Tensor], dict[str, int]]:
        """A step, and the bytes whose movement this process started in it, by kind."""
        self.wire.counts.clear()
        losses = self.step(shards)
        return losses, dict(self.wire.counts)

    def skipped_steps(self) -> int | None:
        """Steps left out so far because a gradient overflowed; None: none can be."""
        return None

    @abstractmethod
    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        """Master values (or copies) by variable for which `rank` answers, rank 0 for the host's."""

    @abstractmethod
    def optimizers_of(self, rank: int) -> list[torch.optim.Optimizer]:
        """Those whose slots lie on this device (or the host: on a process's first), in order."""

    def refresh(self) -> None:
        """Bring what `owned` gives, which was written from outside, to what computes."""
        return  # here both are the same tensors

    def piece(self, name: str, value: Tensor) -> Tensor:
        """Return the piece of a whole variable that `owned` tells."""
        return value

    def full_values(self, rank: int | None = None) -> dict[str, Tensor]:
        """All variables on the CPU; called in every process. rank: whose copies, or the first."""
        replicated = self.context.placement.variables == "replica"
        owned = (
            self.owned(part)
            for part in ([self.rank if rank is None else rank] if replicated else self.ranks)
        )
        return {
            name: value.detach().to("cpu", copy=True).contiguous()
            for own in owned
            for name, value in own
        }

    def close(self) -> None:
        self.context.closing.close()
