"""Planted Records: valid ones with a chosen speed, so that analysis can be tested on numbers worked
out by hand.
"""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np

from multigpu.build import build_run
from multigpu.machine.machine import DeviceState, Machine
from multigpu.placements import find_placement
from multigpu.placements.resolve import shard_sizes
from multigpu.placements.step_bytes import step_bytes
from multigpu.placements.traffic import predicted_bytes
from multigpu.records.record import Measurement, Record, RecordStore
from multigpu.spec.parallel import PARTITIONED
from multigpu.spec.run import Run
from multigpu.workloads import description_of
from multigpu.workloads.stages import graph_of

DEFAULTS: dict[str, dict[str, Any]] = {
    "nmt": {"model": "nmt000", "batch_size": 128, "sequence_length": 100, "precision": "bf16"},
    "cnn": {
        "model": "resnet50_v1.5",
        "batch_size": 64,
        "layout": "channels_last",
        "precision": "bf16",
    },
    "deepconn": {"model": "deepconn", "batch_size": 32},
    "own": {},
    "stacks": {"model": "mlp42m", "batch_size": 1024, "precision": "bf16"},
    "gpt": {"model": "gpt2_124m", "batch_size": 16, "precision": "bf16"},
}
"""What a Run takes where the caller does not say otherwise."""
UNITS_PER_SAMPLE = {"words": 100, "images": 1, "reviews": 1, "samples": 1, "tokens": 1024}


def make_machine(gpus: int = 8, name: str | None = None, gpu: str = "NVIDIA H200") -> Machine:
    """A machine with `gpus` equal GPUs, all linked; none makes it a CPU machine of two cores."""
    return Machine(
        name=name or (f"{gpus}x-nvidia-h200" if gpus else "2x-cpu-planted"),
        gpus=[gpu] * gpus,
        gpu_memory_gib=[140.4] * gpus,
        driver="570.0" if gpus else "",
        links=[["self" if i == j else "NVLink" for j in range(gpus)] for i in range(gpus)],
        cpu="Planted CPU",
        cores=128 if gpus else 2,
        memory_gib=560.0 if gpus else 16.0,
        kernel="6.1.0",
        python="3.11.7",
        environment={},
    )


def make_record(
    placement: str = "ddp",
    devices: int = 2,
    units_per_s: float = 1e6,
    repeat: int = 0,
    launch_id: str = "a",
    measurement: dict[str, Any] | None = None,
    **fields: Any,
) -> Record:
    """A Record whose throughput is `units_per_s`, of all devices together.

    Units are those of the timed steps; the first warm-up step takes 30 times as long as a timed
    one, the next two 3 times.

    Args:
        measurement: fields of `Measurement` to plant instead of the computed ones.
        fields: of `Record`, or of `Run`; what is left out of a Run comes from `DEFAULTS` of its
            workload ("nmt" unless named).
    """
    told = {name: fields.pop(name) for name in Record.model_fields if name in fields}
    workload = fields.get("workload", "nmt")
    run = build_run(
        **{
            "workload": workload,
            **DEFAULTS[workload],
            "placement": placement,
            "devices": devices,
            **fields,
        }
    )
    told = {
        "machine": make_machine(8 if run.device_type == "cuda" else 0),
        "versions": {"torch": "2.13.0", "tensorflow": "2.21.0"},
        "status": "ok",
        "reason": "" if told.get("status", "ok") == "ok" else "planted",
        "timing_version": 1,
        "measured_at": "2026-01-02T03:04:05+00:00",
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "clean_tree": True,
        "input_label": "synthetic",
    } | told
    return Record(
        key=Record.key_for(
            run,
            repeat,
            told["machine"].name,
            told["versions"].get(run.framework, "none"),
            told["timing_version"],
        ),
        run=run,
        repeat=repeat,
        launch_id=launch_id,
        measurement=_measurement(run, units_per_s, measurement or {})
        if told["status"] == "ok"
        else None,
        **told,
    )


def _measurement(run: Run, units_per_s: float, planted: dict[str, Any]) -> Measurement:
    unit = description_of(run).unit
    per_sample = (
        2 * run.sequence_length
        if unit == "words" and run.sequence_length
        else UNITS_PER_SAMPLE[unit]
    )
    units = sum(shard_sizes(run)) * per_sample * run.timed_steps
    wall_s = units / float(units_per_s)
    step_s = wall_s / run.timed_steps
    steps = [30 * step_s, 3 * step_s, 3 * step_s][: run.warmup_steps] + [step_s] * (
        max(0, run.warmup_steps - 3) + run.timed_steps
    )
    tables = [v.name for v in description_of(run).variables if v.kind == "embedding"]
    lookups = [
        dict.fromkeys(tables, size * (run.sequence_length or 50)) for size in shard_sizes(run)
    ]
    compute = find_placement(run.placement).compute
    graph = graph_of(run) if compute == "stage" else None
    moved = (
        step_bytes(run, description_of(run), lookups, graph=graph)
        if graph or compute in PARTITIONED
        else predicted_bytes(find_placement(run.placement), description_of(run).variables, lookups)
    )
    gpus = run.devices if run.device_type == "cuda" else 0
    values: dict[str, Any] = {
        "wall_s": wall_s,
        "units": units,
        "padded_units": units,
        "step_time_s": [steps] * run.devices,
        "event_time_s": [wall_s] * run.devices,
        "loss": [
            round(float(x), 6) for x in np.linspace(10, 8, run.warmup_steps + run.timed_steps)
        ],
        "peak_memory_gib": [1.5] * run.devices,
        "moved_bytes": moved,
        "predicted_bytes": moved,
        "parameter_change": 0.01,
        "replicas_agree": True,
        "host_threads": 4,
        "startup_s": 2.5,
        "build_s": 1.0,
        "warmup_s": sum(steps[: run.warmup_steps]),
        "total_s": 2.0 + sum(steps),
        "device_states": [
            DeviceState(sm_clock_mhz=1980, memory_clock_mhz=3201, power_w=500.0, temperature_c=50)
        ]
        * gpus,
    }
    return Measurement(**(values | planted))


def make_point(
    rates: Sequence[float], launches: Sequence[str] = "aabba", **fields: Any
) -> list[Record]:
    """One Record a rate: the repeats of one point, over the launches named in turn (two by
    default).
    """
    each = enumerate(zip(rates, cycle(launches), strict=False))
    return [
        make_record(units_per_s=rate, repeat=repeat, launch_id=launch, **fields)
        for repeat, (rate, launch) in each
    ]


def plant(store: RecordStore, records: Sequence[Record]) -> RecordStore:
    """`store` with the records written to it."""
    for record in records:
        store.write(record)
    return store
