"""What document 001 asks of its models beside their scaling: pairs of GPUs, kinds of variable update, formats, precision and batches.

Costs are estimates of one H200 host in seconds: a launch of kernels takes 3 us on the device or 8 us on the host, a start 2 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from multigpu.grid.entries import FEWEST, TRACED, Planned, Tier
from multigpu.run import Run
from multigpu.workloads import find_model
from multigpu.workloads.base import Model
from multigpu.workloads.cnn.description import FOR_CIFAR

LARGE = ("resnet50_v1.5", "inception3", "vgg16", "alexnet")
SMALL = ("resnet20", "resnet110", "alexnet_cifar", "densenet40_k12")
SPECS = ("library", "central_server:32k:library", "tree:32k:library", "central_server:32k:ring")
"""Every gradient by itself; small ones packed and sent by a server or along a tree; and nothing left to the library."""
MOST_GRADIENTS = "vgg16"
COMPARED_PAIRS = ("resnet20", "resnet32", "resnet44", "resnet56", "alexnet_cifar")
"""What C17 and C18 compare on two GPUs: the smallest ResNet, three larger ones, so that most of them are always two, and AlexNet."""
COMPARED_FORMATS = ("resnet50_v1.5", "alexnet_cifar")
"""One counterexample refutes C16, two models hold it; C30 and C34 compare ResNet-50."""
LADDER = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
COARSE_LADDER = LADDER[::2]
FURTHER = ("googlenet", "vgg19", "inception4", "resnet152_v1.5", "lenet", "densenet100_k12")
"""Models with a ladder of five batches."""
ONCE = (
    *("resnet50_v1", "resnet101_v1", "resnet101_v1.5", "resnet152_v1", "vgg11", "overfeat", "trivial"),
    *("resnet32", "resnet44", "resnet56"),
)
"""The other models of document 001: as many batches, each once."""
ENDS_OF_LADDERS = {
    **dict.fromkeys(("vgg19", "inception4", "resnet152_v1.5", "resnet152_v1", "resnet101_v1", "resnet101_v1.5", "resnet50_v1"), (2048,)),
    **{"densenet100_k12": (2048,), "vgg11": (2048, 8192), "googlenet": (8192, 16384), "resnet110": (8192, 16384, 32768)},
    "densenet40_k12": (8192, 16384, 32768),
}
"""Batches between the last of a ladder that fits a GPU and the first that may not. Models of a smaller step fit more images than help."""
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


def _cnn(model: str, placement: str, devices: int, tier: Tier = "screening", cost_s: float = 3.0, **more: Any) -> Planned:
    """A point at the model's default batch, channels last, bf16 and eager, unless told."""
    own = find_model("cnn", model)
    fields: dict[str, Any] = {"batch_size": own.config.default_batch, "layout": "channels_last", "precision": "bf16"}
    run = Run(workload="cnn", model=model, placement=placement, devices=devices, **fields | more)
    host = 4.0 * own.parameters / 1e8 if placement in ("exp2", "staged_cpu", "make_parallel_cpu") else 0.0
    return Planned(run, tier, round(cost_s + host, 1), FEWEST)


def cnn_pairs(devices: Sequence[int]) -> list[Planned]:
    """One and two GPUs, where the document speaks of two: CIFAR's eight with variables on the CPU and with NCCL, the four large ones with
    a server on the CPU and on a GPU. Repeated where C17 and C18 compare: ResNet-20 against three larger ResNets and AlexNet with variables
    on the CPU, and ResNet-20 with NCCL.
    """
    repeated: list[Planned] = []
    once: list[Planned] = []
    for count in sorted(set(devices) & {1, 2}, reverse=True):
        repeated += [_cnn(model, "exp2", count, "headline") for model in COMPARED_PAIRS]
        repeated.append(_cnn("resnet20", "replicated_allreduce", count, "headline"))
        once += [_cnn(model.name, "exp2", count) for model in FOR_CIFAR if model.name not in COMPARED_PAIRS]
        once += [_cnn(model.name, "replicated_allreduce", count) for model in FOR_CIFAR if model.name != "resnet20"]
        once += [_cnn(model, name, count) for model in LARGE for name in ("exp2", "ps_gpu0")]
    return repeated + once


