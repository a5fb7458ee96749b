"""Runs that tell whether machines with the same GPUs can be read as one: what such a machine should measure first."""

from __future__ import annotations

from collections.abc import Sequence

from multigpu.grid.entries import FEWEST, Planned, nmt, resnet50
from multigpu.run import Run


def same_gpus(devices: Sequence[int]) -> list[Planned]:
    """Points of the headline on one GPU and on two, which every machine can repeat: whole steps as one CUDA graph, large eager steps and
    one that its host bounds; merges by all-reduce, at one GPU and in shards.
    """
    bf16 = {"precision": "bf16"}
    captured = bf16 | {"execution": "captured"}
    runs: list[Run] = []
    if 1 in devices:
        runs += [
            resnet50("ddp", 1, 64, **captured),
            resnet50("ddp", 1, 256, **captured),
            nmt("ddp", 1, 128, **captured, cross_entropy="fused"),
            nmt("ddp", 1, 360, **bf16),
        ]
    if 2 in devices:
        runs += [
            resnet50("ddp", 2, 256, **bf16),
            resnet50("exp4", 2, 256, **bf16),
            resnet50("ps_gpu0", 2, 256, **bf16),
            nmt("ddp", 2, 128, **bf16),
            nmt("ddp", 2, 360, **bf16),
            nmt("independent", 2, 360, **bf16),
        ]
    return [Planned(run, "headline", 3.0, FEWEST) for run in runs]
