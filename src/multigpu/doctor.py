"""What this machine can run, what is missing, and what each missing part would be needed for."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections import Counter
from collections.abc import Iterator

from multigpu.measure.machine import framework_version, gpu_count, this_machine
from multigpu.placements import placements
from multigpu.record import RecordStore
from multigpu.workloads import workloads

PARTS = {
    "torch": "measuring with PyTorch",
    "tensorflow": "measuring with TensorFlow",
    "pandera": "analysis and claims",
    "great_tables": "tables",
    "matplotlib": "figures",
    "papermill": "executing notebooks",
    "sphinx": "building the report",
    "myst_nb": "building the report",
    "sklearn": "the input 'digits'",
    "pynvml": "seeing GPUs, their clocks, power and temperature",
}


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
