"""Runs that tell whether lanes of one machine disturb each other: steps that the host launches call by call, and whole graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from multigpu.grid.entries import Planned, nmt, resnet50
from multigpu.grid.tensorflow import TENSORFLOW
from multigpu.measure.machine import framework_version
from multigpu.run import Run

COST_S = 5.0


def _cnn(model: str, batch: int, **more: Any) -> Run:
    common: dict[str, Any] = {"workload": "cnn", "model": model, "placement": "ddp", "layout": "channels_last", "precision": "bf16"}
    return Run(batch_size=batch, **(common | more))


def interference(devices: Sequence[int]) -> list[Planned]:
    """One GPU each: whole steps as one CUDA graph and steps launched kernel by kernel, large and small, of every workload of the
    documents, in both frameworks; two GPUs: all-reduces beside each other. Timed for about 1.5 s on an H200. Screening: the check
    repeats them itself.
    """
    captured = {"execution": "captured", "precision": "bf16"}
    runs: list[Run] = []
    if 1 in devices:
        runs += [
            resnet50("ddp", 1, 64, **captured, timed_steps=95),
            resnet50("ddp", 1, 32, precision="bf16", timed_steps=130),
            _cnn("alexnet", 512, timed_steps=100),
            _cnn("vgg16", 64, **captured, timed_steps=70),
            _cnn("resnet20", 128, timed_steps=150),
            nmt("ddp", 1, 128, precision="bf16", timed_steps=55),
            nmt("ddp", 1, 128, cross_entropy="fused", **captured, timed_steps=95),
            Run(workload="deepconn", model="deepconn", placement="ddp", batch_size=32, timed_steps=500),
            nmt("exp4", 1, 128, **TENSORFLOW, precision="tf32", timed_steps=40),
            resnet50("exp4", 1, 64, **TENSORFLOW, precision="bf16", timed_steps=60),
        ]
    if 2 in devices:
        runs += [
            resnet50("ddp", 2, 64, **captured, timed_steps=90),
            nmt("ddp", 2, 128, cross_entropy="fused", **captured, timed_steps=75),
        ]
    return [Planned(run, "screening", COST_S) for run in runs]


def interference_small(devices: Sequence[int]) -> list[Planned]:
    """The same check with small models on CPU processes, for any computer: its lanes are halves of the cores."""
    if 1 not in devices:
        return []
    common: dict[str, Any] = {"devices": 1, "device_type": "cpu", "warmup_steps": 3, "timed_steps": 10}
    runs = [
        Run(workload="cnn", model="resnet_tiny", placement="ddp", batch_size=4, **common),
        Run(workload="nmt", model="nmt_tiny", placement="ddp", batch_size=4, sequence_length=6, **common),
    ]
    if framework_version("tensorflow") != "none":
        runs.append(Run(workload="nmt", model="nmt_tiny", placement="exp4", batch_size=4, sequence_length=6, **(common | TENSORFLOW)))
    return [Planned(run, "screening", COST_S) for run in runs]
