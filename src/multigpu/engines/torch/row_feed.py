"""Ways of feeding reviews that a Run can ask for: by the step's own thread, or one step ahead by another one."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from multigpu.engines.torch.devices import Device
from multigpu.engines.torch.feed import Feed, Shard
from multigpu.inputs.batch import Batch, Source


def make_feed(source: Source, rank: int, device: Device) -> Feed:
    """The feed that the device's Run asks for."""
    return RowFeed(source, rank, device, device.run.feed) if device.run.feed else Feed(source, rank, device)


class RowFeed(Feed):
    """A copy to the device in every step. Batches that repeat stay on the host as numpy arrays, or on the device with `mode` None.

    mode: "arrays": made and copied when the step asks, from memory that is not page-locked; the host waits, as with a feed_dict.
        "pipeline": made and copied one step ahead by another thread, from page-locked memory (also what None does with batches that
        do not repeat).
    """

    def __init__(self, source: Source, rank: int, device: Device, mode: str | None) -> None:
        # nothing of the other ways of feeding is made
        self.source, self.rank, self.device = source, rank, device
        self.keep = mode is None and bool(source.period)
        self.pipeline = not self.keep and mode != "arrays"
        self.waits: dict[int, float] = {}
        self.placed: dict[int, Shard] = {}
        self.ready: dict[int, Batch] = {}
        self.thread = ThreadPoolExecutor(max_workers=1) if self.pipeline else None
        self.next: tuple[int, Future[Shard]] | None = None

    def shard(self, step: int) -> Shard:
        """The shard of this replica in step `step`."""
        if self.keep:
            index = step % (self.source.period or 1)
            if index not in self.placed:
                self.placed[index] = self._made(step)
            return self.placed[index]
        began = time.perf_counter()
        if self.thread is None:
            shard = self._made(step)
        else:
            shard = self.next[1].result() if self.next and self.next[0] == step else self._made(step)
            self.next = (step + 1, self.thread.submit(self._made, step + 1))
        self.waits[step] = time.perf_counter() - began
        return shard

    def _made(self, step: int) -> Shard:
        if not self.source.period:
            return self.put(self.source.batch(step, self.rank))
        index = step % self.source.period
        if index not in self.ready:
            self.ready[index] = self.source.batch(index, self.rank)
        return self.put(self.ready[index])

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

    def close(self) -> None:
        """Stop fetching ahead."""
        if self.thread:
            self.thread.shutdown(cancel_futures=True)


def plain_arrays(batch: Batch) -> dict[str, np.ndarray]:
    """A batch's arrays, which must be numbers of the host: reviews are never drawn on a device."""
    return {name: array for name, array in batch.arrays.items() if isinstance(array, np.ndarray)}
