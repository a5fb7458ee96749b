"""The study's design in one file: what is measured, in which tier, and what it may cost.

Tiers: *headline* points have n = 8 repeats over five launches; *screening* points n = 1 and are marked so wherever they
are shown; everything else a Run can describe is *not planned*. `cost_s` is what one Run may cost, launch overhead left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from multigpu.measure.launch import Point
from multigpu.measure.machine import gpu_count, this_machine
from multigpu.run import Run

Tier = Literal["headline", "screening"]

LAUNCH_OF_REPEAT = (0, 0, 0, 1, 1, 2, 3, 4)
"""Which launch measures which repeat of a headline point. Eager steps differ more between launches than within one (the host),
so the later repeats get launches of their own; the first five alone are what the tier needs at least."""

SPINE_PLACEMENTS = ("ddp", "independent", "exp2", "exp4")


@dataclass(frozen=True)
class Planned:
    """A Run with its tier and the seconds one measurement of it may cost."""

    run: Run
    tier: Tier
    cost_s: float

    def points(self) -> list[Point]:
        """The measurements this entry stands for."""
        launches = LAUNCH_OF_REPEAT if self.tier == "headline" else LAUNCH_OF_REPEAT[:1]
        return [Point(self.run, repeat, launch) for repeat, launch in enumerate(launches)]


def _nmt(placement: str, devices: int, batch: int, **more: object) -> Run:
    return Run(workload="nmt", model="nmt000", placement=placement, devices=devices, batch_size=batch, sequence_length=100, **more)  # type: ignore[arg-type]


def _resnet50(placement: str, devices: int, batch: int, **more: object) -> Run:
    return Run(
        workload="cnn",
        model="resnet50_v1.5",
        placement=placement,
        devices=devices,
        batch_size=batch,
        layout="channels_last",
        **more,  # type: ignore[arg-type]
    )


def headline(devices: Sequence[int], tier: Tier = "headline") -> list[Planned]:
    """NMT of document 000 at 128 x 100 and 360 x 100 words, ResNet-50 at 64 and 256 images a GPU, each placement.

    bf16, eager, 10 + 30 steps. The most expensive first: what a lost machine leaves undone is then cheap to add.
    """
    planned = []
    for count in sorted(devices, reverse=True):
        for placement in SPINE_PLACEMENTS:
            host = 6.0 if placement == "exp2" else 0.0
            planned += [
                Planned(_nmt(placement, count, 128, precision="bf16"), tier, 4.0 + host),
                Planned(_nmt(placement, count, 360, precision="bf16"), tier, 6.0 + host),
                Planned(_resnet50(placement, count, 64, precision="bf16"), tier, 4.0),
                Planned(_resnet50(placement, count, 256, precision="bf16"), tier, 6.0),
            ]
    return planned


def documents_precision(devices: Sequence[int]) -> list[Planned]:
    """The documents' own arithmetic, fp32, at their batches: 000's 128 and 360, 001's 64. Screening."""
    planned = []
    for count in sorted(devices, reverse=True):
        for placement in SPINE_PLACEMENTS:
            planned += [
                Planned(_nmt(placement, count, 128, precision="fp32"), "screening", 10.0),
                Planned(_nmt(placement, count, 360, precision="fp32"), "screening", 16.0),
                Planned(_resnet50(placement, count, 64, precision="fp32"), "screening", 6.0),
            ]
    return planned


def _small(device_type: Literal["cpu", "cuda"], devices: Sequence[int], tier: Tier) -> list[Planned]:
    planned = []
    for count in devices:
        for placement in SPINE_PLACEMENTS:
            common = {"placement": placement, "devices": count, "device_type": device_type, "warmup_steps": 5, "timed_steps": 20}
            nmt = Run(workload="nmt", model="nmt_small", batch_size=16, sequence_length=20, **common)  # type: ignore[arg-type]
            cnn = Run(workload="cnn", model="resnet_small", batch_size=16, layout="channels_last", **common)  # type: ignore[arg-type]
            planned += [Planned(nmt, tier, 2.0), Planned(cnn, tier, 2.0)]
    return planned


def cpu_study(devices: Sequence[int]) -> list[Planned]:
    """Small models on CPU processes over gloo: every part of the study in minutes, on any computer.

    Processes stand in for devices; figures say nothing about GPUs. Real text and real digits are among the inputs.
    """
    planned = _small("cpu", devices, "screening")
    for count in devices:
        common = {"devices": count, "device_type": "cpu", "placement": "ddp", "warmup_steps": 5, "timed_steps": 20}
        planned += [
            Planned(Run(workload="nmt", model="nmt_small", batch_size=16, inputs="lengths_000", **common), "screening", 4.0),  # type: ignore[arg-type]
            Planned(Run(workload="nmt", model="nmt_small", batch_size=16, inputs="catalogs", **common), "screening", 4.0),  # type: ignore[arg-type]
            Planned(Run(workload="cnn", model="resnet_small", batch_size=16, inputs="digits", **common), "screening", 3.0),  # type: ignore[arg-type]
        ]
    return planned


def placements_screening(devices: Sequence[int]) -> list[Planned]:
    """The remaining placements of documents 000 and 001 on the headline's jobs. Screening."""
    planned = []
    for count in sorted(devices, reverse=True):
        for placement in ("exp1", "exp3", "ps_gpu0", "replicated_copy", "replicated_allreduce"):
            host = 5.0 if placement in ("exp1", "exp3") else 0.0
            planned += [
                Planned(_nmt(placement, count, 128, precision="bf16"), "screening", 3.0 + host),
                Planned(_nmt(placement, count, 360, precision="bf16"), "screening", 4.0 + host),
                Planned(_resnet50(placement, count, 64, precision="bf16"), "screening", 3.0),
                Planned(_resnet50(placement, count, 256, precision="bf16"), "screening", 4.0),
            ]
    return planned


GRIDS: dict[str, Callable[[Sequence[int]], list[Planned]]] = {
    "cpu_study": cpu_study,
    "gpu_study": lambda devices: headline(devices, "screening"),
    "headline": headline,
    "documents_precision": documents_precision,
    "placements_screening": placements_screening,
}
"""By name, a function of the device counts to measure."""


def device_counts(available: int) -> list[int]:
    """1, 2, 4, 8 ... up to what there is."""
    return [count for count in (1, 2, 4, 8) if count <= available]


def default_grid() -> str:
    """The grid that the study measures on this machine."""
    return "gpu_study" if gpu_count() else "cpu_study"


def devices_here() -> list[int]:
    """Device counts that this machine can measure: 1, 2, 4, 8 up to its GPUs; without any, up to two CPU processes."""
    return device_counts(gpu_count() or min(2, this_machine().cores))


def find_grid(name: str, devices: Sequence[int]) -> list[Planned]:
    """The grid called `name` at these device counts.

    Raises:
        ValueError: no such grid; the sentence names the known ones.
    """
    if name not in GRIDS:
        raise ValueError(f"unknown grid {name!r}: choose one of {', '.join(GRIDS)}")
    return GRIDS[name](devices)


def points(planned: Sequence[Planned]) -> list[Point]:
    """All measurements that these entries stand for."""
    return [point for entry in planned for point in entry.points()]


def cost_s(planned: Sequence[Planned]) -> float:
    """What measuring these entries may cost in seconds."""
    return sum(entry.cost_s * len(entry.points()) for entry in planned)
