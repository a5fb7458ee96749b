"""The machines that Records come from, what each can do at best, and how two of them compare: tables of facts, a row each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields
from itertools import groupby

import pandas as pd

from multigpu.analysis.limits import Ceiling, ceilings
from multigpu.record import Record

OF_MACHINE = ("driver", "cores", "memory_gib")
VERSIONS = {"torch": "torch", "tensorflow": "tensorflow", "nccl": "nvidia-nccl"}
"""Columns, and how the names of their packages begin."""
MACHINE_COLUMNS = ("machine", "gpus", "gpu", "gpu_memory_gib", "links", *OF_MACHINE, *VERSIONS, "records")


def machines_frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row a machine, as its latest Record describes it, by name: `MACHINE_COLUMNS`.

    links: kinds of links between GPUs, comma-joined. records: how many there are. torch, tensorflow, nccl: versions, "" where none of its
    Records used it.
    """
    rows = []
    ordered = sorted(records, key=lambda record: (record.machine.name, record.measured_at))
    for name, group in groupby(ordered, key=lambda record: record.machine.name):
        own = list(group)
        machine, packages = own[-1].machine, dict(item for record in own for item in record.versions.items())
        found = {"machine": name, "gpus": len(machine.gpus), "gpu": next(iter(machine.gpus), ""), "records": len(own)}
        found |= {"gpu_memory_gib": next(iter(machine.gpu_memory_gib), None) if machine.gpus else None}
        found |= {"links": ", ".join(dict.fromkeys(kind for row in machine.links for kind in row if kind != "self"))}
        found |= {column: next((packages[one] for one in packages if one.startswith(begins)), "") for column, begins in VERSIONS.items()}
        rows.append(found | {column: getattr(machine, column) for column in OF_MACHINE})
    return pd.DataFrame(rows, columns=list(MACHINE_COLUMNS))


def ceilings_frame(gpu: str) -> pd.DataFrame:
    """The ceilings used for bounds on this GPU, a row each: quantity, value (FLOP/s or B/s), unit, how, source, date; empty where none
    is known.
    """
    return pd.DataFrame([asdict(ceiling) for ceiling in ceilings(gpu).values()], columns=[field.name for field in fields(Ceiling)])
