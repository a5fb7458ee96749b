"""Ways of feeding reviews that a Run can ask for: by the step's own thread, or one step ahead by another one."""

from __future__ import annotations

import numpy as np
import torch

from multigpu.engines.torch.devices import Device
from multigpu.engines.torch.feed import Feed, Shard
from multigpu.inputs.batch import Batch, Source
from multigpu.inputs.feeding import Feeding, plain_arrays


def make_feed(source: Source, rank: int, device: Device) -> Feed:
    """The feed that the device's Run asks for."""
    return RowFeed(source, rank, device, device.run.feed) if device.run.feed else Feed(source, rank, device)


class RowFeed(Feeding[Shard], Feed):
    """Reviews of one replica: one step ahead from page-locked memory, else from memory that is not, where the host waits for the copy."""

    def __init__(self, source: Source, rank: int, device: Device, mode: str | None) -> None:
        # nothing of the other ways of feeding is made
        Feeding.__init__(self, source, mode)
        self.rank, self.device = rank, device

    @property
    def ranks(self) -> tuple[int, ...]:
        return (self.rank,)

    def shard(self, step: int) -> Shard:
        return self.given(step)

    def put_all(self, batches: list[Batch]) -> Shard:
        (batch,) = batches
        return self.put(batch)

    def put(self, batch: Batch) -> Shard:
        """The batch's arrays on this replica's device."""
        host = {name: self.tensor(array) for name, array in plain_arrays(batch).items()}
        return Shard(batch, {name: self.to_device(tensor, self.device.torch) for name, tensor in host.items()}, host)

    def tensor(self, array: np.ndarray) -> torch.Tensor:
        """An array as a tensor on the host, in the Run's type where it is floating-point."""
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        return tensor.to(self.device.dtype) if tensor.is_floating_point() else tensor

    def to_device(self, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        """A copy of a host's tensor on `device`, even where that is the host itself."""
        if device.type == "cpu":
            return tensor.clone()
        return tensor.pin_memory().to(device, non_blocking=True) if self.pipeline else tensor.to(device)
