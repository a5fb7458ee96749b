"""The machines that Records come from."""

from collections.abc import Iterable
from itertools import groupby

import pandas as pd

from multigpu.analysis.fields import columns
from multigpu.records.record import Record

OF_MACHINE = ("driver", "cpu", "cores", "memory_gib")
VERSIONS = ("torch", "cuda", "tensorflow")
MACHINE_COLUMNS = columns("machines")


def machines_frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row a machine, as its latest Record describes it, by name: `MACHINE_COLUMNS`; versions are
    "" where none of its Records used it.
    """
    rows = []
    ordered = sorted(records, key=lambda record: (record.machine.name, record.measured_at))
    for name, group in groupby(ordered, key=lambda record: record.machine.name):
        own = list(group)
        machine = own[-1].machine
        packages = dict(item for record in own for item in record.versions.items())
        found = {
            "machine": name,
            "gpus": len(machine.gpus),
            "gpu": next(iter(machine.gpus), ""),
            "records": len(own),
        }
        found |= {"first_day": own[0].measured_at[:10], "last_day": own[-1].measured_at[:10]}
        found["gpu_memory_gib"] = next(iter(machine.gpu_memory_gib), None) if machine.gpus else None
        found["links"] = ", ".join(
            dict.fromkeys(kind for row in machine.links for kind in row if kind != "self")
        )
        found |= {name: packages.get(name, "") for name in VERSIONS} | {
            "nccl": next((packages[one] for one in packages if "nccl" in one), "")
        }
        rows.append(found | {column: getattr(machine, column) for column in OF_MACHINE})
    return pd.DataFrame(rows, columns=list(MACHINE_COLUMNS))
