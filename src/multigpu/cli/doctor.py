"""Report what this machine can run, what is missing, and what each missing part would be needed
for.
"""

import argparse
import contextlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from multigpu.analysis.templates import macros_of
from multigpu.cli.measure import store_of
from multigpu.lazy import lazy
from multigpu.machine.machine import (
    find_nvml,
    framework_version,
    gpu_count,
    gpu_handle,
    peers,
    this_machine,
)
from multigpu.machine.private_network import OPEN_PORTS, why_not
from multigpu.machine.process import NO_KERAS, tensorflow_environment
from multigpu.machine.surroundings import GpuLook, gpu_look
from multigpu.placements import placements
from multigpu.plugins import one_by_one
from multigpu.records.record import RecordStore
from multigpu.runner.hosts.launching import PORT
from multigpu.spec.tables import table
from multigpu.workloads import workloads

TEXT = macros_of("multigpu.cli", "doctor.j2")
SLOW_LAUNCH_US = 12
"""Hosts of the study's H200s took 7 to 11 us (data/benchmarks/wrapped_gpt.csv)."""


class Seen(NamedTuple):
    """Devices and libraries that TensorFlow reports: whether it was built for GPUs, how many it
    sees, and its last words if it says nothing else.
    """

    built: bool
    gpus: int
    trouble: str = ""


def ask_tensorflow(changes: Mapping[str, str]) -> Seen:
    """Ask TensorFlow what it sees in a process with these changes of the environment: a GPU counts
    only if all of its libraries could be opened.
    """
    asked = (
        "import tensorflow as tf; print(int(tf.test.is_built_with_cuda()),"
        " len(tf.config.list_physical_devices('GPU')))"
    )
    environment = {**os.environ, **NO_KERAS, "TF_CPP_MIN_LOG_LEVEL": "3", **changes}
    try:
        done = subprocess.run(
            [sys.executable, "-c", asked],
            capture_output=True,
            text=True,
            env=environment,
            timeout=300,
        )
        built, gpus = done.stdout.split()[-2:]
        return Seen(bool(int(built)), int(gpus))
    except subprocess.TimeoutExpired:
        return Seen(False, 0, "it took more than 300 s")
    except ValueError:
        return Seen(
            False, 0, (done.stderr.strip().splitlines() or ["it left no message"])[-1][:200]
        )


def tensorflow_lines(gpus: int, seen: Seen, changes: Mapping[str, str]) -> list[str]:
    """Return whether TensorFlow sees this machine's GPUs with the `changes` that measuring
    processes get, and the line that exports these.
    """
    export = " ".join(f"{name}={shlex.quote(value)}" for name, value in changes.items())
    return said("tensorflow", gpus=gpus, seen=seen, export=export)


persistent_lines = lazy("multigpu.kernels.lstm_launch:persistent_lines")
tried_lines = lazy("multigpu.kernels.tried:tried_lines")


def fused_lines() -> Iterator[str]:
    """Whether this machine's GPUs run batch norm in one piece with what follows it."""
    from multigpu.kernels import batch_norm, lstm_launch  # torch, which takes seconds

    for reason in sorted(
        {batch_norm.library_instead(device) or "" for device in lstm_launch.devices()}
    ):
        yield from said("fused", reason=reason)


def link_lines(links: Sequence[Sequence[str]], peers: Sequence[Sequence[bool]]) -> list[str]:
    """Return how each two GPUs are linked, and which cannot read each other's memory: what these
    exchange passes through the host.
    """
    pairs = list(combinations(range(len(links)), 2))
    if not pairs:
        return []
    kinds = Counter(links[a][b] for a, b in pairs)
    without = [f"{a} and {b}" for a, b in pairs if not (peers[a][b] and peers[b][a])]
    return said("links", kinds=kinds.most_common(), without=without, over_pcie=bool(kinds["PCIe"]))


def most_clock_mhz(index: int) -> int:
    """The clock that a GPU's multiprocessors can reach, MHz; 0 where NVML does not say."""
    nvml = find_nvml()
    with contextlib.suppress(Exception):
        return int(nvml.nvmlDeviceGetMaxClockInfo(gpu_handle(index), nvml.NVML_CLOCK_SM))
    return 0


def clock_lines(looks: Sequence[GpuLook | None], most_mhz: Sequence[int]) -> list[str]:
    """Return at what clock each GPU is, of what it can, and which of them is slowed or shared
    now.
    """
    seen = {place: look for place, look in enumerate(looks) if look}
    return said("clocks", seen=seen, most_mhz=most_mhz)


def port_lines() -> list[str]:
    """Return the addresses that a launch here would listen on, and who could reach them."""
    are_open = os.environ.get(OPEN_PORTS) == "1"
    return said("ports", why=why_not(), are_open=are_open, port=PORT)


