"""What TensorFlow is asked: the documents' own framework, one process and one graph; and its own strategies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from multigpu.grid.cnns import CNNS_OF_INTEREST
from multigpu.grid.entries import ENDS, EXPERIMENTS, FEWEST, TRACED, Planned, ends_of, nmt, resnet50
from multigpu.grid.parallelism import LAYER_BATCHES, LAYER_TYPES, stack
from multigpu.run import Run
from multigpu.workloads import find_model
from multigpu.workloads.base import Model

IN_GRAPH = (*EXPERIMENTS, "ps_gpu0", "replicated_copy", "replicated_allreduce", "independent")
CONCATENATED = ("make_parallel", "make_parallel_cpu")
"""One loss over all towers' predictions; of images only."""
TENSORFLOW = {"framework": "tensorflow", "processes": "one", "execution": "graph"}
HOST_S = {"exp1": 3.0, "exp2": 4.0, "exp3": 1.0}
"""What a Run with variables or tables on the host costs beyond others."""


def _exp5(placement: str, count: int, batch: int = 128, **more: object) -> Run:
    return nmt(placement, count, batch, **({"precision": "tf32"} | TENSORFLOW | more))


def tensorflow_anomaly(devices: Sequence[int]) -> list[Planned]:
    """C11: is a 2-GPU step with variables on the CPU slower than a 3-GPU step? Exp1 and Exp2, repeated, on 1, 2, 3 and 4.

    And traces: of Exp2 on each of them again, by a profiler's summary that names the host's operations, and on one GPU at the batches on
    either side of one joined gradient row a row of a table (50,000), where TensorFlow's sum of rows begins to use more than one thread.
    """
    counts = [count for count in (2, 3, 1, 4) if count in devices]
    planned = [Planned(_exp5(placement, count), "headline", 7.0, FEWEST) for count in counts for placement in ("exp2", "exp1")]
    planned += [Planned(_exp5("exp2", count, **TRACED), "headline", 7.0, (0, 0)) for count in counts]
    if 1 in devices:
        planned += [Planned(_exp5("exp2", 1, batch, **TRACED), "screening", 12.0) for batch in CLIFF]
    return planned


CLIFF = (496, 512)
"""Sentences of 100 words: 49,600 and 51,200 gradient rows."""


def tensorflow_forms(devices: Sequence[int]) -> list[Planned]:
    """Document 000 done otherwise, at batch 128: a loop of cells, its own lengths, sparse gradients, other precisions, and the
    other placements. Screening: its own lengths on every number of GPUs, the loop on 1, 2, 3, 4 and 8, the rest on 1, 4 and 8.
    """
    planned = []
    for count in sorted(devices, reverse=True):
        loop: dict[str, Any] = {"recurrence": "stepwise", "warmup_steps": 5, "timed_steps": 10}
        runs = [_exp5(placement, count, **loop) for placement in ("exp4", "exp2") if count in (1, 2, 3, 4, 8)]
        runs += [_exp5(placement, count, sequence_length=None, inputs="lengths_000") for placement in EXPERIMENTS]
        if count in ENDS:
            runs += [_exp5(placement, count) for placement in IN_GRAPH if placement not in EXPERIMENTS]
            runs += [_exp5("exp4", count, precision=precision) for precision in ("bf16", "fp32")]
            runs += [_exp5(placement, count, embedding_gradients="sparse") for placement in ("exp4", "exp2")]
            runs += [_exp5(placement, count, **loop) for placement in ("exp3", "exp1")]
        planned += [Planned(run, "screening", (11.0 if run.recurrence else 5.0) + HOST_S.get(run.placement, 0.0)) for run in runs]
    return planned


def tensorflow_traces(devices: Sequence[int]) -> list[Planned]:
    """Three steps under TensorFlow's profiler, one of a loop of cells, whose kernels are many. They enter no throughput.

    All variables on the host and all on the devices on every count; tables alone on the host, and updates on the devices, on 1 and 2,
    where a second link to the host is the first difference; ResNet-50 on one and the most devices, with both kernels of batch norm, and
    compiled by XLA on one.
    """
    loop: dict[str, Any] = {"recurrence": "stepwise", "warmup_steps": 5, "timed_steps": 5, "traced_steps": 1}
    counts = sorted(devices, reverse=True)
    planned = [Planned(_exp5(placement, count, **TRACED), "screening", 7.0) for count in counts for placement in ("exp4", "exp2")]
    planned += [
        Planned(_exp5(placement, count, **TRACED), "screening", 7.0) for count in counts if count < 3 for placement in ("exp3", "exp1")
    ]
    for count in ends_of(counts):
        for kernel in (None, "persistent"):
            traced = resnet50("exp4", count, 64, **TENSORFLOW, precision="bf16", batch_norm=kernel, **TRACED)
            planned.append(Planned(traced, "screening", 8.0 + 2 * count))
    if 1 in devices:
        planned.append(Planned(resnet50("exp4", 1, 64, **TENSORFLOW | TRACED | {"execution": "xla"}, precision="bf16"), "screening", 34.0))
    return planned + [Planned(_exp5("exp4", count, **loop), "screening", 30.0) for count in counts if count in ENDS]


