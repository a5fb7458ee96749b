"""Every model of document 001."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from multigpu.grid.entries import FEWEST, OTHER_PLACEMENTS, SPINE_PLACEMENTS, Planned, Tier, ends_of, resnet50
from multigpu.run import Execution, Run
from multigpu.workloads import find_model
from multigpu.workloads.base import Model
from multigpu.workloads.cnn.description import FOR_CIFAR, FOR_IMAGENET

CNNS_OF_INTEREST = ("resnet50_v1.5", "inception3", "vgg16", "alexnet", *(model.name for model in FOR_CIFAR))
"""What document 001's statements are about: its four large models and its eight on small images."""
CNN_UPDATES = ("ddp", "independent", "exp2", "replicated_copy", "replicated_allreduce", "ps_gpu0")
"""Document 001's kinds of variable update, all-reduce during backward, and what needs none."""


REPEATED_UPDATES = ("ddp", "exp2")
"""Repeated at both ends: the fastest and document 001's own. The claims that compare the others (C21, C42, C43) are decided."""
CAPTURED_MODELS = ("inception3", "resnet20", "alexnet_cifar", "densenet40_k12")
"""Whose whole step is measured as one CUDA graph, beside ResNet-50's (`captured`): is it the host that an eager step waits for?"""


def _cnn(model: Model, placement: str, devices: int, batch: int | None = None, execution: Execution = "eager") -> Planned:
    """A screening point: bf16, channels last, at the model's default batch and eager unless told.

    Its cost: launches take about 0.2 ms a variable and step, a host that updates 1.5 ms a million parameters and step.
    """
    host = 6.0 if placement in ("exp1", "exp2", "exp3") else 2.0
    run = Run(
        workload="cnn",
        model=model.name,
        placement=placement,
        devices=devices,
        batch_size=batch or model.config.default_batch,
        layout="channels_last",
        precision="bf16",
        execution=execution,
    )
    return Planned(run, "screening", round(3.0 + 0.01 * len(model.variables) + host * model.parameters / 1e8, 1), FEWEST)


def cnn_models(devices: Sequence[int]) -> list[Planned]:
    """Every model of document 001 at its default batch. On one GPU and on the most the large four and CIFAR's eight are repeated under
    DDP and variables on the CPU. Screening, in one launch: their other kinds of update and counts, the remaining models under these two
    placements, and four models captured on one GPU and on the most.
    """
    planned = []
    ends = ends_of(devices)
    for count in sorted(devices, reverse=True):
        for model in (*FOR_IMAGENET, *FOR_CIFAR):
            known = model.name in CNNS_OF_INTEREST
            for placement in CNN_UPDATES if known else REPEATED_UPDATES:
                often = known and count in ends and placement in REPEATED_UPDATES
                planned.append(replace(_cnn(model, placement, count), tier="headline" if often else "screening"))
    planned += [_cnn(find_model("cnn", name), "ddp", count, execution="captured") for count in ends for name in CAPTURED_MODELS]
    return sorted(planned, key=lambda entry: entry.tier != "headline")  # what is repeated comes first


CLAIMED_BATCH = 64
OF_ANOTHER_BATCH = ("inception3", "alexnet", "resnet152_v1.5")
SMALL_LAST = {"bucket_send": "grouped_small_last"}


