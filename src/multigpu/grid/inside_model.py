"""Document 003's question: placements inside one model, on one and two GPUs, in both frameworks.

An epoch is the document's 26,352 rows: 824 steps of 32. Every headline point is five epochs over two launches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from multigpu.grid.entries import FEWEST, Planned, Tier
from multigpu.run import Run
from multigpu.stages.placements import HAND_WRITTEN, SPLIT
from multigpu.workloads.deepconn.description import epoch_steps

BATCH = 32
WIDTHS = ("deepconn", "deepconn_x4", "deepconn_x16")
"""The document's filters and dense units, and four and sixteen times as many."""
BATCHES = (32, 128, 512, 2048, 8192)
"""Rows of the joined batch, until two GPUs win."""
FRAMEWORKS: dict[str, dict[str, Any]] = {
    "torch": {"framework": "torch", "execution": "eager"},
    "tensorflow": {"framework": "tensorflow", "execution": "graph"},
}
AS_THERE: dict[str, Any] = {"feed": "strings", "embedding_gradients": "sparse"}
"""As the document fed and differentiated: words as strings in every step, gradients of distinct rows."""


def _run(placement: str, devices: int, framework: str, **more: Any) -> Run:
    fields: dict[str, Any] = {"workload": "deepconn", "model": "deepconn", "batch_size": BATCH, "scaling": "strong", "processes": "one"}
    return Run(**(fields | FRAMEWORKS[framework] | {"placement": placement, "devices": devices} | more))


def _placements(devices: Sequence[int]) -> list[tuple[str, int]]:
    """The document's three on the devices they use, as far as these are there."""
    return [(name, SPLIT[name].at_most) for name in HAND_WRITTEN if SPLIT[name].at_most in devices]


def inside_model(devices: Sequence[int]) -> list[Planned]:
    """Epochs of the document's three placements and of two replicas of half the batch; then as the document fed them (TensorFlow).

    About 4 s an epoch with its start, 14 s where strings are looked up: 160 s and 210 s for both parts on 1 and 2 GPUs.
    """
    epoch = {"timed_steps": epoch_steps(BATCH)}
    planned = []
    for framework in FRAMEWORKS:
        for name, count in _placements(devices):
            planned.append(Planned(_run(name, count, framework, **epoch), "headline", 4.0, FEWEST))
        if 2 in devices:
            planned.append(Planned(_run("replicated_allreduce", 2, framework, **epoch), "headline", 4.0, FEWEST))
    for name, count in _placements(devices):
        planned.append(Planned(_run(name, count, "tensorflow", **AS_THERE, **epoch), "headline", 14.0, FEWEST))
    return planned


def inside_model_traces(devices: Sequence[int]) -> list[Planned]:
    """20 steps of each placement under the profiler, five times over two launches; as the document fed them once. About 190 s."""
    window = {"traced_steps": 20, "timed_steps": 100}
    planned = [
        Planned(_run(name, count, framework, **window), "headline", 5.0, FEWEST)
        for framework in FRAMEWORKS
        for name, count in _placements(devices)
    ]
    for name, count in _placements(devices):
        planned.append(Planned(_run(name, count, "tensorflow", **AS_THERE, **window), "screening", 8.0))
    return planned


def inside_model_host(devices: Sequence[int]) -> list[Planned]:
    """What the host costs one GPU: fed by the step's own thread, or one ahead; started op by op, as one graph, compiled. About 220 s."""
    if 1 not in devices:
        return []
    epoch = {"timed_steps": epoch_steps(BATCH)}
    planned = [
        Planned(_run("single", 1, framework, feed=feed, **epoch), "headline", 4.0, FEWEST)
        for framework in FRAMEWORKS
        for feed in ("arrays", "pipeline")
    ]
    planned.append(Planned(_run("single", 1, "tensorflow", execution="eager", **epoch), "headline", 8.0, FEWEST))
    planned.append(Planned(_run("replicated_allreduce", 1, "tensorflow", execution="xla", **epoch), "headline", 6.0, FEWEST))
    for execution in ("eager", "captured", "compiled", "compiled_captured"):
        cost = 12.0 if "compiled" in execution else 3.0
        tier: Tier = "screening" if "compiled" in execution else "headline"
        planned.append(Planned(_run("ddp", 1, "torch", processes="per_device", execution=execution, **epoch), tier, cost, FEWEST))
    return planned


def inside_model_crossing(devices: Sequence[int]) -> list[Planned]:
    """From which batch and width on two GPUs win: one GPU, one tower a GPU, and two replicas of half the batch.

    The document's width five times over two launches in PyTorch (75 points of about 2.5 s); wider ones and TensorFlow once (75 of
    about 4 s). About 490 s.
    """
    planned = []
    for framework in FRAMEWORKS:
        for width in WIDTHS:
            tier: Tier = "headline" if (framework, width) == ("torch", WIDTHS[0]) else "screening"
            for batch in BATCHES:
                steps = {"timed_steps": 100 if batch <= 512 else 30}
                for placement, count in (("single", 1), ("tower_per_gpu", 2), ("replicated_allreduce", 2)):
                    if count in devices:
                        run = _run(placement, count, framework, model=width, batch_size=batch, **steps)
                        planned.append(Planned(run, tier, 2.5 if tier == "headline" else 4.0, FEWEST))
    return planned


def inside_model_small(devices: Sequence[int]) -> list[Planned]:
    """Every kind of the points above on a CPU, small: what is drawn and computed from them can be seen on any computer. About 80 s."""
    planned = []
    common: dict[str, Any] = {"model": "deepconn_small", "device_type": "cpu", "warmup_steps": 3, "timed_steps": 10}
    for framework in FRAMEWORKS:
        for name, count in _placements(devices):
            planned.append(Planned(_run(name, count, framework, **common), "screening", 6.0))
            planned.append(Planned(_run(name, count, framework, **common, traced_steps=3), "screening", 6.0))
    return planned
