"""From a Source to tensors where the step wants them, and how long the step waited."""

import contextlib
import queue
import threading
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from multigpu.engines.torch.devices import Device
from multigpu.engines.torch.loader import Ready, Workers, tensors_of
from multigpu.inputs.batch import Batch, Draw, Feeding, Source, plain_arrays
from multigpu.inputs.encoded import PIXEL_SCALE, PIXEL_SHIFT
from multigpu.workloads.tensors import of_kind


@lru_cache
def _pixel_constants(device: torch.device) -> tuple[Tensor, Tensor]:
    """Return a pixel's scale and shift, (3, 1, 1) each, kept on their device."""
    scale, shift = (
        torch.tensor(numbers, device=device).reshape(3, 1, 1)
        for numbers in (PIXEL_SCALE, PIXEL_SHIFT)
    )
    return scale, shift


def normalised(pixels: Tensor, dtype: torch.dtype) -> Tensor:
    """Pixels (B, h, w, 3), uint8, as the model takes them: (B, 3, h, w), channels last."""
    scale, shift = _pixel_constants(pixels.device)
    return pixels.permute(0, 3, 1, 2).to(torch.float32).mul_(scale).sub_(shift).to(dtype)


@dataclass(frozen=True)
class Shard:
    """One replica's part of a step, on the device and, for what the host must read, on the host;
    lengths stay on the host in both.
    terms: on the device, how many terms the shard's loss sums and how many the global batch's;
        None: the host's numbers hold.
    """

    batch: Batch
    device: dict[str, Tensor]
    host: dict[str, Tensor]
    terms: Tensor | None = None


class Thread(Feeding[Ready]):
    """Batches made by a thread of this process, one ahead of the step that asks."""

    def __init__(self, source: Source, rank: int) -> None:
        super().__init__(source, "pipeline")
        self.ranks = (rank,)

    def put_all(self, batches: list[Batch]) -> Ready:
        (batch,) = batches
        return tensors_of(batch), replace(batch, arrays={})


