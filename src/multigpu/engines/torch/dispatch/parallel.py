"""make_parallel (Keras' multi_gpu_model): one model whose joined batch is sliced over towers and whose predictions are concatenated.
The joined batch lies on the first device. Slices of its images go to the towers, which predict with copies of the one model's
variables; one loss over all predictions is computed, and each tower carries its slice of the gradient back through itself. What they
add up is the sum as where each tower has a loss of its own (document 001's question), by another way.
"""

import torch
from torch import Tensor

from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.server import ServerTrainer
from multigpu.engines.torch.stores import Ids
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.wire import Copy


class ParallelTrainer(ServerTrainer):
    """make_parallel (Keras' multi_gpu_model): one model whose joined batch is sliced over towers and whose predictions are concatenated.
    Shards are slices of the joined batch and lie on the first device. Images go to the towers, which predict with copies of the variables;
    one loss over all predictions is computed, and each tower carries its slice of the gradient back. What they add up is the same sum as
    where each tower has a loss of its own (document 001's question), by another way. Modules say `logits(images)`, (B, classes), and
    `loss_of(logits, labels)`, the sum of the loss, each by itself.
    """

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
        return [loss, *(torch.zeros((), device=device.torch, dtype=loss.dtype) for device in self.devices.each[1:])]

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
            loss = self.module.loss_of(joined, labels) / shards[0].batch.joined_loss_terms
        with phase("backward"), self.devices.at(0):
            loss.backward()
        assert joined.grad is not None
        slices = joined.grad.split(sizes)
        with phase("merge"):
            gradients = [slices[0], *(torch.empty_like(predictions[rank]) for rank in range(1, self.replicas))]
            self.wire.copy_all([Copy(0, slices[rank], rank, gradients[rank]) for rank in range(1, self.replicas)])
        return loss.detach(), gradients
