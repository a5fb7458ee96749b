"""Name the conditions, lists and estimates that a grid's file may use: lists of values, conditions
on a point, and estimates of what one takes.
"""

from collections.abc import Callable, Sequence
from itertools import combinations

from multigpu.grids.expand import Condition, Values
from multigpu.machine.machine import framework_version, gpu_count, this_machine
from multigpu.placements import placements
from multigpu.spec.rules.partition import uncuttable
from multigpu.spec.run import Run
from multigpu.workloads import description_of, find_model, workloads
from multigpu.workloads.cnn.description import FOR_CIFAR, FOR_IMAGENET
from multigpu.workloads.cnn.family import SWEEPS

# device counts whose points are repeated: one, a whole host of eight, and half of it; others are
# screening
ENDS = (1, 4, 8)
LARGE = ("resnet50_v1.5", "inception3", "vgg16", "alexnet")
# document 001's statements are about its four large models and its eight on small images
OF_INTEREST = (*LARGE, *FOR_CIFAR)
DECODE_S = 0.007  # in which one core decodes, crops and scales one image
FED_STEP_S = {"resnet50_v1.5": 0.017, "resnet152_v1.5": 0.035}


def ends_of(devices: Sequence[int]) -> list[int]:
    """The most devices and one, where points are repeated if there is no time for more."""
    return sorted({1, max(devices, default=1)} & {*devices}, reverse=True)


def with_a_process_a_device() -> list[str]:
    """Placements of any model that PyTorch runs eagerly with one process a device."""
    return [
        name
        for name, row in placements().items()
        if row.compute == "replica"
        and any(
            (e.framework, e.processes) == ("torch", "per_device") and "eager" in e.executions
            for e in row.engines
        )
    ]


def _further(name: str) -> bool:
    """Whether a placement varies another: staged variables, and all-reduces written out."""
    return name.startswith(("staged", "replicated_ring", "replicated_server"))


def gpus_asked(counts: Sequence[int]) -> int:
    """GPUs to look at one by one: as many as the counts name, or are here."""
    most, here = max(counts, default=1), gpu_count()
    return min(most, here) if here else most


def three_pairs(counts: Sequence[int]) -> list[str]:
    """The first pair, the last, and the first GPU with the last."""
    gpus = gpus_asked(counts)
    return (
        list(dict.fromkeys(("0,1", f"{gpus - 2},{gpus - 1}", f"0,{gpus - 1}"))) if gpus > 1 else []
    )


LISTS: dict[str, dict[str, Values]] = {
    "devices": {
        "each": lambda counts: sorted(counts, reverse=True),
        "rising": sorted,
        "ends": ends_of,
        "least_and_most": lambda counts: (
            sorted({min(counts), max(counts)}, reverse=True) if counts else []
        ),
        "most": lambda counts: ends_of(counts)[:1],
        "least": lambda counts: sorted(counts)[:1],
        "most_repeated": lambda counts: sorted({*counts} & {*ENDS})[-1:],
    },
    "device_ids": {
        "each_gpu": lambda counts: [str(number) for number in range(gpus_asked(counts))],
        "every_pair": lambda counts: [
            f"{a},{b}" for a, b in combinations(range(gpus_asked(counts)), 2)
        ],
        "three_pairs": three_pairs,
    },
    "placement": {
        "process_a_device": lambda _: with_a_process_a_device(),
        "process_a_device_usual": lambda _: [
            name for name in with_a_process_a_device() if not _further(name)
        ],
        "process_a_device_further": lambda _: [
            name for name in with_a_process_a_device() if _further(name)
        ],
    },
    "model": {
        "of_document_001": lambda _: [*FOR_IMAGENET, *FOR_CIFAR],
        "of_interest": lambda _: OF_INTEREST,
        "of_less_interest": lambda _: [name for name in FOR_IMAGENET if name not in OF_INTEREST],
        "for_cifar": lambda _: [*FOR_CIFAR],
        "family": lambda _: list(
            dict.fromkeys(member.name for sweep in SWEEPS.values() for member in sweep)
        ),
        "family_widths": lambda _: [member.name for member in SWEEPS["width"]],
    },
}
"""Field -> word -> its values, of the numbers of devices asked for."""

