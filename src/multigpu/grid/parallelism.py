"""Kinds of parallelism: layers over devices, matrices over devices, both with data parallelism, and data parallelism beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from multigpu.grid.entries import FEWEST, Planned, Tier, nmt
from multigpu.placements.partition import uncuttable
from multigpu.run import Run
from multigpu.workloads import find_model

MLP_BATCHES = (1024, 8192)
"""Rows of a joined batch of document 002's fully connected model: one that the host can hardly keep up with, and one that it can."""
NMT_BATCHES = (128, 512)
"""Sentences of 100 words of a joined batch; 128 is document 000's."""
MICRO_BATCHES = (2, 4, 8)
LAYER_TYPES = ("stack_dense", "stack_convolution", "stack_recurrent")
LAYER_BATCHES = (16, 128, 1024, 8192)


def stack(model: str, placement: str, devices: int, batch: int, **more: Any) -> Run:
    """A stack on a joined batch, in bf16 unless told: the same job whatever the number of devices."""
    return Run(
        workload="stacks",
        model=model,
        placement=placement,
        devices=devices,
        batch_size=batch,
        **({"scaling": "strong", "precision": "bf16"} | more),
    )


def layers_over(devices: int, batch: int, **more: Any) -> Run:
    """Document 000's model with its layers over devices, on a joined batch."""
    return nmt("layer_split", devices, batch, **({"processes": "one", "scaling": "strong", "precision": "bf16"} | more))


def parallelism(devices: Sequence[int]) -> list[Planned]:
    """Headline: the fully connected model cut over 1, 2, 4 and 8 GPUs beside all-reduce (C31), and the translation model's layers over as
    many (C40). Screening: micro-batches, hybrids, all-reduce beside the layers, traces, and layer types against batch size.

    About 10 minutes for 1, 2 and 4 GPUs.
    """
    most_first = sorted(devices, reverse=True)
    planned: list[Planned] = []
    for count in most_first:
        for batch in MLP_BATCHES:
            planned += [Planned(stack("mlp42m", name, count, batch), "headline", 2.5, FEWEST) for name in ("tensor_split", "ddp")]
    for count in most_first:
        planned += [Planned(layers_over(count, batch), "headline", 5.0, FEWEST) for batch in NMT_BATCHES]
    for count in [count for count in most_first if count > 1]:
        planned += [
            Planned(layers_over(count, batch, micro_batches=parts), "screening", 5.0) for batch in NMT_BATCHES for parts in MICRO_BATCHES
        ]
    planned += [Planned(run, "screening", 3.0) for run in _hybrids(most_first)]
    for count in most_first:
        planned += [Planned(nmt("ddp", count, batch, scaling="strong", precision="bf16"), "screening", 5.0) for batch in NMT_BATCHES]
    return planned + layer_types(devices) + _traces(most_first)


def _hybrids(devices: Sequence[int]) -> list[Run]:
    """Copies of a model beside each other, each over 2 or 4 GPUs (and over one: all-reduce after backward, in the same program)."""
    runs = []
    for count in [count for count in devices if count > 2]:
        for shared in (1, 2, 4):
            if shared < count and count % shared == 0:
                runs += [stack("mlp42m", "tensor_split", count, batch, model_parallel=shared) for batch in MLP_BATCHES]
        if count % 2 == 0:
            runs += [layers_over(count, batch, model_parallel=2) for batch in NMT_BATCHES]
    return runs


def layer_types(devices: Sequence[int]) -> list[Planned]:
    """Dense, convolutional and recurrent stacks of like size at four joined batches, by all-reduce and cut. Screening.

    A cut recurrent layer runs its positions in a loop; beside it stands the same loop under all-reduce, so that leaving the library's
    LSTM is not counted as communication.
    """
    planned = []
    for count in sorted(devices, reverse=True):
        for model in LAYER_TYPES:
            for batch in LAYER_BATCHES:
                runs = [stack(model, "ddp", count, batch)]
                if uncuttable(find_model("stacks", model), count) is None:
                    runs.append(stack(model, "tensor_split", count, batch))
                if model == "stack_recurrent":
                    runs.append(stack(model, "ddp", count, batch, recurrence="stepwise"))
                planned += [Planned(run, "screening", 2.0) for run in runs]
    return planned


def _traces(devices: Sequence[int]) -> list[Planned]:
    """Traced steps on the most GPUs: where stages wait, and where parts do."""
    most = devices[0]
    if most == 1:
        return []
    runs = [layers_over(most, 512, micro_batches=parts, traced_steps=3) for parts in (None, 4)]
    runs.append(stack("mlp42m", "tensor_split", most, 8192, traced_steps=3))
    if uncuttable(find_model("stacks", "stack_recurrent"), most) is None:
        runs.append(stack("stack_recurrent", "tensor_split", most, 1024, traced_steps=3))
    return [Planned(run, "screening", 8.0) for run in runs]


def parallelism_small(devices: Sequence[int]) -> list[Planned]:
    """The same kinds with small models on CPU processes, to see every path run; figures say nothing about GPUs."""
    tier: Tier = "screening"
    small: dict[str, Any] = {"device_type": "cpu", "precision": "fp32", "warmup_steps": 3, "timed_steps": 10}
    planned = []
    for count in devices:
        runs = [stack("mlp_small", name, count, 256, **small) for name in ("tensor_split", "ddp")]
        for name in ("stack_convolution_tiny", "stack_recurrent_tiny"):
            ways = ("tensor_split", "ddp") if uncuttable(find_model("stacks", name), count) is None else ("ddp",)
            runs += [stack(name, placement, count, 64, **small) for placement in ways]
        for parts in (None, 2, 4) if count > 1 else (None,):
            more = small | {"model": "nmt_small", "sequence_length": 20, "micro_batches": parts}
            runs.append(layers_over(count, 16, **more))
        planned += [Planned(run, tier, 2.0) for run in runs]
    if 2 in devices:  # two copies of two
        planned.append(Planned(stack("mlp_small", "tensor_split", 4, 256, model_parallel=2, **small), tier, 3.0))
        planned.append(Planned(layers_over(4, 16, **small, model="nmt_small", sequence_length=20, model_parallel=2), tier, 3.0))
    return planned
