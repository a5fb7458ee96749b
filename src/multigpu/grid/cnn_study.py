"""What document 001 asks of its models beside their scaling: pairs of GPUs, kinds of variable update, formats, precision and batches.

Costs are estimates of one H200 host in seconds: a launch of kernels takes 3 us on the device or 8 us on the host, a start 2 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from multigpu.grid.entries import FEWEST, Planned, Tier
from multigpu.run import Run
from multigpu.workloads import find_model
from multigpu.workloads.cnn.description import FOR_CIFAR

LARGE = ("resnet50_v1.5", "inception3", "vgg16", "alexnet")
SMALL = ("resnet20", "resnet110", "alexnet_cifar", "densenet40_k12")
SPECS = ("library", "central_server:32k:library", "tree:32k:library", "central_server:32k:ring")
"""Every gradient by itself; small ones packed and sent by a server or along a tree; and nothing left to the library."""
LADDER = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


def _cnn(model: str, placement: str, devices: int, tier: Tier = "screening", cost_s: float = 3.0, **more: Any) -> Planned:
    """A point at the model's default batch, channels last, bf16 and eager, unless told."""
    own = find_model("cnn", model)
    fields: dict[str, Any] = {"batch_size": own.config.default_batch, "layout": "channels_last", "precision": "bf16"}
    run = Run(workload="cnn", model=model, placement=placement, devices=devices, **fields | more)
    host = 4.0 * own.parameters / 1e8 if placement in ("exp2", "staged_cpu", "make_parallel_cpu") else 0.0
    return Planned(run, tier, round(cost_s + host, 1), FEWEST)


def cnn_pairs(devices: Sequence[int]) -> list[Planned]:
    """One and two GPUs, repeated, where the document speaks of two: CIFAR's eight with variables on the CPU and with NCCL (C17, C18),
    the four large ones with a server on the CPU and on a GPU (C42).
    """
    planned = []
    for count in sorted(set(devices) & {1, 2}, reverse=True):
        planned += [_cnn(model.name, name, count, "headline") for model in FOR_CIFAR for name in ("exp2", "replicated_allreduce")]
        planned += [_cnn(model, name, count, "headline") for model in LARGE for name in ("exp2", "ps_gpu0")]
    return planned


def cnn_updates(devices: Sequence[int]) -> list[Planned]:
    """Staged variables, an all-reduce a range of sizes, gradients in 16 bits and make_parallel, each beside what it changes, on one
    GPU and on the most. Repeated: staged and make_parallel on ResNet-50, gradients in bf16 on VGG-16 and ResNet-50.
    """
    ends = sorted({min(devices), max(devices)}, reverse=True)
    repeated: list[Planned] = []
    once: list[Planned] = []
    for count in ends:
        for model in ("resnet50_v1.5", "vgg16", "alexnet"):
            tier: Tier = "headline" if model == "resnet50_v1.5" else "screening"
            chosen = repeated if tier == "headline" else once
            chosen += [_cnn(model, name, count, tier) for name in ("exp2", "staged_cpu", "ps_gpu0", "staged_gpu0")]
            one: dict[str, Any] = {"processes": "one"}
            chosen += [_cnn(model, name, count, tier, 4.0, **one) for name in ("ps_gpu0", "make_parallel")]
            once += [_cnn(model, name, count, "screening", 5.0, **one) for name in ("exp2", "make_parallel_cpu")]
            if count == 1:
                continue
            for wire in (None, "bf16", "fp16"):
                more: dict[str, Any] = {} if wire is None else {"wire_dtype": wire}
                often: Tier = "headline" if wire != "fp16" and model != "alexnet" else "screening"
                (repeated if often == "headline" else once).append(_cnn(model, "ddp", count, often, execution="captured", **more))
                once.append(_cnn(model, "replicated_allreduce", count, **more))
            once += [_cnn(model, "replicated_allreduce", count, all_reduce_spec=spec) for spec in SPECS]
            once.append(_cnn(model, "replicated_allreduce", count, all_reduce_spec="library", execution="captured"))
    return repeated + once


def cnn_formats(devices: Sequence[int]) -> list[Planned]:
    """NCHW against NHWC in fp32, as the document had it, and in bf16; fp32, TF32, bf16 and fp16 with its loss scale found and fixed;
    on one GPU and on the most, DDP, eager. fp32 and the large four repeated.
    """
    planned = []
    for count in sorted({min(devices), max(devices)}, reverse=True):
        for model in (*LARGE, *SMALL):
            for layout in ("channels_first", "channels_last"):
                planned.append(_cnn(model, "ddp", count, "headline", 4.0, precision="fp32", layout=layout))
                planned.append(_cnn(model, "ddp", count, precision="bf16", layout=layout))
            tier: Tier = "headline" if model in LARGE and count == 1 else "screening"
            planned += [_cnn(model, "ddp", count, tier, precision=name) for name in ("tf32", "fp16")]
            planned.append(_cnn(model, "ddp", count, precision="fp16", loss_scale=128))
    return planned


def cnn_ladders(devices: Sequence[int]) -> list[Planned]:
    """From 16 images a GPU to the largest batch that fits, on one GPU: captured, and eager for ResNet-50. A ladder is left at its first
    batch that does not fit. Screening; a third of the cost is not spent where ladders end early.
    """
    if 1 not in devices:
        return []
    forms: list[tuple[str, dict[str, Any]]] = [(model, {"execution": "captured"}) for model in (*LARGE, *SMALL)] + [("resnet50_v1.5", {})]
    return [
        _cnn(model, "ddp", 1, cost_s=2.0 + batch / 500, batch_size=batch, warmup_steps=6, timed_steps=20, **form)
        for model, form in forms
        for batch in LADDER
    ]


def cnn_small(devices: Sequence[int]) -> list[Planned]:
    """One of everything above with small models on CPU processes, for any computer: its figures say nothing about GPUs."""
    common: dict[str, Any] = {"device_type": "cpu", "batch_size": 8, "precision": "fp32", "warmup_steps": 3, "timed_steps": 10}

    def small(placement: str, count: int, **more: Any) -> Planned:
        return _cnn("resnet_small", placement, count, cost_s=2.0, **common | more)

    planned = [small("ddp", 1, batch_size=batch) for batch in (16, 32)]
    planned += [small("ddp", 1, layout="channels_first"), small("ddp", 1, precision="bf16")]
    planned += [small("ddp", 1, precision="fp16", loss_scale=scale) for scale in (None, 128)]
    for count in devices:
        planned += [small(name, count) for name in ("exp2", "staged_cpu", "ps_gpu0", "staged_gpu0", "replicated_allreduce", "ddp")]
        planned += [small(name, count, processes="one") for name in ("ps_gpu0", "make_parallel", "exp2", "make_parallel_cpu")]
        if count > 1:
            planned += [small("replicated_allreduce", count, all_reduce_spec=spec) for spec in SPECS]
            planned += [small(name, count, wire_dtype=wire) for name in ("ddp", "replicated_allreduce") for wire in ("bf16", "fp16")]
    return planned
