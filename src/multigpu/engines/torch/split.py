"""Placements that cut every layer over devices, joined by counted collectives in autograd."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from multigpu.engines.common.context import Carries
from multigpu.engines.torch import object_collectives
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context, Trainer
from multigpu.engines.torch.variables import (
    flat_gradients,
    initial_values,
    make_optimizer,
    materialise,
)
from multigpu.engines.torch.wire import Wire, gather, scatter
from multigpu.placements.partition import bounds
from multigpu.placements.resolve import dims_of
from multigpu.workloads import import_part


class Group:
    """Some of a Run's ranks, as `Parts` of stacks. group: theirs; None: all, or this one alone."""

    def __init__(self, wire: Wire, ranks: list[int], group: Any) -> None:
        self.wire = wire
        self.count = len(ranks)
        self.index = ranks.index(wire.rank)
        self.group = group

    def all_reduce(self, tensor: Tensor, operation: Any = dist.ReduceOp.SUM) -> Tensor:
        if self.count > 1:
            self.wire.counts["all_reduce"] += tensor.nbytes
            dist.all_reduce(tensor, operation, group=self.group)
        return tensor

    def all_gather(self, tensor: Tensor) -> Tensor:
        """All ranks' tensors one after another along axis 0."""
        if self.count == 1:
            return tensor
        self.wire.counts["all_gather"] += tensor.nbytes
        whole = tensor.new_empty(self.count * tensor.shape[0], *tensor.shape[1:])
        gather(whole, tensor.contiguous(), group=self.group)
        return whole

    def reduce_scatter(self, tensor: Tensor) -> Tensor:
        """This rank's stretch along axis 0 of the sum of all ranks' tensors."""
        if self.count == 1:
            return tensor
        self.wire.counts["reduce_scatter"] += tensor.nbytes
        part = tensor.new_empty(tensor.shape[0] // self.count, *tensor.shape[1:])
        scatter(part, tensor.contiguous(), group=self.group)
        return part

    def spread(self, x: Tensor) -> Tensor:
        return _Spread.apply(x, self)

    def total(self, x: Tensor) -> Tensor:
        return _Total.apply(x, self)

    def gather(self, x: Tensor) -> Tensor:
        return _Gather.apply(x, self)

    def cross_entropy(self, logits: Tensor, labels: Tensor, classes: int) -> Tensor:
        exact = logits.float() if logits.dtype == torch.bfloat16 else logits
        return _CrossEntropy.apply(exact, labels, classes, self)


def groups_of(wire: Wire, degree: int, cuda: bool) -> tuple[Group, Group, list[Any]]:
    """The groups that share this rank's copy of the model (neighbours) and the same part of all
    copies, and what to destroy. Every rank makes every group, in one order: making one is a
    collective of the default group, which must be the last to end.
    (`new_group(use_local_synchronization=True)`, which asks only a group's own ranks, was seen to
    hang; sub-rings of sends and receives would leave out the library's own algorithms, which are
    what is to be timed.) A group of all ranks is the default group itself.
    """
    world = wire.replicas
    made: list[Any] = []

    def pick(every: list[list[int]]) -> Group:
        mine = Group(wire, next(ranks for ranks in every if wire.rank in ranks), None)
        if 1 < len(every[0]) < world:
            for ranks in every:
                group = dist.new_group(ranks, backend="nccl" if cuda else "gloo")
                if wire.rank in ranks:
                    mine.group = group
                    made.append(group)
        return mine

    sharing = pick([list(range(first, first + degree)) for first in range(0, world, degree)])
    alike = pick([list(range(first, world, degree)) for first in range(degree)])
    return sharing, alike, made


class _Spread(torch.autograd.Function):
    """Identity; backward sums gradients over the group."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.group.all_reduce(gradients[0].clone(memory_format=torch.contiguous_format)), None


class _Total(torch.autograd.Function):
    """The sum over the group; its gradient is every part's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        return group.all_reduce(x.clone(memory_format=torch.contiguous_format))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


class _Gather(torch.autograd.Function):
    """All parts' rows; backward sums gradients over the group and keeps its own rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return group.all_gather(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.group.reduce_scatter(gradients[0]), None


class _CrossEntropy(torch.autograd.Function):
    """Cross entropy of logits cut by classes: a maximum, then two sums a row travel."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, classes: int, group: Group) -> Tensor:
        begin, end = bounds(classes, group.count, group.index)
        largest = group.all_reduce(logits.amax(1), dist.ReduceOp.MAX)
        powers = torch.exp(logits - largest[:, None])  # (B, own classes)
        own = (labels >= begin) & (labels < end)
        place = (labels - begin).clamp(0, end - begin - 1)[:, None]
        chosen = logits.gather(1, place).squeeze(1) * own
        sums, target = group.all_reduce(torch.stack((powers.sum(1), chosen)))
        ctx.save_for_backward(powers, sums, place, own)
        return (torch.log(sums) + largest - target).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        powers, sums, place, own = ctx.saved_tensors
        gradient = powers / sums[:, None]
        gradient.scatter_add_(1, place, -own[:, None].to(gradient.dtype))
        return gradient * gradients[0], None, None, None


def end_groups(made: list[Any], users: tuple[Group, ...]) -> None:
    """End the groups of a Run: the default group, which goes on, must be the last to end."""
    for user in users:
        user.group = None
    for group in made:
        with suppress(Exception):  # after a failure elsewhere the group may be gone already
            dist.destroy_process_group(group)
    made.clear()


class SplitTrainer(Trainer):
    """One part of a copy of the model; copies join a part's gradients after backward."""

    carries = Carries({"split": (False,)})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        assert context.model.splitting
        self.axes = context.model.splitting.axes
        self.sharing: Group
        self.alike: Group
        self.sharing, self.alike, made = groups_of(
            self.wire, dims_of(context.run).degree, self.device.cuda
        )
        context.closing.callback(end_groups, made, (self.sharing, self.alike))
        workload = import_part(context.run.workload, "torch")
        with torch.device("meta"):
            self.module = self.modules[self.rank] = workload.build_part(context.model, self.sharing)
        device, dtype = self.device.torch, self.device.dtype
        memory = {
            v.name: self.piece(v.name, x).clone()
            for v, x in initial_values(context.model, context.run.seed, device, dtype)
        }
        self.parameters = materialise(self.module, memory, device, dtype)
        self.gradients = flat_gradients(list(self.parameters.values()), device, dtype)
        self.optimizer = make_optimizer(context.rule, list(self.parameters.values()))

    def piece(self, name: str, value: Tensor) -> Tensor:
        axis = self.axes.get(name)
        if axis is None:
            return value
        begin, end = bounds(value.shape[axis], self.sharing.count, self.sharing.index)
        return value.narrow(axis, begin, end - begin)

    def step(self, shards: list[Shard]) -> list[Tensor]:
        (shard,) = shards
        self.gradients.zero_()
        loss = self.forward(self.rank, shard, shard.batch.global_loss_terms)
        self.backward([loss])
        with phase("merge"):
            self.alike.all_reduce(self.gradients)
        with phase("update"):
            self.optimizer.step()
        # every part knows the copy's loss; their shares add up to it
        return [loss.detach() / self.sharing.count]

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
        everyone: list[dict[str, Tensor]] = (
            object_collectives.all_gather(mine) if self.replicas > 1 else [mine]
        )
        first = self.rank - self.sharing.index
        parts = everyone[first : first + self.sharing.count]
        return {
            name: torch.cat([part[name] for part in parts], self.axes[name])
            if name in self.axes
            else mine[name].clone()
            for name in mine
        }
