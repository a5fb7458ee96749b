"""What a Run may ask of how gradients, predictions and 16-bit numbers travel, and of a model that
is parallel in itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multigpu.collectives.spec import LIBRARY, parse_spec
from multigpu.placements.partition import ACTIVATION_BYTES, uncuttable

if TYPE_CHECKING:
    from multigpu.placements.row import Placement
    from multigpu.run import Run

PARTITIONED = ("sections", "split")
"""Values of a row's `compute` under which the devices share copies of a model."""


def check_travel(run: Run, placement: Placement) -> None:
    """Refuse what cannot be had of how numbers travel."""
    for check in (_messages, _half_precision, _micro_steps, _local_steps):
        check(run, placement)
    if placement.loss == "gpu0" and run.description.unit != "images":
        raise ValueError(
            f"placement {run.placement!r} gathers one prediction an image, and {run.model!r} has"
            " none: choose an image model"
        )


def _messages(run: Run, placement: Placement) -> None:
    torch_processes, at = (
        (run.framework, run.processes) == ("torch", "per_device"),
        f"with placement {run.placement!r}",
    )
    if run.wire_dtype is not None and not (placement.merge == "all_reduce" and torch_processes):
        raise ValueError(
            f"wire_dtype {run.wire_dtype!r} is the type of gradients in PyTorch's all-reduce with a"
            f" process a device: leave it out {at} in {run.framework!r} with processes"
            f" {run.processes!r}"
        )
    for field, value, does in (
        (
            "bucket_update",
            run.bucket_update,
            "moves the update of gradients that merge during backward into it",
        ),
        (
            "bucket_send",
            run.bucket_send,
            "leaves gradients that merge during backward where they are",
        ),
    ):
        if value is not None and not (
            placement.overlap and torch_processes and run.execution == "captured"
        ):
            raise ValueError(
                f"{field} {value!r} {does}, in one captured step of 'torch': leave it out {at} and"
                f" execution {run.execution!r}, or choose 'ddp' and 'captured'"
            )
    if run.bucket_update is not None and run.precision == "fp16":
        raise ValueError(
            f"bucket_update {run.bucket_update!r} cannot wait for the last bucket to know of an"
            " overflow: choose a precision but 'fp16'"
        )
    if run.all_reduce_spec is None:
        return
    if (
        placement.merge != "all_reduce"
        or placement.overlap
        or placement.algorithm is not None
        or not torch_processes
    ):
        raise ValueError(
            f"all_reduce_spec {run.all_reduce_spec!r} divides one all-reduce after backward, in"
            f" 'torch' with a process a device: leave it out {at}, or choose 'replicated_allreduce'"
        )
    written_out = [
        part.algorithm for part in parse_spec(run.all_reduce_spec) if part.algorithm != LIBRARY
    ]
    if written_out and run.execution != "eager":
        raise ValueError(
            f"all_reduce_spec names {written_out[0]!r}, which runs kernel by kernel only: choose"
            " execution 'eager'"
        )


def _half_precision(run: Run, placement: Placement) -> None:
    if run.precision != "fp16":
        if run.loss_scale is not None:
            raise ValueError(
                f"loss_scale {run.loss_scale} has no meaning for precision {run.precision!r}: leave"
                " it out or choose 'fp16'"
            )
        return
    if (
        run.description.unit != "images"
        or run.framework != "torch"
        or run.processes != "per_device"
    ):
        raise ValueError(
            "precision 'fp16' exists for image models in 'torch' with a process a device: choose"
            " bf16 elsewhere"
        )
    if {placement.variables, placement.update} != {"replica"}:
        raise ValueError(
            "precision 'fp16' leaves out a step when any gradient overflows, which every replica"
            " must see: choose a placement with variables and update on every replica, not"
            f" {run.placement!r}, or precision 'bf16'"
        )


