"""One Run in one PyTorch process whose one thread dispatches for all devices: build, warm up, time."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from multigpu.engines.torch.devices import give_back_memory
from multigpu.engines.torch.dispatch.build import build_trainer
from multigpu.engines.torch.dispatch.devices import Devices
from multigpu.engines.torch.dispatch.trainer import Context, Trainer
from multigpu.engines.torch.dispatch.wire import Wire
from multigpu.engines.torch.feed import Feed, Shard
from multigpu.engines.torch.row_feed import make_feed
from multigpu.engines.torch.tracing import Tracer
from multigpu.engines.torch.trainer import substituted
from multigpu.engines.torch.variables import distances
from multigpu.inputs.batch import Batch, Source
from multigpu.measure.session import Stage
from multigpu.measure.timing import run_window
from multigpu.run import Run
from multigpu.workloads import workloads


class Session:
    """A Run, from its building to the numbers of all its replicas. Every device has its own clock, the host one for all."""

    def __init__(self, run: Run, rank: int, threads: int, shared: Path, timeout_s: float, startup_s: float, stage: Stage) -> None:
        self.began = time.perf_counter()
        self.run, self.stage, self.threads, self.startup_s = run, stage, threads, startup_s
        self.source: Source = workloads()[run.workload].inputs[run.inputs](run, run.description)
        self.devices = Devices(run, threads)
        self.context = Context(run, self.devices, Wire(self.devices), self.source.capacity, shared)
        self.feeds = self._feeds()
        self.batches: dict[int, list[Batch]] = {}
        try:
            stage("build")
            self.trainer: Trainer = self._trainer()
            self.devices.synchronise()
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is the cause
                self.close()  # nobody else can: whoever asked for this session never got it
            raise
        self.build_s = time.perf_counter() - self.began

    def _feeds(self) -> list[Feed]:
        # a joined batch that is sliced lies on the first device
        sliced = self.context.placement.loss == "gpu0"
        copy_of = self.run.copy_of
        return [make_feed(self.source, copy_of(device.rank), self.devices.each[0] if sliced else device) for device in self.devices.each]

    def _trainer(self) -> Trainer:
        return build_trainer(self.context)

    def shards(self, index: int) -> list[Shard]:
        """The shard of every replica in step `index`; their counts are kept for the Record."""
        shards = [feed.shard(index) for feed in self.feeds]
        self.batches[index] = [replace(shard.batch, arrays={}) for shard in shards]
        return shards

    def step(self, index: int) -> list[torch.Tensor]:
        self.stage("step")
        return self.trainer.step(self.shards(index))

    def warm_up(self) -> None:
        """The first step, whose bytes are counted, and the rest of the warm-up."""
        began = time.perf_counter()
        self.stage("warm-up")

        def counted(index: int) -> list[torch.Tensor]:
            losses, self.moved = self.trainer.counted_step(self.shards(index))
            return losses

        self.first = run_window(counted, 0, 1, self.devices, lambda: None)
        self.warm = run_window(self.step, 1, self.run.warmup_steps - 1, self.devices, lambda: None)
        self.warmup_s = time.perf_counter() - began

    def time(self) -> list[dict[str, Any]]:
        """The timed steps, and all that is known of each replica, as plain numbers, by rank."""
        self.stage("timed")
        first = self.run.warmup_steps
        window = run_window(self.step, first, self.run.timed_steps, self.devices, lambda: None)
        states = [device.state() for device in self.devices.each]
        windows = (self.first, self.warm, window)
        steps = [self.devices.seconds_by_rank(a, b) for one in windows for a, b in pairwise(one.marks)]
        events = self.devices.seconds_by_rank(window.marks[0], window.marks[-1])
        results = [losses for one in windows for losses in one.results]
        parts = []
        for device, state in zip(self.devices.each, states, strict=True):
            rank = device.rank
            batches = [self.batches[index][rank] for index in range(first, first + self.run.timed_steps)]
            part = {
                "wall_s": window.wall_s,
                "event_s": events[rank],
                "steps": [round(step[rank], 7) for step in steps],
                "losses": torch.stack([losses[rank] for losses in results]).double().cpu().tolist(),
                "units": sum(b.units for b in batches) * self.run.leads(rank),
                "padded_units": sum(b.padded_units for b in batches) * self.run.leads(rank),
                "lookups": self.batches[0][rank].lookups,
                "moved": self.moved if rank == 0 else {},
                "peak_memory_gib": device.peak_memory_gib(),
                "held_gib": device.held_gib,
                "state": state.model_dump() if state else None,
                "threads": self.threads,
                "startup_s": self.startup_s,
                "build_s": self.build_s,
                "warmup_s": self.warmup_s,
                "substituted": substituted(self.run, device.torch),
                **distances(self.run, dict(self.trainer.owned(rank)), device.torch, device.dtype),
            }
            parts.append(part)
        if self.run.traced_steps:
            tracer = Tracer(self.run, [device.rank for device in self.devices.each])
            traces = tracer.trace(self.step, first + self.run.timed_steps, self.devices, lambda: None)
            for part, trace in zip(parts, traces, strict=True):
                part["trace"] = trace
        return parts

    def close(self) -> None:
        """Free what this Run holds; the process goes on to the next, whose peak of memory must not count this one's."""
        for feed in self.feeds:
            feed.close()
        self.devices.synchronise()  # copies may still be on their way to memory that is given back
        if hasattr(self, "trainer"):
            del self.trainer
        self.context.closing.close()
        give_back_memory(self.devices.cuda)
