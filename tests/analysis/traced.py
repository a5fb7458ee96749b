"""Planted traces: steps whose phases are given in milliseconds."""

from typing import Any

from multigpu.measure.trace import CopyTotals, KernelTotals, ReplicaTrace, StepTrace, TraceSummary
from multigpu.record import Record
from tests.factory import make_record

STEPS = 3


def ms(value: float) -> float:
    return value / 1000


def step_of(after: float = 0.0, told: dict[str, Any] | None = None, **phases: tuple[float, float]) -> StepTrace:
    """A step whose phases begin and end at these milliseconds, `after` more; the merge is all of its communication.

    Args:
        told: fields to plant instead.
    """
    moved = {name: (round(ms(start + after), 7), round(ms(end + after), 7)) for name, (start, end) in phases.items()}
    merge = moved.get("merge", (0.0, 0.0))
    return StepTrace(
        start_s=min(start for start, _ in moved.values()),
        end_s=max(end for _, end in moved.values()),
        host_s=ms(1),
        phases=moved,
        kernels=1281,
        launches=1281,
        busy_s=ms(10),
        communication_s=round(merge[1] - merge[0], 8),
        exposed_s=round(merge[1] - merge[0], 8),
        exposed_copies_s=ms(0.25),
        communication=[merge],
    ).model_copy(update=told)


def traced_record(devices: int) -> Record:
    """A Run whose replicas each begin 2 ms after the one before: forward 3, backward 5, merge to the end, update 1 ms."""
    replicas = []
    for rank in range(devices):
        late, ends = 2.0 * rank, 8 + 2.0 * (devices - 1) + 1
        phases = {"forward": (late, late + 3), "backward": (late + 3, late + 8), "merge": (late + 8, ends), "update": (ends, ends + 1)}
        steps = [step_of((ends + 1) * step, **phases) for step in range(STEPS)]
        copies = [CopyTotals(kind="host_to_device", calls=3, bytes=300, total_s=0.003, min_s=0.001, max_s=0.001)]
        replicas.append(ReplicaTrace(rank=rank, steps=steps, copies=copies, launch_lead_s=2e-6))
    kernels = [KernelTotals(name="gemm", calls=9, total_s=0.1)]
    trace = TraceSummary(source="kineto", replicas=replicas, kernels=kernels)
    return make_record(devices=devices, traced_steps=STEPS, measurement={"trace": trace})
