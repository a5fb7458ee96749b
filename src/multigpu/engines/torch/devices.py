"""Devices of a process, GPUs or stand-ins: precision, events, memory, their order."""

import contextlib
import gc
import os
import resource
import statistics
import time
from collections.abc import Iterable
from typing import Any

import torch

from multigpu.machine.machine import DeviceState, device_state
from multigpu.placements import row_of
from multigpu.spec.run import Run
from multigpu.workloads import description_of
from multigpu.workloads.tensors import DTYPES

# precision -> the type that autocast computes in
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def random_seed(seed: int, rank: int) -> int:
    """The seed of a replica's own random numbers: one for all would be one dropout mask."""
    return seed * 1_000_003 + 7919 * rank + 1


def local_device(run: Run, rank: int) -> int:
    """The number of replica `rank`'s device on its host, each of which counts from 0."""
    if run.processes == "one":
        return run.chosen_devices[rank]
    return run.chosen_devices[rank % int(os.environ.get("LOCAL_WORLD_SIZE", run.devices))]


def give_back_memory(cuda: bool) -> None:
    """Give an ended Run's memory back, cuBLAS' workspaces (32 MiB a stream) too: the next Run would
    count it.
    """
    gc.collect()
    if cuda:
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()


class Device:
    """Replica `rank`'s device under the settings of one Run."""

    shared_bytes = 0  # of symmetric memory, which PyTorch's allocator does not count

    def __init__(self, run: Run, rank: int, threads: int) -> None:
        self.run, self.rank = run, rank
        self.cuda = run.device_type == "cuda"
        self.index = local_device(run, rank)
        self.torch = torch.device("cuda", self.index) if self.cuda else torch.device("cpu")
        self.dtype = DTYPES[run.precision]
        torch.set_num_threads(threads)
        # of the host and of this device alone: one process may have several
        torch.default_generator.manual_seed(random_seed(run.seed, rank))
        if self.cuda:
            torch.cuda.set_device(self.torch)
            torch.cuda.manual_seed(random_seed(run.seed, rank))
            allowed = run.precision in ("tf32", "bf16_params", *AUTOCAST)
            torch.backends.cuda.matmul.allow_tf32 = allowed
            torch.backends.cudnn.allow_tf32 = allowed
            # let cuDNN time its algorithms in the warm-up steps, as every published CNN benchmark
            # does (sentences change their shapes). What it finds is a thread's: nn.DataParallel,
            # whose threads end with the step, would time them again in each step
            row = row_of(run.placement)  # None: a reference, which places nothing
            again = row is not None and row.copied_anew and run.devices > 1
            images = description_of(run).unit != "words"
            torch.backends.cudnn.benchmark = images and not again
            torch.cuda.reset_peak_memory_stats(self.torch)
        # by whatever ran before in this process
        self.held_gib = torch.cuda.memory_allocated(self.torch) / 2**30 if self.cuda else 0.0

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.run.precision not in AUTOCAST:
            return contextlib.nullcontext()
        return torch.autocast(self.torch.type, dtype=AUTOCAST[self.run.precision])

    def mark(self) -> Any:
        """A point on the device's time line: an event; on a CPU, the host's clock."""
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds_between(self, first: Any, last: Any) -> float:
        return first.elapsed_time(last) / 1000 if self.cuda else last - first

    def synchronise(self) -> None:
        if self.cuda:
            torch.cuda.synchronize(self.torch)

    def peak_memory_gib(self) -> float:
        """Most memory held since the Run began, symmetric too; on a CPU the peak resident set."""
        if self.cuda:
            return (torch.cuda.max_memory_allocated(self.torch) + self.shared_bytes) / 2**30
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20

    def launch_s(self) -> float | None:
        """Median time of a small kernel's launch over five rounds of 400; None on a CPU."""
        if not self.cuda:
            return None
        value, rounds = torch.zeros(8, device=self.torch), []
        for _ in range(5):
            self.synchronise()
            began = time.perf_counter()
            for _ in range(400):
                value.add_(1.0)
            rounds.append((time.perf_counter() - began) / 400)
        self.synchronise()
        return round(statistics.median(rounds), 9)

    def state(self) -> DeviceState | None:
        return device_state(self.index) if self.cuda else None


Point = tuple[int, Any]  # a replica, and an event on its device's stream


class Devices:
    """The devices of one process's replicas, by rank; it is number `process` of `processes`."""

    def __init__(self, each: list[Device]) -> None:
        self.each, self.ranks = each, [device.rank for device in each]
        self.cuda, self.dtype = each[0].cuda, each[0].dtype
        self.processes, self.process = each[0].run.devices // len(each), self.ranks[0] // len(each)
        if self.cuda:
            torch.cuda.set_device(each[0].torch)  # each device made itself the current one

    def of(self, rank: int) -> Device:
        return self.each[rank - self.ranks[0]]

    def at(self, rank: int) -> contextlib.AbstractContextManager[Any]:
        """Inside, replica `rank`'s device is the current one."""
        if self.cuda and len(self.each) > 1:
            return torch.cuda.device(self.of(rank).torch)
        return contextlib.nullcontext()

    def mark(self) -> list[Any]:
        marks = []
        for device in self.each:
            with self.at(device.rank):
                marks.append(device.mark())
        return marks

    def seconds_between(self, first: list[Any], last: list[Any]) -> float:
        """The longest time between two marks over all devices, after `synchronise`."""
        return max(self.seconds_by_rank(first, last))

    def seconds_by_rank(self, first: list[Any], last: list[Any]) -> list[float]:
        return [
            device.seconds_between(a, b)
            for device, a, b in zip(self.each, first, last, strict=True)
        ]

    def synchronise(self) -> None:
        for device in self.each:
            device.synchronise()

    def points(self, ranks: Iterable[int]) -> list[Point]:
        """Where these devices' streams are now; nothing on CPUs, which have finished."""
        if self.cuda:
            return [
                (rank, torch.cuda.current_stream(self.of(rank).torch).record_event())
                for rank in ranks
            ]
        return []

    def wait(self, rank: int, points: list[Point]) -> None:
        """Let what device `rank` is asked from now on begin after `points`."""
        for other, event in points:
            if other != rank:  # one stream keeps its own order
                torch.cuda.current_stream(self.of(rank).torch).wait_event(event)
