"""Refuse what cannot be combined in a Run: one registry, a rule a function.

A rule takes a `Case` (the Run, its placement's row, its model's description and what may be chosen
instead) and raises `Refused` with a sentence where the Run cannot be. To add one, write it into the
module of its subject and name it in `RULES`.
"""

from collections.abc import Callable

from multigpu.spec.rules import (
    devices,
    engines,
    gradients,
    inputs,
    kernels,
    model,
    partition,
    precision,
    stages,
)
from multigpu.spec.rules.case import Case

Rule = Callable[[Case], None]

RULES: tuple[Rule, ...] = (
    model.framework,
    inputs.known_inputs,
    devices.global_batch,
    model.meaning,
    model.context,
    inputs.batching,
    inputs.shuffle,
    model.one_framework,
    gradients.bucket_mib,
    engines.captured,
    precision.device_precision,
    gradients.wire_dtype,
    gradients.compressed,
    gradients.buckets_in_a_graph,
    gradients.all_reduce_spec,
    precision.bf16_params,
    precision.half_precision,
    gradients.micro_steps,
    gradients.micro_sync,
    gradients.recompute,
    gradients.reshard,
    gradients.sharded_over,
    gradients.local_steps,
    gradients.gathered_predictions,
    engines.engine,
    inputs.feeding,
    devices.slicing,
    devices.own_layers,
    devices.device_ids,
    devices.nccl_settings,
    kernels.recurrence,
    devices.energy,
    kernels.persistent_batch_norm,
    kernels.fused_layers,
    kernels.stem,
    kernels.weight_casts,
    inputs.feed,
    devices.trace_window,
    stages.stages,
    partition.model_parallel,
    partition.pieces,
    partition.micro_batches,
    partition.partition,
    partition.pipeline_schedule,
)
"""In the order in which they are asked: a rule may rely on those before it."""


def judge(case: Case) -> None:
    """Refuse (`Refused`, by the first rule that does) a Run that cannot be measured."""
    for rule in RULES:
        rule(case)
