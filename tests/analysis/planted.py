"""A small study with known shape, one point out of memory; traces whose phases are given in ms; what a telephone shows."""

from typing import Any

from matplotlib.text import Text

from multigpu.analysis.picture import Picture
from multigpu.measure.trace import CopyTotals, KernelTotals, ReplicaTrace, StepTrace, TraceSummary
from multigpu.record import Record
from tests.factory import make_point, make_record

SHARES = {"ddp": (1.0, 0.95, 0.9), "independent": (1.0, 0.99, 0.98), "exp4": (0.98, 0.75, 0.5), "exp2": (0.5, 0.25, 0.1)}
"""Of perfect scaling from one GPU under ddp, on 1, 2 and 8 GPUs."""
DEVICES = (1, 2, 8)
NOISE = (1.0, 1.004, 0.996, 1.002, 0.998)


def study(repeats: int = 5, shares: dict[str, tuple[float, ...]] | None = None, **fields: object) -> list[Record]:
    records = []
    for workload, batch, single in (("nmt", 128, 600_000.0), ("cnn", 64, 2_800.0), ("cnn", 256, 4_500.0)):
        for placement, of_perfect in (shares or SHARES).items():
            for count, share in zip(DEVICES, of_perfect, strict=True):
                point = {"placement": placement, "devices": count, "workload": workload, "batch_size": batch, **fields}
                if (placement, count, batch) == ("exp2", 8, 256):
                    records.append(make_record(status="out_of_memory", reason="150 GiB wanted, 128 there", **point))
                    continue
                # a larger batch scales better
                gain = 1.0 if batch == 256 else 0.8 if count == 8 else 1.0
                records += make_point([single * count * share * gain * x for x in NOISE[:repeats]], **point)
    return records


COLUMN_PX = 342  # of a page of 390 px


def read_on_a_telephone(picture: Picture) -> bool:
    """Whether the narrow drawing needs no scrolling, cuts nothing off, and has letters of at least 9 px; an inch is 72 px on a page."""
    drawing = picture.narrow
    assert drawing
    drawing.draw_without_rendering()
    sizes = [text.get_fontsize() for text in drawing.findobj(Text) if text.get_visible() and text.get_text()]
    width, height = drawing.get_size_inches()
    box = drawing.get_tightbbox()
    return min(sizes) >= 9 and 72 * width <= COLUMN_PX and min(box.x0, box.y0) >= 0 and box.x1 <= width and box.y1 <= height


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
