"""From a framework-free Source to tensors where the step wants them."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from multigpu.engines.torch.devices import Device
from multigpu.inputs.batch import Batch, Draw, Source


@dataclass(frozen=True)
class Shard:
    """One replica's part of a step: its tensors on the device and, for what the host must read, on the host.

    Lengths stay on the host in both: the host plans with them, and a device would have to be asked.
    """

    batch: Batch
    device: dict[str, Tensor]
    host: dict[str, Tensor]


class Feed:
    """Shards of one replica, step after step. Batches that repeat are kept on the device; others are fetched one ahead."""

    def __init__(self, source: Source, rank: int, device: Device) -> None:
        self.source, self.rank, self.device = source, rank, device
        self.kept: dict[int, Shard] = {}
        self.pool = None if source.period else ThreadPoolExecutor(max_workers=1)
        self.ahead: tuple[int, Future[Batch]] | None = None

    def shard(self, step: int) -> Shard:
        """The shard of this replica in step `step`."""
        if self.source.period:
            index = step % self.source.period
            if index not in self.kept:
                self.kept[index] = self._place(self.source.batch(index, self.rank))
            return self.kept[index]
        assert self.pool
        if self.ahead and self.ahead[0] == step:
            batch = self.ahead[1].result()
        else:
            batch = self.source.batch(step, self.rank)
        self.ahead = (step + 1, self.pool.submit(self.source.batch, step + 1, self.rank))
        return self._place(batch)

    def _draw(self, law: Draw) -> Tensor:
        generator = torch.Generator(device=self.device.torch).manual_seed(law.seed)
        if law.law == "labels":
            return torch.randint(law.classes, law.shape, generator=generator, device=self.device.torch)
        return torch.randn(law.shape, generator=generator, device=self.device.torch, dtype=torch.float32).to(self.device.dtype)

    def _place(self, batch: Batch) -> Shard:
        device: dict[str, Tensor] = {}
        host: dict[str, Tensor] = {}
        for name, array in batch.arrays.items():
            if isinstance(array, Draw):
                device[name] = self._draw(array)
                continue
            tensor = torch.from_numpy(array)
            if tensor.is_floating_point():
                tensor = tensor.to(self.device.dtype)
            host[name] = tensor
            if name.endswith("_length"):
                device[name] = tensor
            elif self.device.cuda:
                device[name] = tensor.pin_memory().to(self.device.torch, non_blocking=True)
            else:
                device[name] = tensor
        if self.device.run.layout == "channels_last" and "images" in device:
            device["images"] = device["images"].contiguous(memory_format=torch.channels_last)
        return Shard(batch, device, host)

    def close(self) -> None:
        """Stop fetching ahead."""
        if self.pool:
            self.pool.shutdown(cancel_futures=True)
