"""Planted traces: steps whose phases are given in milliseconds."""

import random
from typing import Any

from multigpu.measure.trace import MOST_SPANS, TOP_KERNELS, CopyTotals, KernelTotals, ReplicaTrace, StepTrace, TraceSummary
from multigpu.record import Record
from tests.factory import make_record

STEPS = 3


def ms(value: float) -> float:
    return value / 1000


def step_of(
    after: float = 0.0,
    spans: int = 1,
    noise: random.Random | None = None,
    told: dict[str, Any] | None = None,
    **phases: tuple[float, float],
) -> StepTrace:
    """A step whose phases begin and end at these milliseconds, `after` more; the merge is all of its communication.

    Args:
        told: fields to plant instead.
    """
    jitter = noise.random if noise else lambda: 0.0
    moved = {
        name: (round(ms(start + after + jitter()), 7), round(ms(end + after + 1.1 * jitter()), 7)) for name, (start, end) in phases.items()
    }
    merge = moved.get("merge", (0.0, 0.0))
    return StepTrace(
        start_s=min(start for start, _ in moved.values()),
        end_s=max(end for _, end in moved.values()),
        host_s=round(ms(1 + jitter()), 8),
        phases=moved,
        kernels=1281,
        launches=1281,
        busy_s=round(ms(10 + jitter()), 8),
        communication_s=round(merge[1] - merge[0], 8),
        exposed_s=round(merge[1] - merge[0], 8),
        exposed_copies_s=round(ms(0.25 + jitter() / 9), 8),
        communication=[(round(merge[0] + ms(jitter()), 7), round(merge[1] + ms(jitter()), 7)) for _ in range(spans)],
    ).model_copy(update=told)


def traced_record(devices: int = 2, full: bool = False, **fields: Any) -> Record:
    """A Run whose replicas each begin 2 ms after the one before: forward 3, backward 5, merge to the end, update 1 ms."""
    noise = random.Random(0) if full else None
    replicas = []
    for rank in range(devices):
        late = 2.0 * rank
        ends = 8 + 2.0 * (devices - 1) + 1
        steps = []
        for step in range(STEPS):
            phases = {"forward": (late, late + 3), "backward": (late + 3, late + 8), "merge": (late + 8, ends), "update": (ends, ends + 1)}
            steps.append(step_of((ends + 1) * step, MOST_SPANS if full else 1, noise, **phases))
        kinds = ("host_to_device", "device_to_host", "device_to_device") if full else ("host_to_device",)
        copies = [
            CopyTotals(kind=kind, calls=3, bytes=300, total_s=0.003 + (noise.random() if noise else 0), min_s=0.001, max_s=0.001)
            for kind in kinds
        ]
        replicas.append(ReplicaTrace(rank=rank, steps=steps, copies=copies, launch_lead_s=2e-6))
    kernels = [KernelTotals(name=f"{noise.getrandbits(280):x}"[:70] if noise else "gemm", calls=9, total_s=0.1) for _ in range(TOP_KERNELS)]
    trace = TraceSummary(source="kineto", replicas=replicas, kernels=kernels)
    return make_record(devices=devices, traced_steps=STEPS, measurement={"trace": trace}, **fields)
