"""Whether buckets do better otherwise than as the library makes them: updated beside what is left of backward, or sent unpacked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from multigpu.grid.entries import FEWEST, TRACED, Planned, ends_of, nmt, resnet50
from multigpu.run import Run

AGAIN = (*FEWEST, 0, 1, 2, 3)
"""Nine repeats: who has five already is measured again in the four launches of those it is compared with."""


def jobs() -> list[tuple[Callable[..., Run], int, dict[str, Any], float]]:
    """Model, batch, further fields and seconds of a measurement."""
    return [(resnet50, 64, {}, 2.5), (resnet50, 256, {}, 6.5), (nmt, 128, {"cross_entropy": "fused"}, 2.2)]


def _compared(devices: Sequence[int], changed: dict[str, Any], sizes: Sequence[int], launches: Sequence[int], first: int) -> list[Planned]:
    """Captured `ddp` with these fields, beside `ddp` and independent replicas without them in the same launches, on one and the most
    devices; other sizes of buckets once, on the most.

    Args:
        launches, first: of the two that it stands beside, and the number of their first repeat.
    """
    form = {"precision": "bf16", "execution": "captured"}
    other = form | changed
    planned = []
    for count in ends_of(devices):
        for make, batch, more, cost_s in jobs():
            planned.append(Planned(make("ddp", count, batch, **other, **more), "headline", cost_s, FEWEST))
            beside = [make(name, count, batch, **form, **more) for name in ("ddp", "independent")]
            planned += [Planned(run, "headline", cost_s, tuple(launches), first) for run in beside]
    if (most := max(devices, default=1)) > 1:
        each = [(batch, size) for batch in (64, 256) for size in sizes]
        planned += [Planned(resnet50("ddp", most, batch, **other, bucket_mib=size), "screening", batch / 40) for batch, size in each]
    return planned


def updates_in_backward(devices: Sequence[int]) -> list[Planned]:
    """Captured `ddp` with `bucket_update`, beside `ddp` and independent replicas without it: ResNet-50 at 64 and 256 images a GPU, 000's
    model at 128 x 100. bf16.

    Two launches of one point differ by a percent or so, which is what is asked for here; so all three are measured in each launch.
    """
    return _compared(devices, {"bucket_update": "in_backward"}, (8, 100), AGAIN, 0)


def sent_unpacked(devices: Sequence[int]) -> list[Planned]:
    """As `updates_in_backward`, of `ddp` that leaves gradients where backward made them (`bucket_send`). What it stands beside is measured
    once more than other grids do, to share its launches.
    """
    return _compared(devices, {"bucket_send": "grouped"}, (50, 100), FEWEST, len(AGAIN))


def small_last(devices: Sequence[int]) -> list[Planned]:
    """As `sent_unpacked`, of `ddp` whose last bucket is the small one, which is all that a step waits for when backward has ended; and
    traced, for what is still lost.
    """
    planned = _compared(devices, {"bucket_send": "grouped_small_last"}, (50, 100), FEWEST, len(AGAIN) + len(FEWEST))
    form = {"precision": "bf16", "execution": "captured", "bucket_send": "grouped_small_last"}
    for batch in (64, 256):
        planned.append(Planned(resnet50("ddp", max(devices, default=1), batch, **form, **TRACED), "screening", batch / 20))
    return planned
