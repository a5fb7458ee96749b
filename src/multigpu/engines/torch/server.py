"""Placements with a parameter server: replicas pull variables and push gradients."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from multigpu.engines.common.context import Carries
from multigpu.engines.torch import object_collectives
from multigpu.engines.torch.device_store import DeviceStore, MirrorStore, StagedDeviceStore
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.host_store import HostStore, StagedHostStore
from multigpu.engines.torch.stores import Ids, Store
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context, Rows, Trainer, total_of
from multigpu.engines.torch.variables import materialise
from multigpu.engines.torch.wire import Copy
from multigpu.placements.traffic import HOST, Assigned
from multigpu.spec.errors import Unsupported

STORES: dict[tuple[bool, bool], Any] = {
    (False, False): DeviceStore,
    (True, False): MirrorStore,
    (True, True): HostStore,
}
"""(home is the host, update is on the host) -> the store that does so."""

STAGED: dict[tuple[bool, bool], Any] = {
    (False, False): StagedDeviceStore,
    (True, True): StagedHostStore,
}
"""The same for placements that stage."""


def make_stores(context: Context, modules: Mapping[int, nn.Module]) -> list[Store]:
    """A store for each kind of home, and its memory under these modules; or `Unsupported`."""
    shapes = dict(next(iter(modules.values())).named_parameters())
    groups: dict[tuple[bool, bool], list[Assigned]] = {}
    for member in context.assigned:
        groups.setdefault((member.home == HOST, member.update == HOST), []).append(member)
    stores: list[Store] = []
    known = STAGED if context.placement.staged else STORES
    for kind, members in groups.items():
        if kind not in known:
            raise Unsupported(
                f"no store keeps variables on the {'host' if kind[0] else 'devices'} and updates"
                " them elsewhere"
            )
        stores.append(known[kind](context, members, shapes))
    for rank, module in modules.items():
        memory: dict[str, Tensor] = {}
        for store in stores:
            memory |= store.views[rank] | store.apart[rank]
        parameters = materialise(
            module, memory, context.devices.of(rank).torch, context.devices.dtype
        )
        for store in stores:
            for name, gradient in store.gradient_views[rank].items():
                parameters[name].grad = gradient
    return stores


class ServerTrainer(Trainer):
    """The replicas of this process, with a store for each kind of home in the row."""

    carries = Carries(
        {"host": (False,), "gpu0": (False,), "balanced": (False,)}, staged=True, tables=True
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.stores = make_stores(context, self.modules)

    def start(self, ids: Mapping[int, Ids], counts: Sequence[Mapping[str, int]]) -> None:
        """Send values that devices hold to replicas here. counts: as `Store.counts`."""
        with phase("pull"):
            for store in self.stores:
                store.start(ids, counts)

    def bring(self, rank: int, ids: Ids) -> Rows:
        """All values and rows of one replica where it computes with them, its gradients at zero."""
        rows: Rows = {}
        with phase("pull"):
            for store in self.stores:
                store.gradients[rank].zero_()
                rows |= store.bring(rank, ids)
                store.fill_apart(rank)
        return rows

    def finish(self, ids: Mapping[int, Ids], rows: Mapping[int, Rows]) -> None:
        with phase("merge"):
            for store in self.stores:
                store.collect(ids, rows)
        with phase("update"):  # stores that first merge say so
            for store in self.stores:
                store.update()

    def step(self, shards: list[Shard]) -> list[Tensor]:
        given = dict(zip(self.ranks, shards, strict=True))
        ids = {
            rank: Ids(
                self.modules[rank].lookups(shard.host), self.modules[rank].lookups(shard.device)
            )
            for rank, shard in given.items()
        }
        self.start(ids, shards[0].batch.lookups)
        rows: dict[int, Rows] = {}
        losses: dict[int, list[Tensor]] = {}
        for rank, shard in given.items():
            rows[rank], losses[rank] = self.bring(rank, ids[rank]), []
            for part, own in self.parts(shard, rows[rank]):
                losses[rank].append(self.forward(rank, part, shard.batch.global_loss_terms, own))
                # a part's activations are freed before the next; else towers go back together
                if self.context.run.micro_steps is not None:
                    self.backward(losses[rank][-1:])
        if self.context.run.micro_steps is None:
            self.backward([loss for own in losses.values() for loss in own])
        self.finish(ids, rows)
        return [total_of(own) for own in losses.values()]

    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        for store in self.stores:
            yield from store.owned(rank)

    def optimizers_of(self, rank: int) -> list[torch.optim.Optimizer]:
        return [optimizer for store in self.stores for optimizer in store.optimizers_of(rank)]

    def full_values(self, rank: int | None = None) -> dict[str, Tensor]:
        mine = super().full_values(rank)
        gathered = object_collectives.all_gather(mine) if self.devices.processes > 1 else [mine]
        return {name: value for part in gathered for name, value in part.items()}


class ParallelTrainer(ServerTrainer):
    """make_parallel (Keras' multi_gpu_model): one model whose global batch is sliced over towers
    and whose predictions are concatenated. Slices lie on the first device and travel to towers,
    which predict; one loss over all is computed there, and each tower carries its part of the
    gradient back: the same sum as from a loss on each (document 001's question). Modules say
    `logits(images)`, (B, classes), and `loss_of(logits, labels)`, the sum.
    """

    carries = Carries({"host": (False,), "gpu0": (False,)}, losses=("gpu0",))

    images: list[Tensor] = []
    joined: Tensor | None = None

    def step(self, shards: list[Shard]) -> list[Tensor]:
        ids = {rank: Ids({}, {}) for rank, _ in enumerate(shards)}
        self.start(ids, shards[0].batch.lookups)
        rows = {rank: self.bring(rank, own) for rank, own in ids.items()}
        with phase("pull"):
            images = self._slices(shards)
        predictions = []
        for rank, own_images in enumerate(images):
            with phase("forward"), self.devices.at(rank), self.devices.each[rank].autocast():
                predictions.append(self.modules[rank].logits(own_images))
        loss, gradients = self._joined_loss(predictions, shards)
        with phase("backward"):
            torch.autograd.backward(predictions, gradients)
        self.finish(ids, rows)
        return [
            loss,
            *(
                torch.zeros((), device=device.torch, dtype=loss.dtype)
                for device in self.devices.each[1:]
            ),
        ]

    def _slices(self, shards: list[Shard]) -> list[Tensor]:
        """Each tower's images on its own device; the first tower's lie there already."""
        own = [shard.device["images"] for shard in shards]
        if [image.shape for image in own] != [image.shape for image in self.images]:
            self.images = [
                torch.empty_like(image, device=self.devices.each[rank].torch)
                for rank, image in enumerate(own)
            ]
        self.wire.copy_all(
            [Copy(0, own[rank], rank, self.images[rank]) for rank in range(1, self.replicas)]
        )
        return [own[0], *self.images[1:]]

    def _joined_loss(
        self, predictions: list[Tensor], shards: list[Shard]
    ) -> tuple[Tensor, list[Tensor]]:
        """The mean loss over the global batch, and its gradient for each tower's predictions."""
        sizes = [len(prediction) for prediction in predictions]
        if self.joined is None or len(self.joined) != sum(sizes):
            self.joined = predictions[0].new_empty(sum(sizes), predictions[0].shape[1])
        with phase("merge"):
            parts = self.joined.detach().split(sizes)
            parts[0].copy_(predictions[0].detach())
            self.wire.copy_all(
                [
                    Copy(rank, predictions[rank].detach().contiguous(), 0, parts[rank])
                    for rank in range(1, self.replicas)
                ]
            )
        with phase("forward"), self.devices.at(0):
            joined = self.joined.detach().requires_grad_()
            labels = torch.cat([shard.device["labels"] for shard in shards])
            loss = self.module.loss_of(joined, labels) / shards[0].batch.global_loss_terms
        with phase("backward"), self.devices.at(0):
            loss.backward()
        assert joined.grad is not None
        slices = joined.grad.split(sizes)
        with phase("merge"):
            gradients = [
                slices[0],
                *(torch.empty_like(predictions[rank]) for rank in range(1, self.replicas)),
            ]
            self.wire.copy_all(
                [Copy(0, slices[rank], rank, gradients[rank]) for rank in range(1, self.replicas)]
            )
        return loss.detach(), gradients