def tensorflow_cnn(devices: Sequence[int]) -> list[Planned]:
    """ResNet-50 at 64 images a GPU in TensorFlow: every placement, and on 1, 4 and 8 both layouts and XLA. Screening, but for the
    placements that claims compare (C21, C22, C43) and Exp4 at either end, which are headline. At either end Exp4, NCCL's all-reduce and
    independent replicas also with cuDNN's persistent batch norm, as document 001's program asks for it.
    """
    planned = []
    for count in sorted(devices, reverse=True):
        form = TENSORFLOW | {"precision": "bf16"}
        for placement in (*IN_GRAPH, *CONCATENATED):
            repeated = placement in COMPARED and count in ends_of(devices)
            planned.append(
                Planned(resnet50(placement, count, 64, **form), "headline" if repeated else "screening", 4.0 + 2 * count, FEWEST)
            )
        for placement in ("exp4", "replicated_allreduce", "independent") if count in ends_of(devices) else ():
            run = resnet50(placement, count, 64, **form, batch_norm="persistent")
            planned.append(Planned(run, "headline", 4.0 + 2 * count, FEWEST))
        if count in ENDS:
            planned.append(Planned(resnet50("exp4", count, 64, **form | {"execution": "xla"}), "screening", 30.0))
            nchw = resnet50("exp4", count, 64, **TENSORFLOW, precision="tf32")
            for layout in ("channels_first", "channels_last"):
                run = Run(**nchw.model_dump(exclude_defaults=True) | {"layout": layout})
                planned.append(Planned(run, "screening", 4.0 + 2 * count))
    return planned


def tensorflow_models(devices: Sequence[int]) -> list[Planned]:
    """Document 001's other models of interest in its own framework, at their own batches: first variables on the CPU and NCCL's all-reduce,
    then the other updates that its claims compare; on one GPU and on the most. And NCHW against NHWC in fp32, as the document was (C16), on
    one GPU. Screening.
    """
    planned = []
    for group in (COMPARED[:1] + COMPARED[3:4], COMPARED[1:3] + COMPARED[4:]):
        for count in ends_of(devices):
            for name in CNNS_OF_INTEREST:
                model = find_model("cnn", name)
                if name == "resnet50_v1.5":  # `tensorflow_cnn` has it
                    continue
                price = round(5.0 + 2 * count + 0.02 * len(model.variables) + 4.0 * model.parameters / 1e8, 1)
                planned += [Planned(_image_model(model, placement, count, "bf16"), "screening", price) for placement in group]
    if 1 in devices:
        for name in ("resnet50_v1.5", "vgg16", "alexnet_cifar"):
            runs = [_image_model(find_model("cnn", name), "exp4", 1, "fp32", layout) for layout in ("channels_first", "channels_last")]
            planned += [Planned(run, "screening", 10.0) for run in runs]
    return planned


def _image_model(model: Model, placement: str, count: int, precision: str, layout: str = "channels_last") -> Run:
    """A model of images at its own batch, one process and one graph."""
    fields: dict[str, Any] = {"workload": "cnn", "model": model.name, "batch_size": model.config.default_batch, "layout": layout}
    return Run(placement=placement, devices=count, precision=precision, **fields, **TENSORFLOW)  # type: ignore[arg-type]


COMPARED = ("exp2", "ps_gpu0", "replicated_copy", "replicated_allreduce", "exp4")


def tensorflow_layers(devices: Sequence[int]) -> list[Planned]:
    """Dense, convolutional and recurrent stacks on one GPU in both frameworks, one process each, nothing merged: what C44 says of one
    iteration, kind by kind. At 128 rows the GPU may wait for its host, at 8,192 it does not. TF32: under bf16 TensorFlow's recurrence
    would stay in float32. Screening; about a minute.
    """
    if 1 not in devices:
        return []
    form = {"scaling": "weak", "precision": "tf32"}
    planned = []
    for model in LAYER_TYPES:
        for batch in LAYER_BATCHES[1::2]:
            planned.append(Planned(stack(model, "independent", 1, batch, **form, **TENSORFLOW), "screening", 6.0))
            planned.append(Planned(stack(model, "independent", 1, batch, **form, processes="one"), "screening", 3.0))
    return planned


MIRRORED = ("mirrored_nccl", "mirrored_hierarchical", "mirrored_one_device", "central_storage")
OVER_PROCESSES = ("multi_worker", "parameter_server_async")


def tensorflow_distribute(devices: Sequence[int]) -> list[Planned]:
    """TensorFlow's own strategies on the documents' jobs: NMT at 128 x 100 in TF32, ResNet-50 at 64 images a GPU in bf16. Screening.

    Hierarchical copy stands at even counts only: it leaves out the last of an odd number of devices. The asynchronous server, whose
    start takes most of its time, stands at the ends only.
    """
    planned = []
    for count in sorted(devices, reverse=True):
        for placement in (*MIRRORED, *OVER_PROCESSES):
            if placement == "mirrored_hierarchical" and count % 2 and count > 1:
                continue
            if placement == "parameter_server_async" and count not in ends_of(devices):
                continue
            apart = placement in OVER_PROCESSES
            steps = {"warmup_steps": 5, "timed_steps": 10} if placement == "parameter_server_async" else {}
            form = {**TENSORFLOW, **steps, "processes": "per_device" if apart else "one"}
            # starting and joining processes; variables that cross the host's memory, or a socket for every shard
            extra = (15.0 + 2 * count if apart else 0.0) + {"central_storage": 2.0, "parameter_server_async": 20.0 * count}.get(
                placement, 0.0
            )
            planned.append(Planned(nmt(placement, count, 128, precision="tf32", **form), "screening", 8.0 + extra))
            planned.append(Planned(resnet50(placement, count, 64, precision="bf16", **form), "screening", 8.0 + 2 * count + extra))
    return planned
