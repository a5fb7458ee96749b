"""Effects of hardware: every GPU alone, every pair of GPUs, pairs without peer access, and energy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from multigpu.grid.entries import Planned, Tier, ends_of, resnet50
from multigpu.measure.machine import gpu_count
from multigpu.run import Run

WINDOW_S = 12
"""A fifth more than the shortest window that counts: a reading misses up to 0.1 s at either end."""
THREE = (0, 1, 2)
"""A launch a repeat: the page shows how far repeats lie apart, and no claim waits for more."""
ONE_GRAPH: dict[str, object] = {"precision": "bf16", "execution": "captured"}


def alexnet(placement: str, devices: int, **more: object) -> Run:
    """Document 001's model for its two tables on hardware, at its batch of 512 images a GPU."""
    fields: dict[str, object] = {"workload": "cnn", "model": "alexnet", "layout": "channels_last", "batch_size": 512}
    return Run(**(fields | {"placement": placement, "devices": devices} | more))  # type: ignore[arg-type]


def each_gpu(gpus: int) -> list[Planned]:
    """Every GPU alone: AlexNet as in document 001, and ResNet-50. Three repeats."""
    return [
        Planned(build, "headline", 2.5, THREE)
        for number in range(gpus)
        for build in (
            alexnet("ddp", 1, device_ids=str(number), **ONE_GRAPH),
            resnet50("ddp", 1, 64, device_ids=str(number), **ONE_GRAPH),
        )
    ]


def pairs(gpus: int) -> list[Planned]:
    """Two GPUs, whichever two: AlexNet, whose 62 million parameters make the most of a link. Once each, the first pair three times.

    Three pairs stand for document 001's: the first, the last, and the first with the last. These also without peer access, through host
    memory, and under its other kinds of variable update.
    """
    chosen = [f"{a},{b}" for a, b in combinations(range(gpus), 2)]
    named = [ids for ids in dict.fromkeys((f"0,1;{gpus - 2},{gpus - 1};0,{gpus - 1}").split(";")) if ids in chosen]
    planned = []
    for ids in chosen:
        tier: Tier = "headline" if ids == "0,1" else "screening"
        for placement in ("ddp", "replicated_allreduce"):
            planned.append(Planned(alexnet(placement, 2, device_ids=ids, precision="bf16"), tier, 3.5, THREE))
            if ids in named:
                off = alexnet(placement, 2, device_ids=ids, peer_access="off", precision="bf16")
                planned.append(Planned(off, tier, 5.0, THREE))
    for ids in named:
        planned += [
            Planned(alexnet(placement, 2, device_ids=ids, precision="bf16"), "screening", 6.0)
            for placement in ("exp2", "ps_gpu0", "replicated_copy", "independent")
        ]
    return planned


def energy(devices: Sequence[int]) -> list[Planned]:
    """Joules an image over windows of WINDOW_S, on one GPU and the most: ResNet-50 at 64 and 256 captured and at 64 eager, and AlexNet;
    three times on one GPU. Once: ResNet-50 at 256 in fp32 and TF32, to see what fewer bits save, and left to torch.compile.
    """
    repeated: list[Planned] = []
    once: list[Planned] = []
    window = {"energy_window_s": WINDOW_S}
    price = 4.0 + 1.2 * WINDOW_S
    for count in ends_of(devices):
        runs = [resnet50("ddp", count, batch, **ONE_GRAPH, **window) for batch in (256, 64)]
        runs.append(resnet50("ddp", count, 64, precision="bf16", **window))
        runs.append(alexnet("ddp", count, **ONE_GRAPH, **window))
        repeated += [Planned(run, "headline" if count == 1 else "screening", price, THREE) for run in runs]
        once += [
            Planned(resnet50("ddp", count, 256, **ONE_GRAPH | window | {"precision": bits}), "screening", price)
            for bits in ("fp32", "tf32")
        ]
        once.append(
            Planned(resnet50("ddp", count, 256, **ONE_GRAPH | window | {"execution": "compiled_captured"}), "screening", price + 30)
        )
    return repeated + once


def hardware(devices: Sequence[int]) -> list[Planned]:
    """GPUs one by one, pairs (of all GPUs that are here, or as many as the counts name), then energy."""
    gpus = max(devices)
    here = gpu_count()
    gpus = min(gpus, here) if here else gpus
    return each_gpu(gpus) + (pairs(gpus) if gpus > 1 else []) + energy(devices)


def hardware_small(devices: Sequence[int]) -> list[Planned]:
    """Pairs of CPU processes, whose numbers are names alone: the same path, and nothing about GPUs."""
    common: dict[str, object] = {"workload": "cnn", "model": "resnet_tiny", "batch_size": 4, "placement": "ddp", "device_type": "cpu"}
    common |= {"warmup_steps": 3, "timed_steps": 8}
    runs = [Run(devices=len(ids.split(",")), device_ids=ids, **common) for ids in ("0", "1", "0,1", "1,2", "0,2")]  # type: ignore[arg-type]
    return [Planned(run, "screening", 2.0) for run in runs if run.devices <= max(devices)]
