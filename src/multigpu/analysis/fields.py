"""Which columns make two rows the same job, the same series, the same point; they follow from the
fields of a Run.
"""

from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from multigpu.spec.run import Run
from multigpu.spec.tables import columns_of, table

FOLDER = Path(__file__).parent

Role = Literal["job", "size", "way", "condition", "host", "watch", "length", "repeat", "unread"]

ROLES: dict[str, Role] = {
    row["field"]: row["role"]  # type: ignore[misc] # as the table has them
    for row in table(FOLDER / "fields.csv")
}
"""What each field of a Run is to those who compare Runs; how its values are called stands in
`words.SAYS` and `words.OF_A_JOB`.
job: what one device does in a step; size: on how much; way: how it is done, which may differ
    between rivals; condition: what is compared has it in common; host: so too, where it is named;
    watch: counts only where it is named; length: how long was measured, which makes no other
    question; repeat: tells repeats apart; unread: no row has it (`input_label` says what was read;
    no row is of a traced Run).
"""


def with_role(*roles: Role) -> tuple[str, ...]:
    """The fields of a Run with one of these roles, in the order in which a Run declares them."""
    return tuple(name for name in Run.model_fields if ROLES[name] in roles)


FIELDS = with_role("job", "size", "way", "condition", "host", "watch", "length")
"""The fields of a Run that a point has."""

RUN_FIELDS = tuple(name for name in Run.model_fields if ROLES[name] != "unread")
LENGTH = with_role("length")
CONDITIONS = with_role("condition", "host")
RESTRICTED = with_role("host", "watch")

JOB = ("machine", "gpu", "cpu", "unit", "input_label", *with_role("job"), "timing_version")
"""What one device does in a step, however it is done: the best of these is "one GPU at best"."""

SAME = (*JOB, "scaling", "devices", *CONDITIONS)
"""What all ways of one job on as many devices have in common."""

CHANGES = with_role("way")
"""What may be another way of doing the same job."""

FASTER_KERNELS: dict[str, tuple[str, ...]] = {
    "layout": ("channels_last",),
    "batch_norm": ("persistent", "fused"),
    "stem": ("folded",),
    "weight_casts": ("grouped",),
    "recurrence": ("persistent",),
    "cross_entropy": ("fused",),
}
"""Fields whose values choose other kernels for what one device computes, with the values that make
a step faster. A point that uses one of these is compared with a baseline that uses it too.
"""

WAY = ("framework_version", *(name for name in FIELDS if ROLES[name] not in ("job", "size")))
"""How it is done."""

SERIES = (*JOB, "scaling", *WAY)
"""One job done one way, on any number of devices."""

POINT = (*SERIES, "devices")
"""Everything that makes two rows repeats of one point: all but seed, repeat and launch."""

SENDING = (
    *("bucket_mib", "bucket_update", "bucket_send", "nccl_ctas", "wire_dtype", "all_reduce_spec"),
    *("powersgd_rank", "top_k"),
)
"""Fields that say how gradients travel and when they update; independent replicas have none."""

FOLLOWS: dict[str, tuple[str, ...]] = {
    "machine": ("gpu", "cpu"),
    "framework": ("framework_version",),
    "inputs": ("input_label", "data", "input_workers", "prefetch", "staging", "image_dtype"),
    "sequence_length": ("input_label",),
    "model": ("input_label",),
    "shuffle": ("input_label",),
}
"""What may differ as soon as a field does."""


def columns(frame: str) -> dict[str, str]:
    """The columns of a frame of `columns.csv`, which says what they mean, with their dtypes."""
    return columns_of(FOLDER / "columns.csv", frame)


def dtype_of(field: str) -> str:
    """The dtype of a frame's column for a field of a Run, by its annotation: int64, or Int64 where
    it may be None; float64; bool; else string.
    """
    annotation: Any = Run.model_fields[field].annotation
    kinds = (
        set(get_args(annotation)) if get_origin(annotation) in (Union, UnionType) else {annotation}
    )
    numbers = {bool: "bool", int: "int64", float: "float64"}
    if NoneType in kinds:
        numbers[int] = "Int64"
    return next(
        (dtype for kind, dtype in numbers.items() if kinds - {NoneType} == {kind}), "string"
    )
