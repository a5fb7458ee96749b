"""Whether updating each bucket beside what is left of backward gains anything over updating when backward has ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from multigpu.grid.entries import FEWEST, Planned, ends_of, nmt, resnet50
from multigpu.run import Run

AGAIN = (*FEWEST, 0, 1, 2, 3)
"""Nine repeats: who has five already is measured again in the four launches of those it is compared with."""


def updates_in_backward(devices: Sequence[int]) -> list[Planned]:
    """Captured `ddp` with `bucket_update`, beside `ddp` and independent replicas without it, on one and the most devices: ResNet-50 at
    64 and 256 images a GPU, 000's model at 128 x 100. bf16. Other sizes of buckets once, on the most.

    Two launches of one point differ by a percent or so, which is what is asked for here; so all three are measured in each launch.
    """
    form = {"precision": "bf16", "execution": "captured"}
    early = form | {"bucket_update": "in_backward"}
    planned = []
    for count in ends_of(devices):
        jobs: list[tuple[Callable[..., Run], int, dict[str, Any]]] = [(resnet50, batch, {}) for batch in (64, 256)] + [
            (nmt, 128, {"cross_entropy": "fused"})
        ]
        for make, batch, more in jobs:
            planned.append(Planned(make("ddp", count, batch, **early, **more), "headline", 2.2, FEWEST))
            planned += [Planned(make(name, count, batch, **form, **more), "headline", 2.2, AGAIN) for name in ("ddp", "independent")]
    if (most := max(devices, default=1)) > 1:
        planned += [
            Planned(resnet50("ddp", most, batch, **early, bucket_mib=size), "screening", 2.2) for batch in (64, 256) for size in (8, 100)
        ]
    return planned
