"""One model split into stages over the devices of one process: each stage forward, backward and
updated where the Run places it.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from multigpu.engines.torch import session
from multigpu.engines.torch.devices import Devices
from multigpu.engines.torch.feed import Feed, RowFeed, Shard
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context, Trainer
from multigpu.engines.torch.variables import initial_value, make_optimizer
from multigpu.inputs.batch import Batch, Source, plain_arrays
from multigpu.placements.traffic import HOST
from multigpu.spec.run import Run
from multigpu.workloads import description_of
from multigpu.workloads.stages import graph_of, places_of
from multigpu_study.stages.parts import functions_of, stage_arrays


class Counted:
    """Bytes that cross between devices, by kind, counted by several threads."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.lock = threading.Lock()

    def add(self, tensor: Tensor) -> None:
        with self.lock:
            self.counts["device_to_device"] += tensor.nbytes


class Crossing(torch.autograd.Function):
    """A tensor copied to another device, its gradient back, both counted; costs the host 7 us."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, end: torch.device, counted: Counted) -> Tensor:
        ctx.start, ctx.counted = tensor.device, counted
        counted.add(tensor)
        return copied(tensor, end)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = gradients
        ctx.counted.add(gradient)
        return copied(gradient, ctx.start), None, None


def copied(tensor: Tensor, end: torch.device) -> Tensor:
    """The library's copy runs on the source's stream and orders both ends' streams; the host goes
    on at once. Stand-ins copy too.
    """
    return tensor.clone() if tensor.device == end else tensor.to(end, non_blocking=True)


class StageFeed(RowFeed):
    """One shard a step, its arrays on the devices of the stages that read them."""

    def __init__(self, source: Source, run: Run, devices: Devices) -> None:
        super().__init__(source, 0, devices.each[0], run.feed)
        self.run, self.devices = run, devices
        self.arrays, self.readers = stage_arrays(run)

    def put(self, batch: Batch) -> Shard:
        arrays = self.arrays(description_of(self.run), plain_arrays(batch))
        host = {name: self.tensor(array) for name, array in arrays.items()}
        device = {
            name: self.to_device(tensor, self.devices.each[self.readers[name]].torch)
            for name, tensor in host.items()
        }
        return Shard(batch, device, host)


class StagesTrainer(Trainer):
    """The model's stages with their variables, slots and updates; one optimizer a device."""

    def __init__(self, context: Context) -> None:
        # its parts are stages, not whole modules: nothing of the other trainers is built
        self.context = context
        self.devices = context.devices
        self.wire = context.wire
        self.replicas = context.replicas
        self.ranks = context.devices.ranks
        run = context.run
        self.graph, self.places, self.functions = graph_of(run), places_of(run), functions_of(run)
        assert HOST not in self.places.values()
        self.counted: Counted | None = None
        """Set while a step's bytes are counted."""
        self.values: dict[str, Tensor] = {}
        homes = {name: self.places[stage] for name, stage in self.graph.variables.items()}
        for index, variable in enumerate(context.model.variables):
            device = self.devices.each[homes[variable.name]].torch
            value = initial_value(variable, index, run.seed, device, self.devices.dtype)
            self.values[variable.name] = torch.nn.Parameter(value)
        self.homes = homes
        self.optimizers = {}
        for place in sorted(set(homes.values())):
            parameters = [self.values[name] for name, home in homes.items() if home == place]
            optimizer = make_optimizer(context.rule, parameters)  # type: ignore[arg-type]
            self.optimizers[place] = optimizer
        self.zeros = [
            torch.zeros((), device=device.torch, dtype=self.devices.dtype)
            for device in self.devices.each
        ]

    def forward_stages(self, shard: Shard) -> Tensor:
        """The last stage's output: the sum of the shard's loss."""
        outputs: dict[tuple[str, int], Tensor] = {}
        for stage in self.graph.stages:
            place = self.places[stage.name]
            inputs = []
            for name in stage.inputs:
                if (name, place) not in outputs:
                    source, end = outputs[name, self.places[name]], self.devices.each[place].torch
                    outputs[name, place] = (
                        Crossing.apply(source, end, self.counted)
                        if self.counted
                        else copied(source, end)
                    )
                inputs.append(outputs[name, place])
            with self.devices.at(place):
                values = {name: self.values[name] for name in stage.variables}
                arrays = [shard.device[name] for name in stage.arrays]
                outputs[stage.name, place] = self.functions[stage.name](values, inputs, arrays)
        last = self.graph.stages[-1].name
        return outputs[last, self.places[last]]

    def step(self, shards: list[Shard]) -> list[Tensor]:
        (shard,) = shards
        for optimizer in self.optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        with phase("forward"):
            loss = self.forward_stages(shard) / shard.batch.global_loss_terms
        self.backward([loss])
        with phase("update"):
            for device, optimizer in self.optimizers.items():
                with self.devices.at(device):
                    optimizer.step()
        home = self.places[self.graph.stages[-1].name]
        return [loss.detach() if rank == home else zero for rank, zero in enumerate(self.zeros)]

    def counted_step(self, shards: list[Shard]) -> tuple[list[Tensor], dict[str, int]]:
        self.counted = counted = Counted()
        try:
            losses = self.step(shards)
        finally:
            self.counted = None
        return losses, dict(counted.counts)

    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        yield from (
            (name, value) for name, value in self.values.items() if self.homes[name] == rank
        )

    def optimizers_of(self, rank: int) -> list[torch.optim.Optimizer]:
        return [self.optimizers[rank]] if rank in self.optimizers else []


class Session(session.Session):
    """As for other placements dispatched by one thread."""

    one_shard = True

    def _feeds(self) -> list[Feed]:
        return [StageFeed(self.source, self.run, self.devices)]

    def _trainer(self) -> StagesTrainer:
        return StagesTrainer(self.context)
