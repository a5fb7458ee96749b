"""A small study with known shape, one point out of memory; traces whose phases are given in ms;
what a telephone shows.
"""

from typing import Any

from matplotlib.text import Text

from multigpu.analysis.picture import Picture
from multigpu.records.record import Record
from multigpu.records.trace import CopyTotals, KernelTotals, ReplicaTrace, StepTrace, TraceSummary
from tests.factory import make_point, make_record

SHARES = {
    "ddp": (1.0, 0.95, 0.9),
    "independent": (1.0, 0.99, 0.98),
    "exp4": (0.98, 0.75, 0.5),
    "exp2": (0.5, 0.25, 0.1),
}
"""Of perfect scaling from one GPU under ddp, on 1, 2 and 8 GPUs."""
NOISE = (1.0, 1.004, 0.996, 1.002, 0.998)


def study(shares: dict[str, tuple[float, ...]] = SHARES) -> list[Record]:
    records = []
    for workload, batch, single in (
        ("nmt", 128, 600_000.0),
        ("cnn", 64, 2_800.0),
        ("cnn", 256, 4_500.0),
    ):
        for placement, of_perfect in shares.items():
            for count, share in zip((1, 2, 8), of_perfect, strict=True):
                point = {
                    "placement": placement,
                    "devices": count,
                    "workload": workload,
                    "batch_size": batch,
                }
                gain = 0.8 if count == 8 and batch < 256 else 1.0  # a larger batch scales better
                if (placement, count, batch) == ("exp2", 8, 256):
                    records.append(
                        make_record(
                            status="out_of_memory", reason="150 GiB wanted, 128 there", **point
                        )
                    )
                else:
                    records += make_point(
                        [single * count * share * gain * x for x in NOISE], **point
                    )
    return records


def read_on_a_telephone(picture: Picture) -> bool:
    """Whether the narrow drawing needs no scrolling, cuts nothing off, and has letters of at least
    9 px; an inch is 72 px on a page.
    """
    drawing = picture.narrow
    assert drawing
    drawing.draw_without_rendering()
    sizes = [
        text.get_fontsize()
        for text in drawing.findobj(Text)
        if text.get_visible() and text.get_text()
    ]
    width, height = drawing.get_size_inches()
    box = drawing.get_tightbbox()
    return (
        min(sizes) >= 9
        and 72 * width <= 342
        and min(box.x0, box.y0) >= 0
        and box.x1 <= width
        and box.y1 <= height
    )


def ms(value: float) -> float:
    return value / 1000


def step_of(told: dict[str, Any] | None = None, **phases: tuple[float, float]) -> StepTrace:
    """A step whose phases begin and end at these ms; the merge is all of its communication; told:
    fields to plant instead.
    """
    at = {name: (round(ms(start), 7), round(ms(end), 7)) for name, (start, end) in phases.items()}
    merge = at.get("merge", (0.0, 0.0))
    spans = {
        "start_s": min(start for start, _ in at.values()),
        "end_s": max(end for _, end in at.values()),
        "phases": at,
    }
    merged = dict.fromkeys(("communication_s", "exposed_s"), round(merge[1] - merge[0], 8)) | {
        "communication": [merge]
    }
    usual = {
        "host_s": ms(1),
        "kernels": 1281,
        "launches": 1281,
        "busy_s": ms(10),
        "exposed_copies_s": ms(0.25),
    }
    return StepTrace(**spans, **merged, **usual).model_copy(update=told)


COMMON: dict[str, Any] = {"workload": "stacks", "scaling": "strong", "processes": "one"}
DEVICES = {"single": 1, "tower_per_gpu": 2, "alternating": 2}


def point(placement: str, step_ms: float, batch: int = 32, **more: Any) -> list[Record]:
    """Five repeats over two launches, each at about this step time; epochs unless told
    otherwise.
    """
    rates = [batch / (step_ms / 1000) * (1 + 0.001 * index) for index in range(5)]
    fields = (
        COMMON
        | {"devices": DEVICES.get(placement, 2), "batch_size": batch, "timed_steps": 824}
        | more
    )
    return make_point(rates, placement=placement, **fields)


def trace_of(
    devices: int, copies_ms: float, exposed_ms: float, sparse_ms: float, busy_ms: float = 1.0
) -> TraceSummary:
    """Two steps: on each device 9.5 copies a step of 10 us each, and two kernels."""
    told = {
        "kernels": 30,
        "launches": 30,
        "busy_s": busy_ms / 1000,
        "communication_s": copies_ms / 1000,
    }
    step = step_of(
        told=told | {"exposed_s": exposed_ms / 1000, "exposed_copies_s": exposed_ms / 1000},
        forward=(0, 1),
        backward=(1, 2),
    )
    copied = CopyTotals(
        kind="device_to_device",
        calls=19,
        bytes=1900,
        total_s=copies_ms / 500,
        min_s=4e-6,
        max_s=9e-4,
    )
    copies = [copied] if copies_ms else []
    replicas = [
        ReplicaTrace(rank=rank, steps=[step, step], copies=copies, device_time_s=0.01)
        for rank in range(devices)
    ]
    kernels = [
        KernelTotals(
            name="UnsortedSegmentCustomKernel",
            calls=4,
            total_s=sparse_ms / 1000,
            min_s=1e-6,
            max_s=2e-3,
        ),
        KernelTotals(name="gemm", calls=8, total_s=0.001, min_s=1e-6, max_s=1e-3),
    ]
    return TraceSummary(source="kineto", replicas=replicas, kernels=kernels)


def traced(placement: str, step_ms: float, trace: TraceSummary, **more: Any) -> list[Record]:
    return point(placement, step_ms, measurement={"trace": trace}, traced_steps=2, **more)
