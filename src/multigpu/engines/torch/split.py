"""Placements that cut every layer over devices, a process a device: each holds its part of the model and sees its copy's whole shard."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from multigpu.engines.torch import told
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.parts import Group, GroupParts, groups_of
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context, Trainer
from multigpu.engines.torch.variables import flat_gradients, initial_values, make_optimizer, materialise
from multigpu.placements.partition import bounds


def end_groups(made: list[Any], users: tuple[Group, ...]) -> None:
    """End the groups of a Run: the default group, which goes on, must be the last to end."""
    for user in users:
        user.group = None
    for group in made:
        with suppress(Exception):  # after a failure elsewhere the group may be gone already
            dist.destroy_process_group(group)
    made.clear()


class SplitTrainer(Trainer):
    """One part of a copy of the model. Gradients of a part are joined with those of the same part of other copies, after backward."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        assert context.model.splitting
        self.axes = context.model.splitting.axes
        self.sharing: Group
        self.alike: Group
        self.sharing, self.alike, made = groups_of(self.wire, context.run.degree, self.device.cuda)
        context.closing.callback(end_groups, made, (self.sharing, self.alike))
        workload = importlib.import_module(f"multigpu.workloads.{context.run.workload}.torch")
        with torch.device("meta"):
            self.module = self.modules[self.rank] = workload.build_part(context.model, GroupParts(self.sharing))
        device, dtype = self.device.torch, self.device.dtype
        memory = {v.name: self.piece(v.name, x).clone() for v, x in initial_values(context.model, context.run.seed, device, dtype)}
        self.parameters = materialise(self.module, memory, device, dtype)
        self.gradients = flat_gradients(list(self.parameters.values()), device, dtype)
        self.optimizer = make_optimizer(context.rule, list(self.parameters.values()))

    def piece(self, name: str, value: Tensor) -> Tensor:
        """This device's part of a whole variable."""
        axis = self.axes.get(name)
        if axis is None:
            return value
        begin, end = bounds(value.shape[axis], self.sharing.count, self.sharing.index)
        return value.narrow(axis, begin, end - begin)

    def step(self, shards: list[Shard]) -> list[Tensor]:
        (shard,) = shards
        self.gradients.zero_()
        loss = self.forward(self.rank, shard, shard.batch.joined_loss_terms)
        self.backward([loss])
        with phase("merge"):
            self.alike.all_reduce(self.gradients)
        with phase("update"):
            self.optimizer.step()
        return [loss.detach() / self.sharing.count]  # every part knows the copy's loss; their shares add up to it

    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        """Its parts of what is cut; what is whole on every device counts as the first one's."""
        for name, parameter in self.parameters.items():
            if name in self.axes or self.sharing.index == 0:
                yield name, parameter

    def optimizers_of(self, rank: int) -> list[torch.optim.Optimizer]:
        return [self.optimizer]

    def full_values(self, rank: int | None = None) -> dict[str, Tensor]:
        """All variables put together again, of this rank's copy of the model."""
        mine = {name: value.detach().cpu() for name, value in self.parameters.items()}
        everyone: list[dict[str, Tensor]] = told.everyone(mine) if self.replicas > 1 else [mine]
        first = self.rank - self.sharing.index
        parts = everyone[first : first + self.sharing.count]
        return {
            name: torch.cat([part[name] for part in parts], self.axes[name]) if name in self.axes else mine[name].clone() for name in mine
        }
