"""Effects of hardware: every GPU alone, every pair of GPUs, pairs without peer access, energy, and what memory's speed is worth."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from multigpu.grid.cnn_study import SEARCHED_S
from multigpu.grid.entries import TRACED, Planned, Tier, ends_of, nmt, resnet50
from multigpu.measure.machine import gpu_count
from multigpu.run import Run
from multigpu.workloads.cnn.description import FOR_CIFAR, FOR_IMAGENET

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


LEAST_BATCH = 64
"""Images of a step whose kernels fill a GPU, or nearly so: below, kernels too short for any memory to matter would hide it."""


def memory_speed(devices: Sequence[int]) -> list[Planned]:
    """Whole steps as one CUDA graph on one GPU, to be measured on two kinds of GPU that differ in memory alone: every image model of
    document 001, document 000's model, and document 001's own AlexNet and ResNet-50 in fp32 and TF32 too. Three repeats, in a launch each.
    Traced once: AlexNet, ResNet-50 and document 000's model, to see which kernels wait for memory.
    """
    if 1 not in devices:
        return []
    form = {"layout": "channels_last", **ONE_GRAPH}
    runs = [alexnet("ddp", 1, **ONE_GRAPH), resnet50("ddp", 1, 64, **ONE_GRAPH), resnet50("ddp", 1, 256, **ONE_GRAPH)]
    runs.append(nmt("ddp", 1, 128, cross_entropy="fused", **ONE_GRAPH))
    for bits in ("fp32", "tf32"):
        runs += [alexnet("ddp", 1, **ONE_GRAPH | {"precision": bits}), resnet50("ddp", 1, 64, **ONE_GRAPH | {"precision": bits})]
    for model in (*FOR_IMAGENET, *FOR_CIFAR):
        run = Run(workload="cnn", model=model.name, placement="ddp", batch_size=max(model.config.default_batch, LEAST_BATCH), **form)  # type: ignore[arg-type]
        runs += [run] if run not in runs else []
    traced = [alexnet("ddp", 1, **ONE_GRAPH, **TRACED), resnet50("ddp", 1, 64, **ONE_GRAPH, **TRACED)]
    traced.append(nmt("ddp", 1, 128, cross_entropy="fused", **ONE_GRAPH, **TRACED))
    prices = [SEARCHED_S.get(run.model, 8.0) if run.precision == "fp32" else 4.0 for run in runs]
    planned = [Planned(run, "headline", price, THREE) for run, price in zip(runs, prices, strict=True)]
    return planned + [Planned(run, "screening", 5.0) for run in traced]


def hardware_small(devices: Sequence[int]) -> list[Planned]:
    """Pairs of CPU processes, whose numbers are names alone: the same path, and nothing about GPUs."""
    common: dict[str, object] = {"workload": "cnn", "model": "resnet_tiny", "batch_size": 4, "placement": "ddp", "device_type": "cpu"}
    common |= {"warmup_steps": 3, "timed_steps": 8}
    runs = [Run(devices=len(ids.split(",")), device_ids=ids, **common) for ids in ("0", "1", "0,1", "1,2", "0,2")]  # type: ignore[arg-type]
    return [Planned(run, "screening", 2.0) for run in runs if run.devices <= max(devices)]
