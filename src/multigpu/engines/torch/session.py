"""One Run on one replica in PyTorch: build, warm up, time."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from multigpu.engines.torch.build import build_trainer
from multigpu.engines.torch.captured import CapturedTrainer
from multigpu.engines.torch.devices import Device
from multigpu.engines.torch.energy import measure_energy
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.row_feed import make_feed
from multigpu.engines.torch.tracing import Tracer
from multigpu.engines.torch.trainer import Context, Trainer, substituted
from multigpu.engines.torch.variables import distances
from multigpu.engines.torch.wire import Wire, barrier, largest
from multigpu.inputs.batch import Batch, Source
from multigpu.measure.session import Stage
from multigpu.measure.timing import run_window
from multigpu.run import Run
from multigpu.workloads import workloads


class Session:
    """A replica's side of one Run, from its building to the numbers it contributes to the Record."""

    def __init__(self, run: Run, rank: int, threads: int, shared: Path, timeout_s: float, startup_s: float, stage: Stage) -> None:
        self.began = time.perf_counter()
        self.run, self.rank, self.stage, self.threads, self.startup_s = run, rank, stage, threads, startup_s
        self.source: Source = workloads()[run.workload].inputs[run.inputs](run, run.description)
        self.device = Device(run, rank, threads)
        self.wire = Wire(rank, run.devices)
        self.context = Context(run, rank, self.device, self.wire, self.source.capacity, shared, timeout_s)
        self.feed = make_feed(self.source, run.copy_of(rank), self.device)
        self.batches: dict[int, Batch] = {}
        try:
            stage("build")
            self.trainer: Trainer = build_trainer(self.context)
            if self.context.captured:
                self.trainer = CapturedTrainer(self.trainer)
            self.device.synchronise()
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is the cause
                self.close()  # nobody else can: whoever asked for this session never got it
            raise
        self.build_s = time.perf_counter() - self.began

    def shard(self, index: int) -> Shard:
        """The shard of step `index`; its counts are kept for the Record."""
        shard = self.feed.shard(index)
        self.batches[index] = replace(shard.batch, arrays={})
        return shard

    def step(self, index: int) -> torch.Tensor:
        self.stage("step")
        return self.trainer.step(self.shard(index))

    def warm_up(self) -> None:
        """The first step (or cycle of steps), whose bytes are counted, and the rest of the warm-up."""
        began = time.perf_counter()
        self.stage("warm-up")

        cycle, moved = self.run.semantics.every, Counter[str]()

        def counted(index: int) -> torch.Tensor:
            loss, own = self.trainer.counted_step(self.shard(index))
            moved.update(own)
            return loss

        self.first = run_window(counted, 0, cycle, self.device, barrier)
        self.warm = run_window(self.step, cycle, self.run.warmup_steps - cycle, self.device, barrier)
        self.moved = dict(moved)
        self.warmup_s = time.perf_counter() - began

    def time(self) -> list[dict[str, Any]]:
        """The timed steps, and all that this replica knows about them, as plain numbers (a list of one part)."""
        self.stage("timed")
        skipped = [self.trainer.skipped_steps()]
        first = self.run.warmup_steps
        window = run_window(self.step, first, self.run.timed_steps, self.device, barrier)
        state = self.device.state()
        skipped.append(self.trainer.skipped_steps())
        losses = torch.stack([*self.first.results, *self.warm.results, *window.results]).double().cpu().tolist()
        batches = [self.batches[index] for index in range(first, first + self.run.timed_steps)]
        part = {
            "wall_s": window.wall_s,
            "event_s": window.event_s,
            "steps": [round(t, 7) for t in [*self.first.step_time_s, *self.warm.step_time_s, *window.step_time_s]],
            "losses": losses,
            "units": sum(b.units for b in batches) * self.run.leads(self.rank),
            "padded_units": sum(b.padded_units for b in batches) * self.run.leads(self.rank),
            "lookups": self.batches[0].lookups,
            "moved": self.moved,
            "peak_memory_gib": self.device.peak_memory_gib(),
            "held_gib": self.device.held_gib,
            "state": state.model_dump() if state else None,
            "threads": self.threads,
            "skipped": None if skipped[1] is None else skipped,
            "startup_s": self.startup_s,
            "build_s": self.build_s,
            "warmup_s": self.warmup_s,
            "substituted": substituted(self.run, self.device.torch),
            **distances(self.run, dict(self.trainer.owned()), self.device.torch, self.device.dtype, self.trainer.piece),
        }
        last = first + self.run.timed_steps
        part["input_wait"] = self.feed.wait_s(last)
        if self.run.energy_window_s:
            energy = measure_energy(self, last, largest(window.wall_s) / self.run.timed_steps)
            part["energy"], last = energy.model_dump(), last + energy.steps
        if self.run.traced_steps:
            tracer = Tracer(self.run, [self.rank])
            (part["trace"],) = tracer.trace(self.step, last, self.device, barrier)
        return [part]

    def close(self) -> None:
        """Free what this Run holds; the process goes on to the next."""
        self.feed.close()
        if hasattr(self, "trainer"):
            self.trainer.close()
            del self.trainer
        self.context.closing.close()
