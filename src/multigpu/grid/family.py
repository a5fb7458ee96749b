"""What makes a model scale: the made-up family of `workloads.cnn.family`, one number changed at a time."""

from __future__ import annotations

from collections.abc import Sequence

from multigpu.grid.entries import Planned
from multigpu.run import Run
from multigpu.workloads.cnn.family import CENTRE, SMALL, SWEEPS, Member

BATCH = 64
BATCHES = (16, 64, 256, 1024)
"""Images a GPU for the centre of the family: any efficiency can be had by a bigger batch."""


def _member(member: Member, devices: int, batch: int = BATCH, **more: object) -> Run:
    fields: dict[str, object] = {"workload": "cnn", "model": member.name, "devices": devices, "batch_size": batch}
    fields |= {"placement": "ddp", "layout": "channels_last", "precision": "bf16"}
    return Run(**(fields | more))  # type: ignore[arg-type]


def family(devices: Sequence[int]) -> list[Planned]:
    """Every member under DDP, captured (what GPUs and links cost) on every count. Then the widths eager (what the host costs), the server
    on the CPU as document 001's rows on small models, and the centre at other batches. 64 images a GPU, bf16. Screening: no claim reads
    the family.
    """
    members = list(dict.fromkeys(member for sweep in SWEEPS.values() for member in sweep))
    first: list[Planned] = []
    rest: list[Planned] = []
    for count in sorted(devices, reverse=True):
        first += [Planned(_member(member, count, execution="captured"), "screening", 2.0) for member in members]
        rest += [Planned(_member(member, count), "screening", 2.0) for member in SWEEPS["width"]]
        rest += [Planned(_member(CENTRE, count, batch, execution="captured"), "screening", 3.0) for batch in BATCHES if batch != BATCH]
        if count in (1, 2):
            rest += [Planned(_member(member, count, placement="exp2"), "screening", 5.0) for member in SWEEPS["width"]]
    return first + rest


def family_small(devices: Sequence[int]) -> list[Planned]:
    """Three small members on CPU processes: says nothing about GPUs."""
    form = {"device_type": "cpu", "precision": "fp32", "warmup_steps": 5, "timed_steps": 20}
    return [Planned(_member(member, count, 8, **form), "screening", 2.0) for count in devices for member in SMALL]
