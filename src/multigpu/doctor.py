"""What this machine can run, what is missing, and what each missing part would be needed for."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from multigpu.later import later
from multigpu.measure.libraries import tensorflow_environment
from multigpu.measure.machine import framework_version, gpu_count, this_machine
from multigpu.measure.process import NO_KERAS
from multigpu.placements import placements
from multigpu.record import RecordStore
from multigpu.workloads import workloads

PARTS = {
    "torch": "measuring with PyTorch",
    "tensorflow": "measuring with TensorFlow",
    "great_tables": "tables",
    "matplotlib": "figures",
    "papermill": "executing notebooks",
    "nbconvert": "the pages of a batch",
    "sphinx": "building the report",
    "myst_nb": "building the report",
    "sklearn": "the input 'digits'",
    "pynvml": "seeing GPUs, their clocks, power and temperature",
}


class Seen(NamedTuple):
    """What TensorFlow says of GPUs: whether it was built for them, how many it sees, and its last words if it says nothing else."""

    built: bool
    gpus: int
    trouble: str = ""


def ask_tensorflow(changes: Mapping[str, str]) -> Seen:
    """What TensorFlow sees in a process of its own with these changes of the environment; a few seconds.

    It counts a GPU only if it could open all of its libraries.
    """
    asked = "import tensorflow as tf; print(int(tf.test.is_built_with_cuda()), len(tf.config.list_physical_devices('GPU')))"
    environment = {**os.environ, **NO_KERAS, "TF_CPP_MIN_LOG_LEVEL": "3", **changes}
    try:
        done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, env=environment, timeout=300)
        built, gpus = done.stdout.split()[-2:]
        return Seen(bool(int(built)), int(gpus))
    except subprocess.TimeoutExpired:
        return Seen(False, 0, "it took more than 300 s")
    except ValueError:
        return Seen(False, 0, (done.stderr.strip().splitlines() or ["it left no message"])[-1][:200])


def tensorflow_lines(gpus: int, seen: Seen, changes: Mapping[str, str]) -> Iterator[str]:
    """Whether TensorFlow sees this machine's `gpus`, and what a shell or a notebook's kernel lacks for it: one line that exports it.

    seen: with `changes`, which the processes that measure are given.
    """
    if seen.trouble:
        yield f"tensorflow  does not start: {seen.trouble}"
    elif not seen.built:
        yield f"tensorflow  sees no GPU of {gpus}: it is the build for CPUs; the extra `tensorflow-gpu` brings the other"
    elif seen.gpus < gpus:
        yield (
            f"tensorflow  sees {seen.gpus} of {gpus} GPUs: of its libraries, CUDA 12's come with the extra `tensorflow-gpu`, cuDNN and "
            "NCCL with PyTorch for CUDA 13"
        )
    else:
        yield f"tensorflow  sees all {gpus} GPUs in the processes that measure"
    if changes and seen.built:
        yield "tensorflow  elsewhere needs this line in the shell, before Python or Jupyter starts:"
        yield "export " + " ".join(f"{name}={shlex.quote(value)}" for name, value in changes.items())


persistent_lines = later("multigpu.kernels.lstm_launch:persistent_lines")


def fused_lines() -> Iterator[str]:
    """Whether this machine's GPUs run batch norm in one piece with what follows it."""
    from multigpu.kernels import batch_norm, lstm_launch  # torch, which takes seconds

    for reason in sorted({batch_norm.library_instead(device) or "" for device in lstm_launch.devices()}):
        left = f"is left to the library where it is asked for: {reason}" if reason else "runs, its kernels built by Triton"
        yield f"fused       batch_norm 'fused' {left}"


def diagnose(store: RecordStore) -> Iterator[str]:
    """Lines for a person: devices, frameworks, what can run, what is missing, which Records are there."""
    machine = this_machine()
    yield f"machine     {machine.name}"
    yield f"CPU         {machine.cpu}, {machine.cores} cores, {machine.memory_gib} GiB"
    if gpu_count():
        linked = sum(row.count("NVLink") for row in machine.links)
        yield f"GPUs        {gpu_count()} x {machine.gpus[0]}, {machine.gpu_memory_gib[0]} GiB, driver {machine.driver}"
        yield f"links       NVLink between {linked // 2} pairs"
    else:
        yield "GPUs        none: Runs need device_type 'cpu', where processes stand in for devices"
    for framework in ("torch", "tensorflow"):
        yield f"{framework:<11} {framework_version(framework)}"
    if gpu_count() and framework_version("tensorflow") != "none":
        changes = tensorflow_environment(sys.path, os.environ)
        yield from tensorflow_lines(gpu_count(), ask_tensorflow(changes), changes)
    if gpu_count() and framework_version("torch") != "none":
        yield from persistent_lines()
        yield from fused_lines()
    for placement in placements().values():
        ways = "; ".join(f"{e.framework}, {e.processes} process, {'/'.join(e.executions)}" for e in placement.engines)
        yield f"placement   {placement.name}: {ways}"
    for workload in workloads().values():
        yield f"workload    {workload.name}: {', '.join(workload.models)}; inputs {', '.join(workload.inputs)}"
    missing = [f"{part} (for {use})" for part, use in PARTS.items() if importlib.util.find_spec(part) is None]
    yield f"missing     {', '.join(missing) or 'nothing'}"
    if os.path.isdir("/dev/shm"):
        free = shutil.disk_usage("/dev/shm").free / 2**30
        yield f"/dev/shm    {free:.1f} GiB free (placements with variables on the host keep them there)"
    try:
        statuses = Counter((record.machine.name, record.status) for record in store)
        for (name, status), count in sorted(statuses.items()):
            yield f"records     {count} {status} of {name}"
        if not statuses:
            yield "records     none yet: `python -m multigpu study` makes some"
    except ValueError as error:
        yield f"records     {error}"
    try:
        store.check_writable()
    except ValueError as error:
        yield f"records     {error}"
