"""Which ways of feeding the grid declares and no Record has yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pandas as pd

from multigpu.analysis.feeding import SOURCES, crossing_text, stream_text, workers_text
from multigpu.analysis.picture import Shown, folded
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import FRAMEWORK_NAMES, MODEL_NAMES, joined
from multigpu.conditions import ON_DEVICE
from multigpu.grid import device_counts, find_grid
from multigpu.record import Record
from multigpu.run import Run

GRID = "inputs"

KINDS: dict[str, Callable[[Run], bool]] = {
    "no batch ahead": lambda run: run.inputs not in ON_DEVICE and run.framework == "torch" and not run.prefetch,
    "one batch ahead": lambda run: run.inputs not in ON_DEVICE and run.framework == "torch" and run.prefetch == 1,
    "copies on the step's own stream": lambda run: run.inputs not in ON_DEVICE and run.framework == "torch" and not run.staging,
    "`tf.data`": lambda run: run.inputs not in ON_DEVICE and run.framework == "tensorflow",
    "a trace": lambda run: run.traced_steps > 0,
}
"""Ways of feeding that a Run may be of, in words."""


def declared(records: Iterable[Record]) -> tuple[list[Run], list[Run]]:
    """The Runs that the grid declares for the machines of these Records, and those of them that no ok Record has.

    Both are empty without GPUs.
    """
    known = list(records)
    sizes = sorted({len(record.machine.gpus) for record in known} - {0})
    every = {entry.run.digest: entry.run for gpus in sizes for entry in find_grid(GRID, device_counts(gpus))}
    planned = list(every.values())
    done = {record.run.digest for record in known if record.status == "ok"}
    return planned, [run for run in planned if run.digest not in done]


def missing_ways(records: Iterable[Record]) -> Shown:
    """What the grid declares and has not been measured: how much, of which kinds nothing, and every one of them folded."""
    planned, absent = declared(records)
    if not absent:
        return Shown("")
    measured = [run for run in planned if run not in absent]
    never = [name for name, holds in KINDS.items() if any(map(holds, planned)) and not any(map(holds, measured))]
    nothing = f", among them all with {', '.join(never[:-1])}{' or ' if len(never) > 1 else ''}{never[-1]}" if never else ""
    counts = joined([str(count) for count in sorted({run.devices for run in planned})])
    said = f"Not yet measured: {len(absent)} of the {len(planned)} Runs that the grid `{GRID}` declares for {counts} GPUs{nothing}."
    table = table_html(pd.DataFrame(_rows(absent)), note="Each a Run that is planned and has no Record yet.", wide=["job"])
    return folded(said, table)


def _rows(absent: list[Run]) -> list[dict[str, str]]:
    """A row a way of feeding a job, with the numbers of workers and of devices on which it lacks."""
    found: dict[tuple[tuple[str, str], ...], dict[int, list[str]]] = {}
    for run in absent:
        fields = pd.Series({name: getattr(run, name) for name in ("inputs", "framework", "staging", "image_dtype", "input_workers")})
        job = [MODEL_NAMES.get(run.model, run.model), f"batch {run.batch_size}", run.precision, run.execution]
        job += [FRAMEWORK_NAMES[run.framework]] if run.framework != "torch" else []
        cells = {
            "job": ", ".join(job),
            "images": SOURCES[run.inputs],
            "ahead": "" if run.inputs in ON_DEVICE else str(run.prefetch),
            "copied on": stream_text(fields),
            "cross as": crossing_text(fields),
            "traced": "yes" if run.traced_steps else "",
        }
        found.setdefault(tuple(cells.items()), {}).setdefault(run.devices, []).append(workers_text(fields))
    rows = []
    for way, by_devices in found.items():
        same: dict[tuple[str, ...], list[int]] = {}
        for devices, workers in by_devices.items():
            same.setdefault(tuple(sorted(workers, key=lambda text: (len(text), text))), []).append(devices)
        rows += [
            {
                "job": dict(way)["job"],
                "GPUs": joined([str(count) for count in sorted(counts)]),
                "images": dict(way)["images"],
                "workers a device": joined(workers),
                **dict(way),
            }
            for workers, counts in same.items()
        ]
    return rows