def _micro_steps(run: Run, placement: Placement) -> None:
    if run.micro_steps is None:
        if run.micro_sync is not None:
            raise ValueError(
                f"micro_sync {run.micro_sync!r} has no meaning without micro_steps: leave it out,"
                " or say into how many"
            )
        return
    if (run.framework, run.processes, placement.compute) != ("torch", "per_device", "replica"):
        raise ValueError(
            f"micro_steps {run.micro_steps} adds up gradients on replicas of the whole model, in"
            f" 'torch' with a process a device: leave it out with placement {run.placement!r} in"
            f" {run.framework!r} with processes {run.processes!r}"
        )
    if (smallest := min(run.shard_sizes)) < run.micro_steps:
        raise ValueError(
            f"a replica gets {smallest} rows, which cannot be cut into micro_steps"
            f" {run.micro_steps}: choose a larger batch_size"
        )
    if run.micro_sync is None:
        return
    if placement.update not in ("replica", "cut") or not placement.merges_gradients:
        instead = (
            "merges none"
            if placement.variables == "replica"
            else "has them pushed to one home, once a step"
        )
        raise ValueError(
            f"micro_sync {run.micro_sync!r} merges gradients of replicas after each part of a"
            f" shard, and placement {run.placement!r} {instead}: leave it out"
        )
    if placement.overlap and "captured" in run.execution:
        raise ValueError(
            f"micro_sync {run.micro_sync!r} is the library's own reducer after each part, which"
            f" cannot be recorded in a graph: leave it out with execution {run.execution!r}, or"
            " choose 'eager'"
        )


def _local_steps(run: Run, placement: Placement) -> None:
    every = run.semantics.every
    if run.local_steps is not None and placement.merge != "average":
        raise ValueError(
            f"local_steps {run.local_steps} has no meaning for placement {run.placement!r}: leave"
            " it out or choose 'local_sgd'"
        )
    if run.timed_steps % every:
        raise ValueError(
            f"timed_steps {run.timed_steps} is no multiple of the {every} steps after which"
            f" placement {run.placement!r} averages: a rate is of whole cycles, so choose"
            f" timed_steps {-(-run.timed_steps // every) * every} or local_steps that divide it"
        )
    if run.warmup_steps < every:
        raise ValueError(
            f"warmup_steps {run.warmup_steps} holds no whole cycle of {every} steps, whose bytes"
            f" are counted: choose at least {every}"
        )


def check_partition(run: Run, placement: Placement) -> None:
    """Refuse what cannot be had of a model over several devices."""
    at, parted = f"placement {run.placement!r}", placement.compute in PARTITIONED
    if run.model_parallel is not None and not parted:
        raise ValueError(
            f"model_parallel {run.model_parallel} has no meaning for {at}, which gives every device"
            " the whole model: choose layer_split or tensor_split"
        )
    if parted and run.devices % run.degree:
        raise ValueError(
            f"model_parallel {run.model_parallel} does not divide {run.devices} devices into copies"
            " of a model"
        )
    if run.micro_batches is not None and placement.compute != "sections":
        raise ValueError(
            f"micro_batches {run.micro_batches} has no meaning for {at}: choose layer_split"
        )
    if not parted:
        return
    if run.precision not in ACTIVATION_BYTES:
        raise ValueError(
            f"precision {run.precision!r} is not kept between parts of a model: choose"
            f" {', '.join(ACTIVATION_BYTES)}"
        )
    smallest, parts = min(run.shard_sizes), run.micro_batches or 1
    if smallest < parts:
        raise ValueError(
            f"a copy of the model gets {smallest} rows, which cannot be cut into {parts}"
            " micro-batches: choose a larger batch_size"
        )
    if placement.compute == "sections":
        count = len(run.description.sections)
        if not count:
            raise ValueError(
                f"{at} needs a model that declares its sections, and {run.model!r} does not"
            )
        if count < run.degree:
            raise ValueError(
                f"{run.model!r} has {count} sections, which cannot be spread over {run.degree}"
                f" devices: choose at most {count}"
            )
        if run.cross_entropy is not None and run.execution != "eager":
            raise ValueError(f"cross_entropy {run.cross_entropy!r} of sections runs eagerly only")
    elif reason := uncuttable(run.description, run.degree):
        raise ValueError(f"{at}: {reason}")
    elif run.recurrence in ("fused", "persistent"):
        raise ValueError(
            f"recurrence {run.recurrence!r} is one call for whole layers, and {at} cuts them: leave"
            " it out"
        )
