"""One Run in PyTorch, on this process's replicas: build, warm up, time, and energy."""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from multigpu.engines.common.context import RunSession
from multigpu.engines.common.numbers import ReplicaNumbers
from multigpu.engines.common.session import Opening
from multigpu.engines.common.timing import run_window
from multigpu.engines.ready import KEPT, ready_step_s
from multigpu.engines.torch.build import build_trainer
from multigpu.engines.torch.captured import CapturedTrainer
from multigpu.engines.torch.devices import Device, give_back_memory
from multigpu.engines.torch.feed import Feed, RowFeed, Shard
from multigpu.engines.torch.tracing import trace, waiting_for_input
from multigpu.engines.torch.trainer import open_rank, substituted
from multigpu.engines.torch.variables import distances
from multigpu.engines.torch.wire import barrier, largest
from multigpu.machine.machine import EnergyWindow, total_energy_j
from multigpu.placements.resolve import dims_of, semantics_of
from multigpu.spec.errors import Unsupported


class Session(RunSession):
    """together: whether this process dispatches for all replicas, with one clock of the host."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self.together = self.run.processes == "one"
        self.context = open_rank(opening, self.source.capacity)
        self.devices = self.context.devices
        self.feeds = self._feeds()
        self.build(self._trainer)

    def _feeds(self) -> list[Feed]:
        """Each replica's shards; a global batch that is sliced lies on the first device."""
        sliced = self.context.placement.loss == "gpu0" or self.run.slicing is not None
        mode = self.run.feed
        places = [
            (self.shard_of(own.rank), self.device if sliced else own) for own in self.devices.each
        ]
        return [
            RowFeed(self.source, *place, mode) if mode else Feed(self.source, *place)
            for place in places
        ]

    def shard_of(self, rank: int) -> int:
        return dims_of(self.run).copy_of(rank)

    def _trainer(self) -> Any:
        trainer = build_trainer(self.context)
        return CapturedTrainer(trainer) if self.context.captured else trainer

    @property
    def device(self) -> Device:
        return self.devices.each[0]

    def shards(self, index: int) -> list[Shard]:
        return self.counted(index, [feed.shard(index) for feed in self.feeds])

    def step(self, index: int) -> list[Tensor]:
        """Each replica's share of the loss."""
        self.stage("step")
        with waiting_for_input():
            shards = self.shards(index)
        return self.trainer.step(shards)

    def waits(self, steps: int) -> list[list[float]]:
        """Of each shard, what its first `steps` steps waited for their batch, s; [] if kept."""
        return [feed.wait_s(steps) for feed in self.feeds]

    def settle(self) -> None:
        """Wait until the threads that make batches ahead are at rest."""
        for feed in self.feeds:
            feed.settle()

    def warm_up(self) -> None:
        began = time.perf_counter()
        self.stage("warm-up")

        cycle, moved = semantics_of(self.run).every, Counter[str]()

        def counted(index: int) -> list[Tensor]:
            losses, own = self.trainer.counted_step(self.shards(index))
            moved.update(own)
            return losses

        self.first = run_window(counted, 0, cycle, self.devices, barrier)
        self.warm = run_window(
            self.step, cycle, self.run.warmup_steps - cycle, self.devices, barrier
        )
        self.moved = dict(moved)
        self.warmup_s = time.perf_counter() - began

    def time(self) -> Sequence[Mapping[str, Any]]:
        self.stage("timed")
        run, skipped = self.run, [self.trainer.skipped_steps()]
        window = run_window(self.step, run.warmup_steps, run.timed_steps, self.devices, barrier)
        states = [device.state() for device in self.devices.each]
        skipped.append(self.trainer.skipped_steps())
        windows = (self.first, self.warm, window)
        steps = [
            self.devices.seconds_by_rank(a, b) for one in windows for a, b in pairwise(one.marks)
        ]
        events = self.devices.seconds_by_rank(window.marks[0], window.marks[-1])
        results = [losses for one in windows for losses in one.results]
        last = run.warmup_steps + run.timed_steps
        parts: list[ReplicaNumbers] = []
        waits = self.waits(last)
        for place, (device, state) in enumerate(zip(self.devices.each, states, strict=True)):
            part: ReplicaNumbers = {
                **self.part(place, window, state),
                "event_s": events[place],
                "steps": [round(step[place], 7) for step in steps],
                "losses": (
                    torch.stack([losses[place] for losses in results]).double().cpu().tolist()
                ),
                "peak_memory_gib": device.peak_memory_gib(),
                "held_gib": device.held_gib,
                "skipped": None if skipped[1] is None else skipped,
                "input_wait": waits[place] if place < len(waits) else [],  # stages share a shard
                "substituted": substituted(run, device.torch),
                **distances(  # type: ignore[typeddict-item] # `part` brings no other
                    run,
                    dict(self.trainer.owned(device.rank)),
                    device.torch,
                    device.dtype,
                    self.trainer.piece,
                ),
            }
            parts.append(part)
        for part, device in zip(parts, self.devices.each, strict=True):
            part["launch_s"] = device.launch_s()
        ready_s = ready_step_s(self, last, window.wall_s / run.timed_steps, barrier, largest)
        if ready_s is not None:
            for part in parts:
                part["ready_s"] = ready_s
            last += KEPT
        if run.energy_window_s:
            energy = measure_energy(self, last, largest(window.wall_s) / run.timed_steps)
            parts[0]["energy"], last = energy.model_dump(), last + energy.steps
        if run.traced_steps:
            model = getattr(getattr(self.trainer, "module", None), "model", None)
            traces = trace(run, self.devices.ranks, self.step, last, self.devices, barrier, model)
            for part, traced in zip(parts, traces, strict=True):
                part["trace"] = traced
        return parts

    def close(self) -> None:
        """Free what this Run holds: it must not count in the next Run's peak of memory."""
        if self.together:
            # copies may still be on their way to memory that is given back
            self.devices.synchronise()
        for feed in self.feeds:
            feed.close()
        if hasattr(self, "trainer"):
            self.trainer.close()
            del self.trainer
        self.context.closing.close()
        if self.together:
            give_back_memory(self.devices.cuda)


SPARE = 1.1  # steps beyond those that the last ones say fill the window: some may be faster


def measure_energy(
    session: Session,
    first: int,
    step_time_s: float,
    counter: Callable[[int], float | None] = total_energy_j,
    clock: Callable[[], float] = time.perf_counter,
) -> EnergyWindow:
    """Train from step `first` on for at least `energy_window_s` seconds of every replica's clock,
    all the same number of steps, which the shortest window decides. step_time_s: of a timed step,
    equal on all. counter: device -> joules so far; None (`Unsupported`): none.
    """
    wanted = session.run.energy_window_s
    assert wanted
    if counter(session.device.index) is None:
        raise Unsupported(
            f"GPU {session.device.index} has no counter of energy that NVML could read: leave"
            " energy_window_s out"
        )
    session.device.synchronise()
    barrier()
    start_j, began = counter(session.device.index), clock()
    steps, left_s = 0, float(wanted)
    while left_s > 0:
        more = math.ceil(SPARE * left_s / step_time_s)
        run_window(session.step, first + steps, more, session.device, barrier)
        steps += more
        end_j, window_s = counter(session.device.index), clock() - began
        least_s = -largest(-window_s)
        left_s, step_time_s = wanted - least_s, least_s / steps
    assert start_j is not None and end_j is not None
    units = sum(
        batch.units for index in range(first, first + steps) for batch in session.batches[index]
    )
    return EnergyWindow(window_s=window_s, start_j=start_j, end_j=end_j, steps=steps, units=units)