def cnn_updates(devices: Sequence[int]) -> list[Planned]:
    """Staged variables, an all-reduce a range of sizes, gradients in 16 bits and make_parallel, each beside what it changes, on one
    GPU and on the most. Repeated: staged and make_parallel on ResNet-50, gradients in bf16 on VGG-16 and ResNet-50.

    Eager gradients in 16 bits and the ring: of VGG-16 alone, which has the most gradients. Buckets of 10 and 100 MiB beside the library's
    25: ResNet-50 captured, at 64 and 256 images.
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
            once += [_cnn(model, "exp2", count, "screening", 5.0, **one), _cnn(model, "make_parallel_cpu", count, "screening", 16.0, **one)]
            if count == 1:
                continue
            for wire in (None, "bf16", "fp16"):
                more: dict[str, Any] = {} if wire is None else {"wire_dtype": wire}
                often: Tier = "headline" if wire != "fp16" and model != "alexnet" else "screening"
                (repeated if often == "headline" else once).append(_cnn(model, "ddp", count, often, execution="captured", **more))
                if wire is None or model == MOST_GRADIENTS:
                    once.append(_cnn(model, "replicated_allreduce", count, **more))
            specs = SPECS if model == MOST_GRADIENTS else [spec for spec in SPECS if not spec.endswith("ring")]
            once += [_cnn(model, "replicated_allreduce", count, all_reduce_spec=spec) for spec in specs]
            once.append(_cnn(model, "replicated_allreduce", count, all_reduce_spec="library", execution="captured"))
    if max(devices) > 1:
        once += [
            _cnn("resnet50_v1.5", "ddp", max(devices), execution="captured", batch_size=batch, bucket_mib=size)
            for batch in (64, 256)
            for size in (10, 100)
        ]
    return repeated + once


def cnn_formats(devices: Sequence[int]) -> list[Planned]:
    """NCHW against NHWC in fp32, as the document had it, and in bf16; fp32, TF32, bf16 and fp16 with its loss scale found and fixed;
    on one GPU and on the most, DDP, eager. Repeated: fp32 of ResNet-50 and of CIFAR's AlexNet (C16, C30, C34).

    In a form of its own a model first searches its kernels, which takes up to 15 s: costs are means of such Runs.
    """
    repeated: list[Planned] = []
    once: list[Planned] = []
    for count in sorted({min(devices), max(devices)}, reverse=True):
        for model in (*LARGE, *SMALL):
            tier: Tier = "headline" if model in COMPARED_FORMATS else "screening"
            for layout in ("channels_first", "channels_last"):
                fp32 = _cnn(model, "ddp", count, tier, 5.0, precision="fp32", layout=layout)
                (repeated if tier == "headline" else once).append(fp32)
                once.append(_cnn(model, "ddp", count, cost_s=3.8, precision="bf16", layout=layout))
            once += [_cnn(model, "ddp", count, cost_s=3.8, precision=name) for name in ("tf32", "fp16")]
            once.append(_cnn(model, "ddp", count, cost_s=3.8, precision="fp16", loss_scale=128))
    return repeated + once


SEARCHED_S = {"alexnet": 50.0, "vgg16": 40.0, "inception3": 30.0, "resnet50_v1.5": 15.0}
"""Seconds that a model's first Run in fp32 took on an H200, most of them the library's search for its kernels; others take 8."""


def cnn_formats_captured(devices: Sequence[int]) -> list[Planned]:
    """As `cnn_formats` on one GPU with the whole step as one CUDA graph, so that no host sets the pace: NCHW against NHWC in bf16 and in
    fp32, TF32, and fp16 with its loss scale found and fixed. Screening: captured repeats lie within a percent. What takes the library's
    search longest comes last. First ResNet-50 in fp16 traced: are its kernels of batch norm bf16's?
    """
    if 1 not in devices:
        return []
    sixteen, wide = [], []
    form: dict[str, Any] = {"execution": "captured"}
    for model in (*LARGE, *SMALL):
        sixteen += [_cnn(model, "ddp", 1, cost_s=4.0, layout=layout, **form) for layout in ("channels_first", "channels_last")]
        sixteen += [_cnn(model, "ddp", 1, cost_s=4.0, precision="fp16", loss_scale=scale, **form) for scale in (None, 128)]
        search = SEARCHED_S.get(model, 8.0)
        wide.append(_cnn(model, "ddp", 1, cost_s=min(search, 8.0), precision="tf32", **form))
        wide += [_cnn(model, "ddp", 1, cost_s=search, precision="fp32", layout=own, **form) for own in ("channels_first", "channels_last")]
    traced = _cnn("resnet50_v1.5", "ddp", 1, cost_s=5.0, precision="fp16", loss_scale=128, **form, **TRACED)
    return [traced, *sixteen, *sorted(wide, key=lambda entry: entry.cost_s)]


def ladder_price_s(model: Model, batch: int) -> float:
    """Seconds of a captured Run of this batch on one H200: building and capturing, then 40 steps.

    An image takes as long as its activations take at 1.4 TB/s in 16 bits, or its three forward passes at 270 Tflop/s: points of ResNet-50,
    VGG-16, AlexNet and Inception-v3 measured at 256 images or more take 0.8 to 1.9 times that. What needs more than 141 GB ends at once;
    of a pass over activations 0.3 bytes stay with batch norm and 0.5 without.
    """
    passes = model.memory_passes_per_unit
    if (0.3 if any(v.kind == "norm" for v in model.variables) else 0.5) * passes * batch > 141e9:
        return 4.0
    return round(1.5 + 40 * batch * max(2 * passes / 1.4e12, 3 * model.forward_flops_per_unit / 2.7e14), 1)


def cnn_ladders(devices: Sequence[int]) -> list[Planned]:
    """From 16 images a GPU to the largest batch that fits, on one GPU, every model of document 001: captured, and for ResNet-50 eager, to
    512, where both are one. All nine batches of eight models, five of the others, and where these end. Twice, in two launches, since one
    batch is to be told from its neighbours; ONCE and the ends once. With the steps of all other points, so that what these measured joins
    its ladder. A ladder is left at its first batch that does not fit.
    """
    if 1 not in devices:
        return []
    ladders = dict.fromkeys((*LARGE, *SMALL), LADDER) | dict.fromkeys((*FURTHER, *ONCE), COARSE_LADDER)
    twice = [rung for model, batches in ladders.items() if model not in ONCE for rung in _rungs(model, batches)]
    once = [rung for model, batches in ladders.items() if model in ONCE for rung in _rungs(model, batches)]
    once += [rung for model, batches in ENDS_OF_LADDERS.items() for rung in _rungs(model, batches)]
    again = [replace(rung, launches=(1,), first_repeat=1) for rung in twice]
    return [*twice, *_rungs("resnet50_v1.5", LADDER[:6], "eager"), *once, *again]


def _rungs(model: str, batches: Sequence[int], execution: str = "captured") -> list[Planned]:
    """These batches of a model on one GPU."""
    prices = [ladder_price_s(find_model("cnn", model), batch) for batch in batches]
    return [
        _cnn(model, "ddp", 1, cost_s=price, batch_size=batch, execution=execution) for batch, price in zip(batches, prices, strict=True)
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