def cnn_captured(devices: Sequence[int]) -> list[Planned]:
    """Document 001's models of interest with the whole step as one CUDA graph, so that no host sets their pace: `ddp` as the library makes
    its buckets, `ddp` that sends gradients unpacked with a small last bucket, and independent replicas. Repeated, in the same launches, on
    one GPU and on the most. ResNet-50's are those of `small_last`. And the library's buckets at the batch that C12 compares, of models
    whose own is another.
    """
    planned = []
    for count in ends_of(devices):
        for name in CNNS_OF_INTEREST:
            if name == "resnet50_v1.5":
                continue
            model = find_model("cnn", name)
            price = round(2.0 + 0.005 * len(model.variables) + 2.0 * model.parameters / 1e8, 1)
            for placement, buckets in (("ddp", {}), ("ddp", SMALL_LAST), ("independent", {})):
                usual = _cnn(model, placement, count, execution="captured").run
                planned.append(Planned(usual.model_copy(update=buckets), "headline", price, FEWEST))
    return planned + [
        Planned(_cnn(find_model("cnn", name), "ddp", count, CLAIMED_BATCH, "captured").run, "headline", 3.0, FEWEST)
        for count in ends_of(devices)
        for name in OF_ANOTHER_BATCH
    ]


def cnn_compiled(devices: Sequence[int]) -> list[Planned]:
    """Document 001's models of interest left to torch.compile, beside their eager and captured Runs of other grids: as one CUDA graph and
    launched kernel by kernel (which finds the kernels that the first compiled), `ddp`, on one GPU and on the most. Screening: compiling
    costs most. ResNet-50 at 64 and 256 images a GPU.
    """
    jobs = [(name, None) for name in CNNS_OF_INTEREST if name != "resnet50_v1.5"]
    planned = []
    for count in ends_of(devices):
        for name, batch in (("resnet50_v1.5", 64), ("resnet50_v1.5", 256), *jobs):
            model = find_model("cnn", name)
            price = round(8.0 + 0.2 * len(model.variables), 1)
            forms: tuple[tuple[Execution, float], ...] = (("compiled_captured", price), ("compiled", 4.0))
            planned += [Planned(_cnn(model, "ddp", count, batch, form).run, "screening", cost) for form, cost in forms]
    return planned


JOINED = {"resnet50_v1.5": (256, 64, 1024), "inception3": (256, 64), "vgg16": (256, 64), "alexnet": (512,), "resnet110": (256,)}
"""Images of all GPUs together, by model, for strong scaling; each is in `cnn_ladders`, which holds one GPU's."""


def cnn_strong(devices: Sequence[int]) -> list[Planned]:
    """One joined batch on more and more GPUs (strong scaling), captured, `ddp`: ResNet-50's 256 images repeated, the rest screening. What
    one GPU does is the same Run as under weak scaling; a batch that leaves no GPU an image does not exist.
    """
    planned = []
    for count in sorted(devices, reverse=True):
        for name, batches in JOINED.items():
            for batch in batches:
                run = _cnn(find_model("cnn", name), "ddp", count, batch, "captured").run
                tier: Tier = "headline" if (name, batch) == ("resnet50_v1.5", 256) else "screening"
                strong = run.model_copy(update={"scaling": "strong"}) if count > 1 else run
                planned.append(Planned(strong, tier, 4.0, FEWEST))
    return sorted(planned, key=lambda entry: entry.tier != "headline")


def cnn_batches(devices: Sequence[int]) -> list[Planned]:
    """ResNet-50, Inception-v3 and VGG-16 at 32, 64 and 256 images a GPU, AlexNet at 512, under every placement. Screening. Repeated, on
    one GPU and on the most: ResNet-50 at 16 and at 512, whole steps as one CUDA graph, all-reduced during backward (C46).
    """
    ends = sorted({1, max(devices, default=1)} & set(devices), reverse=True)
    form = {"precision": "bf16", "execution": "captured"}
    repeated = [Planned(resnet50("ddp", count, batch, **form), "headline", 4.0, FEWEST) for count in ends for batch in (16, 512)]
    batches = dict.fromkeys(("resnet50_v1.5", "inception3", "vgg16"), (32, 64, 256)) | {"alexnet": (512,)}
    return repeated + [
        _cnn(find_model("cnn", name), placement, count, batch)
        for count in sorted(devices, reverse=True)
        for name, sizes in batches.items()
        for placement in (*SPINE_PLACEMENTS, *OTHER_PLACEMENTS)
        for batch in sizes
    ]
