"""Planted CollectiveRecords: t = latency terms x alpha + busiest way / beta, so every figure can be
worked out by hand.
"""

from pathlib import Path

from multigpu.collectives import algorithms
from multigpu.machine.machine import Machine
from multigpu.records.collective import (
    CollectiveMeasurement,
    CollectiveRecord,
    CollectiveStore,
    bus_factor,
)
from multigpu.spec.collective import CollectiveRun, methods_for, repetition
from tests.factory import make_machine

ALPHA_S, BETA = 2e-6, 400e9


def machine(gpus: int = 8) -> Machine:
    return make_machine(gpus, None if gpus else "2x-cpu")


def make_record(
    method: str = "ring",
    size: int = 2**20,
    devices: int = 8,
    execution: str = "captured",
    status: str = "ok",
    repeat: int = 0,
    time_s: float | None = None,
    gpus: int = 8,
) -> CollectiveRecord:
    kind = "cuda" if gpus else "cpu"
    fields = {
        "method": method,
        "bytes": size,
        "devices": devices,
        "device_type": kind,
        "execution": execution,
    }
    run = CollectiveRun(**fields, **repetition(size, kind))
    here, cost = machine(gpus), None
    seconds = 10 * ALPHA_S + bus_factor(devices) * size / BETA
    if method in algorithms():
        cost = algorithms()[method].cost(run.elements, 4, devices)
        seconds = cost.latency_terms * ALPHA_S + cost.busiest_way_bytes / BETA
    samples = [(time_s or seconds) * share for share in (0.98, 1.0, 1.03)]
    return CollectiveRecord(
        key=CollectiveRecord.key_for(run, repeat, here.name, "2.11.0"),
        run=run,
        repeat=repeat,
        status=status,  # type: ignore[arg-type]
        reason="" if status == "ok" else "it did not work",
        machine=here,
        versions={"torch": "2.11.0"},
        launch_id=f"launch{repeat}",
        measured_at="2026-11-01T00:00:00+00:00",
        commit="0" * 40,
        clean_tree=True,
        measurement=CollectiveMeasurement(time_s=samples, counted=cost, predicted=cost, total_s=1.0)
        if status == "ok"
        else None,
    )


def study() -> list[CollectiveRecord]:
    """Every method from 4 B to 1 GiB on 8 GPUs."""
    return [make_record(method, 4**k) for method in methods_for("cuda") for k in range(1, 16)]


def plant(root: Path) -> CollectiveStore:
    store = CollectiveStore(root)
    for record in study():
        store.write(record)
    return store
