"""One Run on one replica: build, agree, warm up, agree, time, verify."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from multigpu.engines.errors import DidNotTrain
from multigpu.engines.torch.build import build_trainer
from multigpu.engines.torch.devices import Device
from multigpu.engines.torch.feed import Feed, Shard
from multigpu.engines.torch.trainer import Context, Trainer
from multigpu.engines.torch.variables import initial_values
from multigpu.engines.torch.wire import Wire, barrier
from multigpu.inputs.batch import Batch, Source
from multigpu.measure.timing import clock_flags, run_window, training_fault
from multigpu.placements import find_placement
from multigpu.placements.traffic import predicted_bytes
from multigpu.record import Measurement
from multigpu.run import Run
from multigpu.workloads import workloads

Stage = Callable[[str], None]


def load_hook(path: str | None) -> Callable[[str, Run, int], None]:
    """The function that a plan's `hook` names, or one that does nothing."""
    if not path:
        return lambda stage, run, rank: None
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


class Session:
    """A replica's side of one Run, from its building to the numbers it contributes to the Record."""

    def __init__(self, run: Run, rank: int, threads: int, shared: Path, timeout_s: float, startup_s: float, stage: Stage) -> None:
        self.began = time.perf_counter()
        self.run, self.rank, self.stage, self.threads, self.startup_s = run, rank, stage, threads, startup_s
        self.source: Source = workloads()[run.workload].inputs[run.inputs](run, run.description)
        self.device = Device(run, rank, threads)
        self.wire = Wire(rank, run.devices)
        self.context = Context(run, rank, self.device, self.wire, self.source.capacity, shared, timeout_s)
        self.feed = Feed(self.source, rank, self.device)
        self.batches: dict[int, Batch] = {}
        stage("build")
        self.trainer: Trainer = build_trainer(self.context)
        self.device.synchronise()
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
        """The first step, whose bytes are counted, and the rest of the warm-up."""
        began = time.perf_counter()
        self.stage("warm-up")

        def counted(index: int) -> torch.Tensor:
            loss, self.moved = self.trainer.counted_step(self.shard(index))
            return loss

        self.first = run_window(counted, 0, 1, self.device, barrier)
        self.warm = run_window(self.step, 1, self.run.warmup_steps - 1, self.device, barrier)
        self.warmup_s = time.perf_counter() - began

    def time(self) -> dict[str, Any]:
        """The timed steps, and all that this replica knows about them, as plain numbers."""
        self.stage("timed")
        first = self.run.warmup_steps
        window = run_window(self.step, first, self.run.timed_steps, self.device, barrier)
        state = self.device.state()
        losses = torch.stack([*self.first.results, *self.warm.results, *window.results]).double().cpu().tolist()
        batches = [self.batches[index] for index in range(first, first + self.run.timed_steps)]
        return {
            "wall_s": window.wall_s,
            "event_s": window.event_s,
            "steps": [round(t, 7) for t in [*self.first.step_time_s, *self.warm.step_time_s, *window.step_time_s]],
            "losses": losses,
            "units": sum(b.units for b in batches),
            "padded_units": sum(b.padded_units for b in batches),
            "lookups": self.batches[0].lookups,
            "moved": self.moved,
            "peak_memory_gib": self.device.peak_memory_gib(),
            "state": state.model_dump() if state else None,
            "threads": self.threads,
            "startup_s": self.startup_s,
            "build_s": self.build_s,
            "warmup_s": self.warmup_s,
            **self._distances(),
        }

    def _distances(self) -> dict[str, Any]:
        """How far each variable whose master this replica holds is from its start, and a fingerprint of where it is."""
        owned = dict(self.trainer.owned())
        moved, start_square, prints = {}, 0.0, {}
        for variable, initial in initial_values(self.run.description, self.run.seed, self.device.torch, self.device.dtype):
            value = owned.get(variable.name)
            if value is None:
                continue
            value = value.detach().to(self.device.torch)
            moved[variable.name] = float(torch.linalg.vector_norm(value - initial, dtype=torch.float64))
            start_square += float(torch.linalg.vector_norm(initial, dtype=torch.float64)) ** 2
            prints[variable.name] = float(value.sum(dtype=torch.float64))
        return {"distance": moved, "start_square": start_square, "prints": prints}

    def close(self) -> None:
        """Free what this Run holds; the process goes on to the next."""
        self.feed.close()
        if hasattr(self, "trainer"):
            self.trainer.close()
            del self.trainer


def joined_losses(run: Run, parts: list[dict[str, Any]]) -> list[float]:
    """The loss of each step over all replicas: shares of the joined mean add up; independent replicas are averaged."""
    scale = 1 / run.devices if find_placement(run.placement).semantics.kind == "independent" else 1.0
    return [scale * sum(step) for step in zip(*(part["losses"] for part in parts), strict=True)]


def measurement(run: Run, parts: list[dict[str, Any]], total_s: float) -> Measurement:
    """The Record's measurement from every replica's numbers.

    Raises:
        DidNotTrain: the steps were no training; the message says why.
    """
    placement = find_placement(run.placement)
    losses = joined_losses(run, parts)
    moved = {name: distance for part in parts for name, distance in part["distance"].items()}
    agree = None
    if placement.variables == "replica" and placement.semantics.kind != "independent":
        agree = all(part["prints"] == parts[0]["prints"] for part in parts)
    fault = training_fault(losses, moved, agree)
    if fault:
        raise DidNotTrain(fault)
    counted: dict[str, int] = {}
    for part in parts:
        for kind, count in part["moved"].items():
            counted[kind] = counted.get(kind, 0) + count
    item = 8 if run.precision == "fp64" else 4
    predicted = predicted_bytes(placement, run.description.variables, parts[0]["lookups"], item)
    counted = {kind: count for kind, count in counted.items() if count}
    wall_s = max(part["wall_s"] for part in parts)
    events = [part["event_s"] for part in parts]
    flags = clock_flags(wall_s, events)
    if counted != predicted:
        flags.append(f"moved bytes {counted} differ from the prediction {predicted}")
    masters = parts[:1] if placement.variables == "replica" else parts
    start = sum(part["start_square"] for part in masters) ** 0.5
    change = sum(d**2 for part in masters for d in part["distance"].values()) ** 0.5
    return Measurement(
        wall_s=wall_s,
        units=sum(part["units"] for part in parts),
        padded_units=sum(part["padded_units"] for part in parts),
        step_time_s=[part["steps"] for part in parts],
        event_time_s=events,
        loss=[float(f"{loss:.7g}") for loss in losses],
        peak_memory_gib=[round(part["peak_memory_gib"], 4) for part in parts],
        moved_bytes=counted,
        predicted_bytes=predicted,
        parameter_change=change / start,
        replicas_agree=agree,
        host_threads=parts[0]["threads"],
        startup_s=round(max(part["startup_s"] for part in parts), 3),
        build_s=max(part["build_s"] for part in parts),
        warmup_s=max(part["warmup_s"] for part in parts),
        total_s=total_s,
        device_states=[part["state"] for part in parts if part["state"]],
        flags=flags,
    )
