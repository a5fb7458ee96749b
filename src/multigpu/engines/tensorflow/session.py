"""One Run in one TensorFlow process that dispatches for all its devices: build, warm up, time."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from multigpu.engines.context import RunSession
from multigpu.engines.tensorflow.build import build_trainer
from multigpu.engines.tensorflow.devices import Devices
from multigpu.engines.tensorflow.feed import DataFeed, Feed, Shard, is_even, make_feed
from multigpu.engines.tensorflow.tensorboard import folder_of, write_events
from multigpu.engines.tensorflow.tracing import trace
from multigpu.engines.tensorflow.trainer import Context, Trainer
from multigpu.engines.tensorflow.variables import squared_distance
from multigpu.inputs.encoded import EncodedImages
from multigpu.measure.session import Stage
from multigpu.measure.timing import run_window
from multigpu.run import Run


class Session(RunSession):
    """One process has one clock: step durations, and the window's, are the same for all replicas."""

    def __init__(self, run: Run, rank: int, threads: int, shared: Path, timeout_s: float, startup_s: float, stage: Stage) -> None:
        super().__init__(run, threads, startup_s, stage)
        self.strategy, self.devices = self._set_up(rank)
        dynamic = run.description.unit == "words" and self.source.period != 1 and run.batching != "fixed"
        self.context = Context(run, self.devices, is_even(self.source, len(run.shard_sizes)), dynamic, self.strategy)
        self.feed = self._feed()
        stage("build")
        self.trainer: Trainer = self._trainer()
        self.devices.synchronise()
        self.build_s = time.perf_counter() - self.began

    def _set_up(self, rank: int) -> tuple[Any, Devices]:
        """The strategy that must stand before all else in this process, or None, and the devices of this process."""
        return None, Devices(self.run)

    def _feed(self) -> Feed | DataFeed:
        if self.run.input_workers is None:
            return make_feed(self.source, self.devices)
        assert isinstance(self.source, EncodedImages)
        return DataFeed(self.source, self.devices)

    def _trainer(self) -> Trainer:
        return build_trainer(self.context)

    def barrier(self) -> None:
        """Meet the Run's other processes; there are none here."""

    def shards(self, index: int) -> list[Shard]:
        return self.counted(index, self.feed.shards(index))

    def step(self, index: int) -> None:
        """One step; the last of a window ends when every device has finished, so that the marks see it."""
        self.stage("step")
        self.trainer.step(self.shards(index))
        if index + 1 in (self.run.warmup_steps, self.run.warmup_steps + self.run.timed_steps):
            self.devices.synchronise()

    def warm_up(self) -> None:
        began = time.perf_counter()
        self.stage("warm-up")

        def counted(index: int) -> None:
            shards = self.shards(index)
            self.moved = self.trainer.counted_step(shards)
            self.gradient_rows = self.trainer.distinct_rows(shards) if self.context.sparse else None
            self.devices.synchronise()

        self.first = run_window(counted, 0, 1, self.devices, self.barrier)
        self.warm = run_window(self.step, 1, self.run.warmup_steps - 1, self.devices, self.barrier)
        self.warmup_s = time.perf_counter() - began

    def time(self) -> list[dict[str, Any]]:
        self.stage("timed")
        first = self.run.warmup_steps
        window = run_window(self.step, first, self.run.timed_steps, self.devices, self.barrier)
        states = [self.devices.state(rank) for rank in self.devices.ranks]
        losses = self.trainer.loss_shares()
        steps = [round(t, 7) for t in [*self.first.step_time_s, *self.warm.step_time_s, *window.step_time_s]]
        distances = self._distances()
        parts = []
        for place, (rank, state) in enumerate(zip(self.devices.ranks, states, strict=True)):
            part = {
                **self.part(place, window, state),
                "rank": rank,
                "clock": "host",
                "event_s": window.event_s,
                "steps": steps,
                "losses": losses[place],
                "gradient_rows": self.gradient_rows,
                "uncounted": self.trainer.uncounted,
                "peak_memory_gib": self.devices.peak_memory_gib(place),
                "input_wait": [round(wait, 7) for _, wait in sorted(self.feed.waits.items())],
                **distances[place],
            }
            parts.append(part)
        if logs := os.environ.get("MULTIGPU_TENSORBOARD"):
            write_events(self, steps, folder_of(self.run, Path(logs)))
        if self.run.traced_steps:
            traced = trace(self.trainer, self.step, first + self.run.timed_steps)
            parts = [part | {"trace": mine} for part, mine in zip(parts, traced, strict=True)]
        return parts

    def _distances(self) -> list[dict[str, Any]]:
        """Of each part: how far its variables are from their start, and fingerprints of where; the start is drawn anew, in one pass."""
        owned = [self.trainer.owned(place) for place in range(len(self.devices.ranks))]
        parts: list[dict[str, Any]] = [{"distance": {}, "start_square": 0.0, "prints": {}} for _ in owned]
        for variable, initial in self.trainer.initial():
            name = variable.name
            start_square = squared_distance(initial)
            for part, own in zip(parts, owned, strict=True):
                if name not in own:  # another device answers for it
                    continue
                value = own[name].numpy()
                part["distance"][name] = squared_distance(value, initial) ** 0.5
                part["start_square"] += start_square
                part["prints"][name] = float(value.sum(dtype=np.float64))
        return parts

    def close(self) -> None:
        self.feed.close()
        if hasattr(self, "trainer"):
            del self.trainer
