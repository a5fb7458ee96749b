"""make_parallel (Keras' multi_gpu_model): one model whose joined batch is sliced over towers and whose predictions are concatenated.

The joined batch lies on the first device. Slices of its images go to the towers, which predict with copies of the one model's
variables; the predictions come back, are concatenated, and one loss over all of them is computed. Its gradient is sliced the same
way, and each tower carries its slice back through itself. What its towers then add up is the gradient of the joined mean: the same
sum as where each tower has a loss of its own and gradients are averaged (document 001's question), by another way.
"""

from collections.abc import Mapping
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.server import ServerTrainer
from multigpu.engines.torch.stores import Ids
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context, build_module
from multigpu.engines.torch.variables import materialise, memory_like
from multigpu.engines.torch.wire import Copy


class Predicting(Protocol):
    """What this placement asks of a module beside being one."""

    def logits(self, images: Tensor) -> Tensor:
        """(B, channels, height, width) -> (B, classes)."""
        ...

    def loss_of(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(B, classes), (B,) -> the sum of the loss."""
        ...


class ParallelTrainer(ServerTrainer):
    """All towers, and the one loss on the first device. Shards are slices of the joined batch and lie on the first device."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.images: list[Tensor] = []
        self.joined: Tensor | None = None

    def step(self, shards: list[Shard]) -> list[Tensor]:
        ids = {rank: Ids({}, {}) for rank, _ in enumerate(shards)}
        self.start(ids, shards[0].batch.lookups)
        rows = {rank: self.bring(rank, own) for rank, own in ids.items()}
        with phase("pull"):
            images = self._slices(shards)
        predictions = []
        for rank, own_images in enumerate(images):
            with phase("forward"), self.devices.at(rank), self.devices.each[rank].autocast():
                predictions.append(self._module(rank).logits(own_images))
        loss, gradients = self._joined_loss(predictions, shards)
        with phase("backward"):
            torch.autograd.backward(predictions, gradients)
        self.finish(ids, rows)
        return [loss, *(torch.zeros((), device=device.torch, dtype=loss.dtype) for device in self.devices.each[1:])]

    def _module(self, rank: int) -> Predicting:
        return cast(Predicting, self.modules[rank])

    def _slices(self, shards: list[Shard]) -> list[Tensor]:
        """Each tower's images on its own device; the first tower's lie there already."""
        own = [shard.device["images"] for shard in shards]
        if [image.shape for image in own] != [image.shape for image in self.images]:
            self.images = [torch.empty_like(image, device=self.devices.each[rank].torch) for rank, image in enumerate(own)]
        self.wire.copy_all([Copy(0, own[rank], rank, self.images[rank]) for rank in range(1, self.replicas)])
        return [own[0], *self.images[1:]]

    def _joined_loss(self, predictions: list[Tensor], shards: list[Shard]) -> tuple[Tensor, list[Tensor]]:
        """The mean loss over the joined batch, on the first device, and its gradient for each tower's predictions."""
        sizes = [len(prediction) for prediction in predictions]
        if self.joined is None or len(self.joined) != sum(sizes):
            self.joined = predictions[0].new_empty(sum(sizes), predictions[0].shape[1])
        with phase("merge"):
            parts = self.joined.detach().split(sizes)
            parts[0].copy_(predictions[0].detach())
            self.wire.copy_all([Copy(rank, predictions[rank].detach().contiguous(), 0, parts[rank]) for rank in range(1, self.replicas)])
        with phase("forward"), self.devices.at(0):
            joined = self.joined.detach().requires_grad_()
            labels = torch.cat([shard.device["labels"] for shard in shards])
            loss = self._module(0).loss_of(joined, labels) / shards[0].batch.joined_loss_terms
        with phase("backward"), self.devices.at(0):
            loss.backward()
        assert joined.grad is not None
        slices = joined.grad.split(sizes)
        with phase("merge"):
            gradients = [slices[0], *(torch.empty_like(predictions[rank]) for rank in range(1, self.replicas))]
            self.wire.copy_all([Copy(0, slices[rank], rank, gradients[rank]) for rank in range(1, self.replicas)])
        return loss.detach(), gradients

    def single(self) -> nn.Module:
        """The one model, on the first device, with the current values: what is saved, and what serves without towers."""
        device = self.devices.each[0]
        module = build_module(self.context.run)
        shapes = dict(module.named_parameters())
        memory = {}
        for name, value in self.full_values().items():
            memory[name] = memory_like(shapes[name], device.torch, device.dtype).copy_(value)
        materialise(module, memory, device.torch, device.dtype)
        ours = dict(self.modules[0].named_buffers())
        with torch.no_grad():
            for name, buffer in module.named_buffers():
                buffer.copy_(ours[name])
        return module

    def load(self, values: Mapping[str, Tensor], buffers: Mapping[str, Tensor] | None = None) -> None:
        """Go on from the one model's values (and the first tower's running statistics); slots of the rule start anew.

        Raises:
            ValueError: a variable is missing or has another shape.
        """
        own = {name: value for rank in range(self.replicas) for name, value in self.owned(rank)}
        for name, value in own.items():
            if name not in values or values[name].shape != value.shape:
                got = tuple(values[name].shape) if name in values else "nothing"
                raise ValueError(f"variable {name!r} has shape {tuple(value.shape)} and {got} was given: load the same model's variables")
        with torch.no_grad():
            for name, value in own.items():
                value.copy_(values[name])
            for name, buffer in self.modules[0].named_buffers():
                if buffers is not None:
                    buffer.copy_(buffers[name])