CONDITIONS: dict[str, Condition] = {
    "tensorflow_here": lambda fields, counts: (
        fields["framework"] != "tensorflow" or framework_version("tensorflow") != "none"
    ),
    "workload_here": lambda fields, counts: fields["workload"] in workloads(),
    "cores_to_spare": lambda fields, counts: (
        not fields["host_cores"] or this_machine().cores > fields["host_cores"]
    ),
    "can_be_cut": lambda fields, counts: (
        fields["placement"] != "tensor_split"
        or uncuttable(find_model(fields["workload"], fields["model"]), fields["devices"]) is None
    ),
    "several_copies": lambda fields, counts: (
        fields["devices"] > 2
        and fields["model_parallel"] < fields["devices"]
        and fields["devices"] % fields["model_parallel"] == 0
    ),
    "two_asked": lambda fields, counts: 2 in counts,
    "no_more_than_asked": lambda fields, counts: fields["devices"] <= max(counts, default=1),
}
"""By name: whether the point with these fields, defaults filled in, is in the grid here."""


def ladder_s(run: Run) -> float:
    """Seconds of a captured Run of this batch on one H200: building and capturing, then 40 steps.

    An image takes as long as its activations take at 1.4 TB/s in 16 bits, or its three forward
    passes at 270 Tflop/s: points of ResNet-50, VGG-16, AlexNet and Inception-v3 measured at 256
        images or more take 0.8 to 1.9 times that. What needs more than 141 GB ends at once; of a
        pass over activations 0.3 bytes stay with batch norm and 0.5 without.
    """
    model, passes = description_of(run), description_of(run).memory_passes_per_unit
    if (
        0.3 if any(v.kind == "norm" for v in model.variables) else 0.5
    ) * passes * run.batch_size > 141e9:
        return 4.0
    return 1.5 + 40 * run.batch_size * max(
        2 * passes / 1.4e12, 3 * model.forward_flops_per_unit / 2.7e14
    )


def fed_s(run: Run) -> float:
    """Steps that last as long as training or decoding does."""
    if run.inputs == "jpeg_folder":
        decode = DECODE_S * run.batch_size / max(1, run.input_workers or 1)
    else:
        decode = 0.0
    return (run.warmup_steps + run.timed_steps) * max(FED_STEP_S[run.model], decode)


def launches_s(run: Run) -> float:
    """Estimate document 000's model: a start, and launches by the cores (TensorFlow builds a loop's
    graph in 6 s and dispatches it on four H200s in 0.35 s a step; PyTorch launches about 37
    thousand kernels a replica).
    """
    tensorflow, loop = run.framework == "tensorflow", run.recurrence == "stepwise"
    start = (8.0 if tensorflow else 2.5) + (
        6.0 if tensorflow and loop else 4.0 if "captured" in run.execution and loop else 0.0
    )
    starved = 2.0 if run.host_cores and run.host_cores < run.devices else 1.0
    serial = run.devices if run.processes == "one" else 1
    launches = (0.09 if tensorflow else 0.3) if loop else 0.012
    step = starved * max(launches * serial, run.batch_size / 5000)
    return round(start + step * (run.warmup_steps + run.timed_steps), 1)


def on_host_s(run: Run) -> float:
    """Variables on the host are read, merged and written by its cores; one global batch is gathered
    there piece by piece.
    """
    host = {"exp1": 2.5, "exp2": 3.5, "exp3": 1.5}.get(run.placement, 0.0) * (
        1.0 if run.model == "nmt000" else 0.4
    )
    return host + {"make_parallel": 1.0, "make_parallel_cpu": 9.0}.get(run.placement, 0.0)


COSTS: dict[str, Callable[[Run], float]] = {
    "ladder": ladder_s,
    "fed": fed_s,
    "launches": launches_s,
    "on_host": on_host_s,
}
