"""Grids for any computer: small models on CPU processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from multigpu.grid.batching import modes_small
from multigpu.grid.entries import EXPERIMENTS, SPINE_PLACEMENTS, Planned, Tier
from multigpu.grid.tensorflow import TENSORFLOW
from multigpu.measure.machine import framework_version
from multigpu.run import Run


def _small(device_type: Literal["cpu", "cuda"], devices: Sequence[int], tier: Tier) -> list[Planned]:
    planned = []
    for count in devices:
        for placement in SPINE_PLACEMENTS:
            common = {"placement": placement, "devices": count, "device_type": device_type, "warmup_steps": 5, "timed_steps": 20}
            nmt = Run(workload="nmt", model="nmt_small", batch_size=16, sequence_length=20, **common)  # type: ignore[arg-type]
            cnn = Run(workload="cnn", model="resnet_small", batch_size=16, layout="channels_last", **common)  # type: ignore[arg-type]
            planned += [Planned(nmt, tier, 2.0), Planned(cnn, tier, 2.0)]
    return planned


def cpu_study(devices: Sequence[int]) -> list[Planned]:
    """Small models on CPU processes over gloo: every part of the study in minutes, on any computer.

    Processes stand in for devices; figures say nothing about GPUs. Real text and real digits are among the inputs.
    """
    planned = _small("cpu", devices, "screening")
    for count in devices:
        common = {"devices": count, "device_type": "cpu", "placement": "ddp", "warmup_steps": 5, "timed_steps": 20}
        planned += [
            Planned(Run(workload="nmt", model="nmt_small", batch_size=16, inputs="lengths_000", **common), "screening", 4.0),  # type: ignore[arg-type]
            Planned(Run(workload="nmt", model="nmt_small", batch_size=16, inputs="catalogs", **common), "screening", 4.0),  # type: ignore[arg-type]
            Planned(Run(workload="cnn", model="resnet_small", batch_size=16, inputs="digits", **common), "screening", 3.0),  # type: ignore[arg-type]
            Planned(Run(workload="deepconn", model="deepconn_small", batch_size=32, **common), "screening", 2.0),  # type: ignore[arg-type]
        ]
    if 2 in devices:
        common = {"devices": 2, "device_type": "cpu", "placement": "exp4", "processes": "one", "warmup_steps": 5, "timed_steps": 20}
        one = Run(workload="nmt", model="nmt_small", batch_size=16, sequence_length=20, **common)  # type: ignore[arg-type]
        planned.append(Planned(one, "screening", 2.0))
    return planned + modes_small([count for count in devices if count > 1], ("shared", "fixed")) + _tensorflow_small(devices)


def _tensorflow_small(devices: Sequence[int]) -> list[Planned]:
    """A few TensorFlow points for any computer that has it: Exp1-Exp4 of document 000, and Exp4 as a loop of cells on the fewest devices,
    since tracing the loop costs more than all of its steps.
    """
    if framework_version("tensorflow") == "none":
        return []
    planned: list[Planned] = []
    for count in devices:
        common = {"workload": "nmt", "model": "nmt_small", "batch_size": 16, "sequence_length": 10, "devices": count, "device_type": "cpu"}
        steps = {"warmup_steps": 3, "timed_steps": 10}
        planned += [Planned(Run(placement=name, **common, **steps, **TENSORFLOW), "screening", 4.0) for name in EXPERIMENTS]  # type: ignore[arg-type]
        if count == min(devices):
            loop = Run(placement="exp4", recurrence="stepwise", **common, **steps, **TENSORFLOW)  # type: ignore[arg-type]
            planned.append(Planned(loop, "screening", 6.0))
    return planned
