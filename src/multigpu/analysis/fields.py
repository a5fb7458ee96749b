"""Which columns make two rows the same job, the same series, the same point; they follow from the fields of a Run."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from multigpu.run import Run

UNREAD = ("data", "traced_steps", "traced_from")
"""Fields of a Run that no row has: paths differ between machines (`input_label` says what was read), and no row is of a traced Run."""

RUN_FIELDS = tuple(name for name in Run.model_fields if name not in UNREAD)
FIELDS = tuple(name for name in RUN_FIELDS if name != "seed")
"""The fields of a Run that a point has."""

LENGTH = ("warmup_steps", "timed_steps")
"""How long was measured, which makes no other question."""

JOB = (
    *("machine", "gpu", "cpu", "device_type", "workload", "model", "unit", "batch_size", "inputs", "input_label"),
    *("sequence_length", "precision", "optimizer", "timing_version"),
)
"""What one device does in a step, however it is done: the best of these is "one GPU at its best"."""

WAY = ("framework_version", *(name for name in FIELDS if name not in {*JOB, "scaling", "devices"}))
"""How it is done."""

SERIES = (*JOB, "scaling", *WAY)
"""One job done one way, on any number of devices."""

POINT = (*SERIES, "devices")
"""Everything that makes two rows repeats of one point: all but seed, repeat and launch."""

FOLLOWS: dict[str, tuple[str, ...]] = {
    "machine": ("gpu", "cpu"),
    "framework": ("framework_version",),
    "inputs": ("input_label", "data", "input_workers", "prefetch", "staging", "image_dtype"),
    "sequence_length": ("input_label",),
    "model": ("input_label",),
    "shuffle": ("input_label",),
}
"""What may differ as soon as a field does."""


def dtype_of(field: str) -> str:
    """The dtype of a frame's column for a field of a Run: int64, or Int64 where it may be None; bool; else string."""
    annotation: Any = Run.model_fields[field].annotation
    kinds = set(get_args(annotation)) if get_origin(annotation) in (Union, UnionType) else {annotation}
    whole = {bool: "bool", int: "int64" if NoneType not in kinds else "Int64"}
    return next((dtype for kind, dtype in whole.items() if kinds - {NoneType} == {kind}), "string")
