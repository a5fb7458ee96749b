"""Whether buckets do better otherwise than as the library makes them: updated beside what is left of backward, or sent unpacked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from multigpu.grid.entries import FEWEST, Planned, ends_of, nmt, resnet50
from multigpu.run import Run

AGAIN = (*FEWEST, 0, 1, 2, 3)
"""Nine repeats: who has five already is measured again in the four launches of those it is compared with."""


def jobs() -> list[tuple[Callable[..., Run], int, dict[str, Any], float]]:
    """Model, batch, further fields and seconds of a measurement."""
    return [(resnet50, 64, {}, 2.5), (resnet50, 256, {}, 6.5), (nmt, 128, {"cross_entropy": "fused"}, 2.2)]


def updates_in_backward(devices: Sequence[int]) -> list[Planned]:
    """Captured `ddp` with `bucket_update`, beside `ddp` and independent replicas without it, on one and the most devices: ResNet-50 at
    64 and 256 images a GPU, 000's model at 128 x 100. bf16. Other sizes of buckets once, on the most.

    Two launches of one point differ by a percent or so, which is what is asked for here; so all three are measured in each launch.
    """
    form = {"precision": "bf16", "execution": "captured"}
    early = form | {"bucket_update": "in_backward"}
    planned = []
    for count in ends_of(devices):
        for make, batch, more, cost_s in jobs():
            planned.append(Planned(make("ddp", count, batch, **early, **more), "headline", cost_s, FEWEST))
            planned += [Planned(make(name, count, batch, **form, **more), "headline", cost_s, AGAIN) for name in ("ddp", "independent")]
    if (most := max(devices, default=1)) > 1:
        planned += [
            Planned(resnet50("ddp", most, batch, **early, bucket_mib=size), "screening", 2.2) for batch in (64, 256) for size in (8, 100)
        ]
    return planned


def sent_unpacked(devices: Sequence[int]) -> list[Planned]:
    """Captured `ddp` that leaves gradients where backward made them (`bucket_send`), beside `ddp` and independent replicas without it: the
    jobs of `updates_in_backward`, the most devices first. Other sizes of buckets once, on the most.

    All three are measured in each launch; `ddp` and independent replicas once more than other grids do.
    """
    form = {"precision": "bf16", "execution": "captured"}
    unpacked = form | {"bucket_send": "grouped"}
    planned = []
    for count in ends_of(devices):
        for make, batch, more, cost_s in jobs():
            planned.append(Planned(make("ddp", count, batch, **unpacked, **more), "headline", cost_s, FEWEST))
            for name in ("ddp", "independent"):
                planned.append(Planned(make(name, count, batch, **form, **more), "headline", cost_s, FEWEST, first_repeat=len(AGAIN)))
    if (most := max(devices, default=1)) > 1:
        sizes = [(batch, size) for batch in (64, 256) for size in (50, 100)]
        planned += [Planned(resnet50("ddp", most, batch, **unpacked, bucket_mib=size), "screening", 6.5) for batch, size in sizes]
    return planned
