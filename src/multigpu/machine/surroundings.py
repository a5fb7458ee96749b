"""Watch what else a machine did around one Run: load of its cores, other processes on its GPUs,
clocks and temperature. Imports no framework.
"""

import contextlib
import os
import time
from typing import Any

import psutil

from multigpu.machine.machine import find_nvml, gpu_handle
from multigpu.spec.schema import Data

SHARE_VARIABLE = "MULTIGPU_DISTURBED_AT"
"""A share of the cores: a Run beside which other processes used more of them was disturbed."""

SHARE = 0.1
GLANCE_S = 0.1  # how long cores are looked at before a Run begins

SLOWED = {
    "HwSlowdown": "hardware slowdown",
    "SwThermalSlowdown": "heat",
    "HwThermalSlowdown": "heat",
    "HwPowerBrakeSlowdown": "power brake",
}
"""NVML's reasons for a low clock that the work did not cause: the power limit is not here."""


class GpuLook(Data):
    """One GPU at one moment. others: processes on it that are not this launch's, as NVML tells.
    slowed: why its clock is held down.
    """

    sm_clock_mhz: int
    temperature_c: int
    others: int = 0
    slowed: list[str] = []


class Surroundings(Data):
    """Around one Run, building included. before, after: its GPUs, by rank; empty where NVML has
    nothing to say.
    cores: that its processes may use. before_cores, during_cores: how many of them others used, on
        average, just before and while it ran.
    """

    cores: int
    before_cores: float
    during_cores: float
    before: list[GpuLook] = []
    after: list[GpuLook] = []

    @property
    def disturbances(self) -> list[str]:
        """The reasons to measure this Run again, in words."""
        found = []
        if self.during_cores > float(os.environ.get(SHARE_VARIABLE, SHARE)) * self.cores:
            found.append(f"disturbed: others used {self.during_cores:.1f} of {self.cores} cores")
        for rank, look in enumerate(self.after):
            if others := max([look.others, *(one.others for one in self.before[rank : rank + 1])]):
                found.append(
                    f"disturbed: {others} other process{'es' if others > 1 else ''} on the GPU of"
                    f" rank {rank}"
                )
            if look.slowed:
                why = ", ".join(look.slowed)
                found.append(
                    f"throttled: GPU of rank {rank} at {look.sm_clock_mhz} MHz and"
                    f" {look.temperature_c} °C ({why})"
                )
        return found


class SurroundingsWatch:
    """From its making until `seen`: what others than the tree of processes below `root` did
    here.
    """

    def __init__(self, devices: tuple[int, ...], root: int) -> None:
        self.devices, self.root = devices, root
        first = self._count()
        time.sleep(GLANCE_S)
        self.start = self._count()
        self.before_cores, self.before = _others(first, self.start), self._looks()

    def _looks(self) -> list[GpuLook]:
        return [look for index in self.devices if (look := gpu_look(index, self._tree()))]

    def _tree(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self.root)
            return [root, *root.children(recursive=True)]
        return []

    def _count(self) -> tuple[float, float, float]:
        """Now, seconds that this process's cores were busy since they started, and those of them
        that the tree used.
        """
        cores = os.sched_getaffinity(0)
        every = psutil.cpu_times(percpu=True)
        busy = sum(
            _busy(times)
            for core, times in enumerate(every)
            if core in cores or len(every) <= max(cores)
        )
        return time.monotonic(), busy, sum(map(_used, self._tree()))

    def seen(self) -> Surroundings:
        during_cores = _others(self.start, self._count())
        cores, before_cores = len(os.sched_getaffinity(0)), self.before_cores
        return Surroundings(
            cores=cores,
            before_cores=before_cores,
            during_cores=during_cores,
            before=self.before,
            after=self._looks(),
        )


def _others(start: tuple[float, float, float], end: tuple[float, float, float]) -> float:
    """Cores that others used between two counts."""
    seconds, busy, own = (after - before for before, after in zip(start, end, strict=True))
    return round(max(0.0, busy - own) / max(seconds, 1e-3), 3)


def _busy(times: Any) -> float:
    idle = times.idle + getattr(times, "iowait", 0.0)
    counted_twice = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle - counted_twice)


def _used(process: psutil.Process) -> float:
    """Seconds that a process used, with those of its children that have ended."""
    with contextlib.suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system + times.children_user + times.children_system)
    return 0.0


def gpu_look(index: int, tree: list[psutil.Process]) -> GpuLook | None:
    """One of the GPUs that this process may use, now; None where NVML has nothing to say of it."""
    if (handle := gpu_handle(index)) is None:
        return None
    nvml = find_nvml()
    own = {process.pid for process in tree}
    there: set[int] = set()
    slowed = 0
    with contextlib.suppress(nvml.NVMLError):
        there = {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    with contextlib.suppress(nvml.NVMLError):
        slowed = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    # in a container NVML names processes as the host does: then as many as there may be of this
    # launch's own are taken for them
    others = len(there - own) if there & own else max(0, len(there) - max(0, len(own) - 1))
    return GpuLook(
        sm_clock_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        temperature_c=nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        others=others,
        slowed=sorted(
            {
                word
                for name, word in SLOWED.items()
                if slowed & getattr(nvml, f"nvmlClocksThrottleReason{name}", 0)
            }
        ),
    )
