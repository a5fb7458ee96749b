"""One Run in PyTorch, on the replicas of this process: build, warm up, time."""

import contextlib
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from multigpu.engines.torch.build import build_trainer
from multigpu.engines.torch.captured import CapturedTrainer
from multigpu.engines.torch.devices import Device, give_back_memory
from multigpu.engines.torch.energy import measure_energy
from multigpu.engines.torch.feed import Feed, Shard, make_feed
from multigpu.engines.torch.tracing import Tracer
from multigpu.engines.torch.trainer import open_context, substituted
from multigpu.engines.torch.variables import distances
from multigpu.engines.torch.wire import barrier, largest
from multigpu.inputs.batch import Batch, Source
from multigpu.measure.session import Stage
from multigpu.measure.timing import run_window
from multigpu.run import Run
from multigpu.workloads import open_source


class Session:
    """One process's side of one Run, from its building to the numbers it contributes to the Record.

    together: whether this process has all replicas, for which its one thread dispatches: the host's clock is then one for all.
    """

    def __init__(self, run: Run, rank: int, threads: int, shared: Path, timeout_s: float, startup_s: float, stage: Stage) -> None:
        self.began = time.perf_counter()
        self.run, self.stage, self.threads, self.startup_s = run, stage, threads, startup_s
        self.source: Source = open_source(run)
        self.together = run.processes == "one"
        self.context = open_context(run, rank, threads, self.source.capacity, shared, timeout_s)
        self.devices = self.context.devices
        self.feeds = self._feeds()
        self.batches: dict[int, list[Batch]] = {}
        try:
            stage("build")
            self.trainer: Any = self._trainer()
            self.devices.synchronise()
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is the cause
                self.close()  # nobody else can: whoever asked for this session never got it
            raise
        self.build_s = time.perf_counter() - self.began

    def _feeds(self) -> list[Feed]:
        """Each replica's shards, where its step wants them: a joined batch that is sliced lies on the first device."""
        sliced = self.context.placement.loss == "gpu0"
        return [make_feed(self.source, self.shard_of(own.rank), self.device if sliced else own) for own in self.devices.each]

    def shard_of(self, rank: int) -> int:
        """Which part of every joined batch this replica trains on."""
        return self.run.copy_of(rank)

    def _trainer(self) -> Any:
        trainer = build_trainer(self.context)
        return CapturedTrainer(trainer) if self.context.captured else trainer

    @property
    def device(self) -> Device:
        """This process's first."""
        return self.devices.each[0]

    def shards(self, index: int) -> list[Shard]:
        """The shard of each replica in step `index`; their counts are kept for the Record."""
        shards = [feed.shard(index) for feed in self.feeds]
        self.batches[index] = [replace(shard.batch, arrays={}) for shard in shards]
        return shards

    def step(self, index: int) -> list[Tensor]:
        """Each replica's share of the loss."""
        self.stage("step")
        return self.trainer.step(self.shards(index))

    def warm_up(self) -> None:
        """The first step (or cycle of steps), whose bytes are counted, and the rest of the warm-up."""
        began = time.perf_counter()
        self.stage("warm-up")

        cycle, moved = self.run.semantics.every, Counter[str]()

        def counted(index: int) -> list[Tensor]:
            losses, own = self.trainer.counted_step(self.shards(index))
            moved.update(own)
            return losses

        self.first = run_window(counted, 0, cycle, self.devices, barrier)
        self.warm = run_window(self.step, cycle, self.run.warmup_steps - cycle, self.devices, barrier)
        self.moved = dict(moved)
        self.warmup_s = time.perf_counter() - began

    def time(self) -> list[dict[str, Any]]:
        """The timed steps, and all that is known of each replica in this process, as plain numbers, by rank."""
        self.stage("timed")
        run, first, skipped = self.run, self.run.warmup_steps, [self.trainer.skipped_steps()]
        window = run_window(self.step, first, run.timed_steps, self.devices, barrier)
        states = [device.state() for device in self.devices.each]
        skipped.append(self.trainer.skipped_steps())
        windows = (self.first, self.warm, window)
        steps = [self.devices.seconds_by_rank(a, b) for one in windows for a, b in pairwise(one.marks)]
        events = self.devices.seconds_by_rank(window.marks[0], window.marks[-1])
        results = [losses for one in windows for losses in one.results]
        last = first + run.timed_steps
        parts: list[dict[str, Any]] = []
        waits = [feed.wait_s(last) for feed in self.feeds]
        for place, (device, state) in enumerate(zip(self.devices.each, states, strict=True)):
            batches = [self.batches[index][place] for index in range(first, last)]
            leads = run.leads(device.rank)
            part = {
                "wall_s": window.wall_s,
                "event_s": events[place],
                "steps": [round(step[place], 7) for step in steps],
                "losses": torch.stack([losses[place] for losses in results]).double().cpu().tolist(),
                "units": sum(b.units for b in batches) * leads,
                "padded_units": sum(b.padded_units for b in batches) * leads,
                "lookups": self.batches[0][place].lookups,
                "moved": self.moved if place == 0 else {},
                "peak_memory_gib": device.peak_memory_gib(),
                "held_gib": device.held_gib,
                "state": state.model_dump() if state else None,
                "threads": self.threads,
                "skipped": None if skipped[1] is None else skipped,
                "startup_s": self.startup_s,
                "build_s": self.build_s,
                "warmup_s": self.warmup_s,
                "input_wait": waits[place] if place < len(waits) else [],  # stages share a shard
                "substituted": substituted(run, device.torch),
                **distances(run, dict(self.trainer.owned(device.rank)), device.torch, device.dtype, self.trainer.piece),
            }
            parts.append(part)
        if run.energy_window_s:
            energy = measure_energy(self, last, largest(window.wall_s) / run.timed_steps)
            parts[0]["energy"], last = energy.model_dump(), last + energy.steps
        if run.traced_steps:
            traces = Tracer(run, self.devices.ranks).trace(self.step, last, self.devices, barrier)
            parts = [part | {"trace": trace} for part, trace in zip(parts, traces, strict=True)]
        return parts

    def close(self) -> None:
        """Free what this Run holds; the process goes on to the next, whose peak of memory must not count this one's."""
        if self.together:
            self.devices.synchronise()  # copies may still be on their way to memory that is given back
        for feed in self.feeds:
            feed.close()
        if hasattr(self, "trainer"):
            self.trainer.close()
            del self.trainer
        self.context.closing.close()
        if self.together:
            give_back_memory(self.devices.cuda)
