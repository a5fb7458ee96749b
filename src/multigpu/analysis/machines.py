"""The machines that Records come from, what each can do at best, and how two of them compare: tables of facts, a row each."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from multigpu.analysis.limits import ceilings
from multigpu.measure.machine import Machine
from multigpu.record import Record

MACHINE_COLUMNS = (
    *("machine", "gpus", "gpu", "gpu_memory_gib", "links", "driver", "cpu", "cores", "memory_gib", "kernel", "python", "environment"),
    *("torch", "cuda", "nccl", "tensorflow", "records", "first_day", "last_day"),
)


def machines_frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row a machine, as its latest Record describes it, by name: `MACHINE_COLUMNS`.

    links: kinds of links between GPUs, comma-joined. environment: the variables that matter, NAME=value. records: how many there are.
    torch, cuda, nccl, tensorflow: versions, "" where none of its Records used it.
    """
    latest: dict[str, Record] = {}
    days: dict[str, list[str]] = {}
    versions: dict[str, dict[str, str]] = {}
    for record in sorted(records, key=lambda record: record.measured_at):
        name = record.machine.name
        latest[name] = record
        days.setdefault(name, []).append(record.measured_at[:10])
        versions.setdefault(name, {}).update(record.versions)
    rows = [_row(latest[name].machine, versions[name], days[name]) for name in sorted(latest)]
    return pd.DataFrame(rows, columns=list(MACHINE_COLUMNS))


def _row(machine: Machine, versions: dict[str, str], days: list[str]) -> dict[str, object]:
    kinds = dict.fromkeys(kind for row in machine.links for kind in row if kind != "self")
    nccl = next((version for name, version in versions.items() if "nccl" in name), "")
    return {
        "machine": machine.name,
        "gpus": len(machine.gpus),
        "gpu": machine.gpus[0] if machine.gpus else "",
        "gpu_memory_gib": machine.gpu_memory_gib[0] if machine.gpus else None,
        "links": ", ".join(kinds),
        "driver": machine.driver,
        "cpu": machine.cpu,
        "cores": machine.cores,
        "memory_gib": machine.memory_gib,
        "kernel": machine.kernel,
        "python": machine.python,
        "environment": ", ".join(f"{name}={value}" for name, value in machine.environment.items()),
        **{name: versions.get(name, "") for name in ("torch", "cuda", "tensorflow")},
        "nccl": nccl,
        "records": len(days),
        "first_day": days[0],
        "last_day": days[-1],
    }


def ceilings_frame(gpu: str) -> pd.DataFrame:
    """The ceilings used for bounds on this GPU, a row each: quantity, value (FLOP/s or B/s), unit, how, source, date; empty where none
    is known.
    """
    rows = [(c.quantity, c.value, c.unit, c.how, c.source, c.date) for c in ceilings(gpu).values()]
    return pd.DataFrame(rows, columns=["quantity", "value", "unit", "how", "source", "date"])