class Ahead:
    """A thread that places up to `run.prefetch` batches before their step asks."""

    def __init__(self, feed: "Feed", first: int) -> None:
        self.feed, self.first = feed, first
        run = feed.device.run
        self.placed: queue.Queue[Any] = queue.Queue()
        # for batches that are placed, or being placed, and not asked for
        self.room = threading.Semaphore(run.prefetch)
        self.ended = threading.Event()
        self.computing = torch.cuda.current_stream(feed.device.torch) if feed.device.cuda else None
        self.stream = torch.cuda.Stream(feed.device.torch) if run.staging else self.computing
        self.thread = threading.Thread(target=self._work, name="input", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        step = self.first
        try:
            while True:
                self.room.acquire()
                if self.ended.is_set():
                    return
                with torch.cuda.stream(self.stream) if self.stream else contextlib.nullcontext():
                    shard = self.feed.place(self.feed.host.given(step))
                    event = self.stream.record_event() if self.stream else None
                self.placed.put((step, shard, event))
                step += 1
        except Exception as error:
            self.placed.put((step, error, None))

    def get(self, step: int) -> Shard:
        found, shard, event = self.placed.get()
        if isinstance(shard, Exception):
            raise shard
        assert found == step
        if event is not None and self.stream is not self.computing:
            stream = torch.cuda.current_stream(self.feed.device.torch)
            stream.wait_event(event)
            for tensor in shard.device.values():
                if tensor.is_cuda:
                    # its memory is not given back while the step reads it
                    tensor.record_stream(stream)
        self.first = step + 1
        self.room.release()
        return shard

    def close(self) -> None:
        """End the thread, which may still have to finish a batch."""
        self.ended.set()
        self.room.release()
        while self.thread.is_alive():
            with contextlib.suppress(queue.Empty):
                self.placed.get(timeout=0.05)


class Feed:
    """One replica's shards, kept if they repeat, else made ahead. waits: step -> seconds."""

    def __init__(self, source: Source, rank: int, device: Device) -> None:
        self.source, self.rank, self.device = source, rank, device
        self.kept: dict[int, Shard] = {}
        self.waits: dict[int, float] = {}
        self.ahead: Ahead | None = None
        if not source.period:
            self.host: Thread | Workers = (
                Thread(source, rank)
                if device.run.input_workers is None
                else Workers(device.run, rank)
            )

    def shard(self, step: int) -> Shard:
        if self.source.period:
            index = step % self.source.period
            if index not in self.kept:
                self.kept[index] = self._kept(self.source.batch(index, self.rank))
            return self.kept[index]
        began = time.perf_counter()
        shard = (
            self._staged(step) if self.device.run.prefetch else self.place(self.host.given(step))
        )
        self.waits[step] = time.perf_counter() - began
        return shard

    def wait_s(self, steps: int) -> list[float]:
        return [round(self.waits[step], 7) for step in range(steps)] if self.waits else []

    def settle(self) -> None:
        """Wait until the batch that is made ahead is made."""
        if not self.source.period and isinstance(self.host, Feeding):
            self.host.settle()

    def _staged(self, step: int) -> Shard:
        if self.ahead is None or self.ahead.first != step:
            if self.ahead:
                self.ahead.close()
            self.ahead = Ahead(self, step)
        return self.ahead.get(step)

    def _draw(self, law: Draw) -> Tensor:
        generator = torch.Generator(device=self.device.torch).manual_seed(law.seed)
        if law.law == "labels":
            return torch.randint(
                law.classes, law.shape, generator=generator, device=self.device.torch
            )
        return torch.randn(
            law.shape, generator=generator, device=self.device.torch, dtype=torch.float32
        ).to(self.device.dtype)

    def _kept(self, batch: Batch) -> Shard:
        drawn = {
            name: self._draw(array)
            for name, array in batch.arrays.items()
            if isinstance(array, Draw)
        }
        stored = {name: array for name, array in batch.arrays.items() if name not in drawn}
        placed = self.place((tensors_of(replace(batch, arrays=stored)), batch))
        return Shard(batch, self._laid_out(placed.device | drawn), placed.host)

    def place(self, ready: Ready) -> Shard:
        """The tensors on the device; copies to a GPU may still be under way."""
        tensors, batch = ready
        device: dict[str, Tensor] = {}
        host: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            tensor = of_kind(tensor, self.device.dtype)
            host[name] = tensor
            if self.device.cuda and not name.endswith("_length"):
                locked = tensor if tensor.is_pinned() else tensor.pin_memory()
                device[name] = locked.to(self.device.torch, non_blocking=True)
            else:
                device[name] = tensor
        if self.device.run.image_dtype:
            device["images"] = normalised(device["images"], self.device.dtype)
        return Shard(batch, self._laid_out(device), host)

    def _laid_out(self, device: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.device.run.layout == "channels_last" and "images" in device:
            device["images"] = device["images"].contiguous(memory_format=torch.channels_last)
        elif self.device.run.image_dtype:  # pixels arrive with their channels together
            device["images"] = device["images"].contiguous()
        return device

    def close(self) -> None:
        if self.ahead:
            self.ahead.close()
        if not self.source.period:
            self.host.close()


class RowFeed(Feeding[Shard], Feed):
    """Reviews of one replica, one step ahead and page-locked, or copied when asked for."""

    def __init__(self, source: Source, rank: int, device: Device, mode: str | None) -> None:
        # nothing of the other ways of feeding is made
        Feeding.__init__(self, source, mode)
        self.rank, self.ranks, self.device = rank, (rank,), device

    def shard(self, step: int) -> Shard:
        return self.given(step)

    def put_all(self, batches: list[Batch]) -> Shard:
        (batch,) = batches
        return self.put(batch)

    def put(self, batch: Batch) -> Shard:
        host = {name: self.tensor(array) for name, array in plain_arrays(batch).items()}
        return Shard(
            batch,
            {name: self.to_device(tensor, self.device.torch) for name, tensor in host.items()},
            host,
        )

    def tensor(self, array: np.ndarray) -> torch.Tensor:
        """An array as a tensor on the host, in the Run's type where it is floating-point."""
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        return tensor.to(self.device.dtype) if tensor.is_floating_point() else tensor

    def to_device(self, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        """A copy of a host's tensor on `device`, even where that is the host itself."""
        if device.type == "cpu":
            return tensor.clone()
        if self.pipeline:
            return tensor.pin_memory().to(device, non_blocking=True)
        return tensor.to(device)
