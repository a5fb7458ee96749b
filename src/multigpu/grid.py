"""The study's design in one file: what is measured, in which tier, and what it may cost.

Tiers: *headline* points have n = 8 repeats over five launches; *screening* points n = 1 and are marked so wherever they
are shown; everything else a Run can describe is *not planned*. `cost_s` is what one Run may cost, launch overhead left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from multigpu.measure.launch import Point
from multigpu.measure.machine import framework_version, gpu_count, this_machine
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
    return planned + _tensorflow_small(devices)


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


EXPERIMENTS = ("exp1", "exp2", "exp3", "exp4")
IN_GRAPH = (*EXPERIMENTS, "ps_gpu0", "replicated_copy", "replicated_allreduce", "independent")
TENSORFLOW = {"framework": "tensorflow", "processes": "one", "execution": "graph"}


def tensorflow_nmt(devices: Sequence[int]) -> list[Planned]:
    """Document 000 in its own framework: one process, one graph, towers. Batch 128, TF32 (TensorFlow's own default).

    Exp1-Exp4 at every count, cuDNN's LSTM and sentences of 100 words: headline on 1 and 8 GPUs, screening between. On 1, 2,
    3, 4 and 8: 000's lengths, a loop of cells, sparse embedding gradients; other precisions and placements on 1 and 8.
    """
    planned = []
    for count in sorted(devices, reverse=True):
        ends, few = count in (1, 8), count in (1, 2, 3, 4, 8)
        for placement in EXPERIMENTS:
            host = 5.0 if placement in ("exp1", "exp2") else 2.0 if placement == "exp3" else 0.0
            fused = _nmt(placement, count, 128, precision="tf32", **TENSORFLOW)
            planned.append(Planned(fused, "headline" if ends else "screening", 6.0 + host))
            if few:
                lengths = Run(**fused.model_dump(exclude_defaults=True) | {"sequence_length": None, "inputs": "lengths_000"})
                stepwise = _nmt(
                    placement, count, 128, precision="tf32", recurrence="stepwise", warmup_steps=5, timed_steps=10, **TENSORFLOW
                )
                planned += [Planned(lengths, "screening", 20.0 + host), Planned(stepwise, "screening", 40.0 + 5 * count)]
            if ends:
                planned += [
                    Planned(_nmt(placement, count, 128, precision=precision, **TENSORFLOW), "screening", 8.0 + host)
                    for precision in ("fp32", "bf16")
                ]
                planned.append(
                    Planned(
                        _nmt(placement, count, 128, precision="tf32", embedding_gradients="sparse", **TENSORFLOW), "screening", 8.0 + host
                    )
                )
        if ends:
            rest = [placement for placement in IN_GRAPH if placement not in EXPERIMENTS]
            planned += [Planned(_nmt(placement, count, 128, precision="tf32", **TENSORFLOW), "screening", 8.0) for placement in rest]
    return planned


def tensorflow_anomaly(devices: Sequence[int]) -> list[Planned]:
    """C11: is a 2-GPU step with variables on the CPU slower than a 3-GPU step? Exp1 and Exp2, repeated, on 1, 2, 3 and 4."""
    counts = [count for count in sorted(devices, reverse=True) if count <= 4]
    return [
        Planned(_nmt(placement, count, 128, precision="tf32", **TENSORFLOW), "headline", 11.0)
        for count in counts
        for placement in ("exp1", "exp2")
    ]


def tensorflow_cnn(devices: Sequence[int]) -> list[Planned]:
    """ResNet-50 at 64 images a GPU in TensorFlow: every placement, both layouts, and each form of execution on 1 and 8."""
    planned = []
    for count in sorted(devices, reverse=True):
        for placement in IN_GRAPH:
            host = 4.0 if placement in EXPERIMENTS[:3] else 0.0
            common = {"workload": "cnn", "model": "resnet50_v1.5", "placement": placement, "devices": count, "batch_size": 64}
            run = Run(**common, **TENSORFLOW, layout="channels_last", precision="bf16")  # type: ignore[arg-type]
            ends = count in (1, 8)
            planned.append(
                Planned(run, "headline" if ends and placement in ("exp4", "independent") else "screening", 20.0 + 4 * count + host)
            )
            if ends and placement in ("exp2", "exp4", "replicated_allreduce"):
                forms = [{"layout": layout, "precision": "tf32"} for layout in ("channels_first", "channels_last")]
                forms.append({"layout": "channels_last", "precision": "bf16", "execution": "xla"})
                planned += [Planned(Run(**common | TENSORFLOW | form), "screening", 30.0 + 4 * count + host) for form in forms]  # type: ignore[arg-type]
    return planned


def _tensorflow_small(devices: Sequence[int]) -> list[Planned]:
    """A few TensorFlow points for any computer that has it: Exp1-Exp4 of document 000, and both forms of recurrence."""
    if framework_version("tensorflow") == "none":
        return []
    planned = []
    for count in devices:
        common = {"workload": "nmt", "model": "nmt_small", "batch_size": 16, "sequence_length": 10, "devices": count, "device_type": "cpu"}
        steps = {"warmup_steps": 3, "timed_steps": 10}
        planned += [Planned(Run(placement=name, **common, **steps, **TENSORFLOW), "screening", 4.0) for name in EXPERIMENTS]  # type: ignore[arg-type]
    return planned


GRIDS: dict[str, Callable[[Sequence[int]], list[Planned]]] = {
    "cpu_study": cpu_study,
    "gpu_study": lambda devices: headline(devices, "screening"),
    "headline": headline,
    "documents_precision": documents_precision,
    "placements_screening": placements_screening,
    "tensorflow_nmt": tensorflow_nmt,
    "tensorflow_anomaly": tensorflow_anomaly,
    "tensorflow_cnn": tensorflow_cnn,
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