def diagnose(store: RecordStore) -> Iterator[str]:
    """Lines for a person: devices, frameworks, what can run, what is missing, which Records are
    there.
    """
    machine = this_machine()
    yield f"machine     {machine.name}"
    yield f"CPU         {machine.cpu}, {machine.cores} cores, {machine.memory_gib} GiB"
    if gpu_count():
        gpus = range(gpu_count())
        yield (
            f"GPUs        {gpu_count()} x {machine.gpus[0]}, {machine.gpu_memory_gib[0]} GiB,"
            f" driver {machine.driver}"
        )
        yield from link_lines(
            machine.links,
            [[one == other or bool(peers(one, other, "READ")) for other in gpus] for one in gpus],
        )
        yield from clock_lines(
            [gpu_look(index, []) for index in gpus], [most_clock_mhz(index) for index in gpus]
        )
    else:
        yield from said("no_gpus")
    yield from thread_lines(machine.cores, gpu_count() or 2, os.environ.get("OMP_NUM_THREADS"))
    yield from worker_lines(machine.cores, gpu_count() or 2)
    if framework_version("torch") != "none":
        yield from launch_lines(launch_us(), bool(gpu_count()))
    yield from port_lines()
    for framework in ("torch", "tensorflow"):
        yield f"{framework:<11} {framework_version(framework)}"
    if gpu_count() and framework_version("tensorflow") != "none":
        changes = tensorflow_environment(sys.path, os.environ)
        yield from tensorflow_lines(gpu_count(), ask_tensorflow(changes), changes)
    if gpu_count() and framework_version("torch") != "none":
        yield from tried_lines()
        yield from persistent_lines()
        yield from fused_lines()
    for placement in placements().values():
        ways = "; ".join(
            f"{e.framework}, {e.processes} process, {'/'.join(e.executions)}"
            for e in placement.engines
        )
        yield f"placement   {placement.name}: {ways}"
    for workload in workloads().values():
        yield (
            f"workload    {workload.name}: {', '.join(workload.models)}; inputs"
            f" {', '.join(workload.inputs)}"
        )
    missing = [
        f"{row['package']} (for {row['use']})"
        for row in table(Path(__file__).with_name("doctor_parts.csv"))
        if importlib.util.find_spec(row["package"]) is None
    ]
    yield f"missing     {', '.join(missing) or 'nothing'}"
    yield from (f"packages    {broken}" for broken in one_by_one()[1])
    if os.path.isdir("/dev/shm"):
        yield from said("shared_memory", free_gib=shutil.disk_usage("/dev/shm").free / 2**30)
    try:
        statuses = Counter((record.machine.name, record.status) for record in store)
        for (name, status), count in sorted(statuses.items()):
            yield f"records     {count} {status} of {name}"
        if not statuses:
            yield "records     none yet: `python -m multigpu study` makes some"
        store.check_writable()
    except ValueError as error:
        yield f"records     {error}"


def doctor_command(arguments: argparse.Namespace) -> int:
    """Print what this machine can run."""
    for line in diagnose(store_of(arguments)):
        print(line)
    return 0


def said(part: str, **facts: Any) -> list[str]:
    """Return the lines that `doctor.j2` makes of the facts about one part of a machine."""
    return [line for line in TEXT(part, **facts).splitlines() if line]


def thread_lines(cores: int, processes: int, told: str | None) -> list[str]:
    """Return how many threads each process of a launch computes with, and whether what the
    environment asks for exceeds the cores. told: its OMP_NUM_THREADS.
    """
    number = None if not told else int(told) if told.isdecimal() else 0
    each = max(1, cores // processes)
    return said("threads", cores=cores, processes=processes, each=each, told=number)


def launch_us(launches: int = 2000) -> float:
    """Return what one launch of a small kernel costs the host, in us; on a CPU, one operation."""
    torch = importlib.import_module("torch")  # seconds
    place = torch.zeros(1, device="cuda" if torch.cuda.is_available() else "cpu")
    for _ in range(100):
        place.add_(1)
    begun = time.perf_counter()
    for _ in range(launches):
        place.add_(1)
    return 1e6 * (time.perf_counter() - begun) / launches


def launch_lines(each_us: float, on_gpus: bool) -> list[str]:
    """Return what launches cost this host, and what that means for a step of many kernels."""
    return said("launches", each_us=each_us, on_gpus=on_gpus, slow_us=SLOW_LAUNCH_US)


def worker_lines(cores: int, processes: int) -> list[str]:
    """Return how many input workers the cores have room for."""
    return said("workers", cores=cores, processes=processes, room=cores // processes - 1)
