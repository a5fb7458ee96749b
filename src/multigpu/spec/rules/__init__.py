"""What cannot be combined in a Run: one registry, a rule a function.

A rule takes a `Case` (the Run, its placement's row, its model's description and what may be chosen
instead) and returns the sentence that refuses it, or None. To add one, write it into the module of
its subject and name it in `RULES`.
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

Rule = Callable[[Case], str | None]

RULES: tuple[Rule, ...] = (
    model.framework,
    inputs.known_inputs,
    devices.global_batch,
    model.meaning,
    inputs.batching,
    inputs.shuffle,
    model.one_framework,
    gradients.bucket_mib,
    engines.captured,
    precision.device_precision,
    gradients.wire_dtype,
    gradients.buckets_in_a_graph,
    gradients.all_reduce_spec,
    precision.half_precision,
    gradients.micro_steps,
    gradients.micro_sync,
    gradients.local_steps,
    gradients.gathered_predictions,
    engines.engine,
    inputs.feeding,
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
    partition.micro_batches,
    partition.partition,
)
"""In the order in which they are asked: a rule may rely on those before it."""


def refused(case: Case) -> str | None:
    """The sentence of the first rule that refuses the Run; None if it can be measured."""
    return next((said for rule in RULES if (said := rule(case)) is not None), None)
