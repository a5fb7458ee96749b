"""Placements that keep all variables on every replica, dispatched by one thread: what differs is how gradients merge."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from multigpu.engines.errors import Unsupported
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context, Trainer
from multigpu.engines.torch.variables import add_in_order, begun, flat_gradients, make_optimizer
from multigpu.engines.torch.wire import Copy


class ReplicatedTrainer(Trainer):
    """Variables, slots and update on every replica. merge = "all_reduce": one all-reduce after backward; "copy": every replica receives all
    others' gradients and adds them up; "none": nothing travels.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        placement = context.placement
        if placement.overlap or placement.merge not in ("all_reduce", "copy", "none"):
            how = "during backward" if placement.overlap else f"by {placement.merge!r}"
            raise Unsupported(f"placement {placement.name!r} merges {how}, which one PyTorch process for all devices does not do")
        self.merge = placement.merge
        self.parameters: list[dict[str, nn.Parameter]] = []
        self.gradients: list[Tensor] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        dtype = self.devices.dtype
        for rank, module in self.modules.items():
            device = self.devices.each[rank].torch
            parameters = begun(module, context.model, context.run.seed, device, dtype)
            self.parameters.append(parameters)
            self.optimizers.append(make_optimizer(context.rule, list(parameters.values())))
            if self.merge != "none":
                self.gradients.append(flat_gradients(list(parameters.values()), device, dtype))
        # [rank][peer]: what replica `rank` receives, by the peer it comes from
        self.received: list[dict[int, Tensor]] = [{} for _ in self.modules]
        if self.merge == "copy":
            for rank, gradients in enumerate(self.gradients):
                self.received[rank] = {peer: torch.empty_like(gradients) for peer in range(self.replicas) if peer != rank}

    def step(self, shards: list[Shard]) -> list[Tensor]:
        losses = []
        for rank, shard in enumerate(shards):
            if self.merge == "none":
                self.optimizers[rank].zero_grad(set_to_none=True)
            else:
                self.gradients[rank].zero_()
            terms = shard.batch.loss_terms[rank] if self.merge == "none" else shard.batch.joined_loss_terms
            losses.append(self.forward(rank, shard, terms))
        self.backward(losses)
        with phase("merge"):
            if self.merge == "all_reduce":
                self.wire.all_reduce(self.gradients)
            elif self.merge == "copy":
                self._merge_copies()
        with phase("update"):
            for rank, optimizer in enumerate(self.optimizers):
                with self.devices.at(rank):
                    optimizer.step()
        return [loss.detach() for loss in losses]

    def _merge_copies(self) -> None:
        self.wire.copy_all(
            [Copy(peer, self.gradients[peer], rank, target) for rank, own in enumerate(self.received) for peer, target in own.items()]
        )
        for rank, received in enumerate(self.received):
            add_in_order([received.get(peer, self.gradients[rank]) for peer in range(self.replicas)], self.gradients[rank])

    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        yield from self.parameters[rank].items()

    def optimizers_of(self, rank: int) -> list[torch.optim.Optimizer]:
        return [self.optimizers[rank]]
