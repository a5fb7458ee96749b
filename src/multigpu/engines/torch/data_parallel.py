"""The library's nn.DataParallel, its parts called one by one so that bytes are counted."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import gather, parallel_apply, replicate

from multigpu.engines.common.context import Carries
from multigpu.engines.torch.devices import Device
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context, Trainer
from multigpu.engines.torch.variables import begun, make_optimizer
from multigpu.engines.torch.wire import Copy


class Entered(nn.Module):
    """A model that enters autocast itself: threads of the library know its type no longer."""

    def __init__(self, module: nn.Module, device: Device) -> None:
        super().__init__()
        self.module, self.device = module, device
        for part in module.modules():
            # a forward of the object's own is bound to it, and would compute with the original
            part.__dict__.pop("forward", None)

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        with self.device.autocast():
            found: Tensor = self.module(batch, None)
        return found


class DataParallelTrainer(Trainer):
    """The first device's model, optimizer and merge; what other devices have lasts for a step.

    Running statistics are the first copy's; those that are sent, and the losses that are gathered,
    are not counted.
    """

    carries = Carries({"gpu0": (False,)}, copied_anew=True)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        device, dtype = self.device.torch, self.device.dtype
        self.parameters = begun(self.module, context.model, context.run.seed, device, dtype)
        self.modules = dict.fromkeys(self.ranks, self.module)
        self.optimizer = make_optimizer(context.rule, list(self.parameters.values()))
        self.entered = Entered(self.module, self.device)
        self.sliced = context.run.slicing == "device"

    def step(self, shards: list[Shard]) -> list[Tensor]:
        self.optimizer.zero_grad(set_to_none=True)
        with phase("pull"):
            inputs = self._scattered(shards)
        with phase("forward"):
            losses = self._forward(inputs) / shards[0].batch.global_loss_terms
        with phase("backward"):
            losses.sum().backward()
        self._count(2 * (self.replicas - 1))
        with phase("update"):
            self.optimizer.step()
        return list(losses.detach())

    def _count(self, times: int) -> None:
        """Count copies of all variables, or as many of their gradients."""
        held = sum(parameter.nbytes for parameter in self.parameters.values())
        self.wire.counts["device_to_device"] += times * held

    def _scattered(self, shards: list[Shard]) -> list[dict[str, Tensor]]:
        """Each device's arrays on it: fed there, or copied from the first device."""
        inputs = [dict(shard.device) for shard in shards]
        copies = []
        for rank in range(1, self.replicas) if self.sliced else ():
            for name, source in shards[rank].device.items():
                target = torch.empty_like(source, device=self.devices.each[rank].torch)
                inputs[rank][name] = target
                copies.append(Copy(0, source, rank, target))
        self.wire.copy_all(copies)
        return inputs

    def _forward(self, inputs: list[dict[str, Tensor]]) -> Tensor:
        """All shards' losses, on the first device."""
        if not self.devices.cuda or self.replicas == 1:
            return torch.stack([self._copied(rank, own) for rank, own in enumerate(inputs)])
        devices = [device.torch for device in self.devices.each]
        copies = replicate(self.entered, devices)
        found = parallel_apply(copies, [(own,) for own in inputs], None, devices)
        return gather([loss.reshape(1) for loss in found], devices[0])

    def _copied(self, rank: int, own: dict[str, Tensor]) -> Tensor:
        """A stand-in's loss, of copies that send their gradients back as `replicate` does."""
        if rank == 0:
            return self.entered(own)
        copies: dict[str, Any] = {
            name: value.clone() for name, value in self.entered.named_parameters()
        }
        copies |= {name: value.clone() for name, value in self.entered.named_buffers()}
        return torch.func.functional_call(self.entered, copies, (own,))

    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        if rank == 0:
            yield from self.parameters.items()

    def optimizers_of(self, rank: int) -> list[torch.optim.Optimizer]:
        return [self.optimizer] if rank == 0 else []
