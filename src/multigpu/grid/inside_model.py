"""Document 003's question: placements inside one model, on one and two GPUs, in both frameworks.

An epoch is the document's 26,352 rows: 824 steps of 32. Every headline point is repeated as `FEWEST` says: five times over four launches.
What no table, figure or claim needs an interval of is measured once. Costs are seconds of one measurement with its share of a launch's
start, of which two H200s took 4 to 5 s; the measured PyTorch ones are about what Records of those took, TensorFlow's are estimates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from multigpu.grid.entries import FEWEST, Planned, Tier
from multigpu.run import Run
from multigpu.stages.placements import HAND_WRITTEN, SPLIT
from multigpu.workloads.deepconn.description import epoch_steps

BATCH = 32
BATCHES: dict[str, tuple[int, ...]] = {
    "deepconn": (128, 512, 2048, 8192),
    "deepconn_x4": (32, 512, 2048),
    "deepconn_x16": (32, 128, 512),
}
"""The document's filters and dense units, and four and sixteen times as many; of each the rows of the joined batch, until two GPUs win.

At the document's own width and batch the epochs are the crossing's point. A wider model's step is as long at a smaller batch.
"""
WINDOW: dict[str, Any] = {"traced_steps": 20, "timed_steps": 100}
"""Steps of a traced Run."""
FRAMEWORKS: dict[str, dict[str, Any]] = {
    "torch": {"framework": "torch", "execution": "eager"},
    "tensorflow": {"framework": "tensorflow", "execution": "graph"},
}
AS_THERE: dict[str, Any] = {"feed": "strings", "embedding_gradients": "sparse"}
"""As the document fed and differentiated: words as strings in every step, gradients of distinct rows."""


COST_S = {"torch": 1.5, "tensorflow": 4.0}
"""Seconds of one short measurement."""


def _run(placement: str, devices: int, framework: str, **more: Any) -> Run:
    fields: dict[str, Any] = {"workload": "deepconn", "model": "deepconn", "batch_size": BATCH, "scaling": "strong", "processes": "one"}
    return Run(**(fields | FRAMEWORKS[framework] | {"placement": placement, "devices": devices} | more))


def _placements(devices: Sequence[int]) -> list[tuple[str, int]]:
    """The document's three on the devices they use, as far as these are there."""
    return [(name, SPLIT[name].at_most) for name in HAND_WRITTEN if SPLIT[name].at_most in devices]


def inside_model(devices: Sequence[int]) -> list[Planned]:
    """Epochs of the document's three placements and of two replicas of half the batch; then as the document fed them (TensorFlow).

    As the document fed them strings are looked up, which is slower: the document's three are repeated there too, since it is its own way.
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
    """20 steps under the profiler: of one GPU and one tower a GPU, which claims compare, repeated; once of the alternating placement,
    of two replicas, of one GPU fed from arrays (whose copies from the host kept batches never make), and as the document fed them.
    """
    planned = []
    for framework in FRAMEWORKS:
        for name, count in _placements(devices):
            tier: Tier = "screening" if name == "alternating" else "headline"
            planned.append(Planned(_run(name, count, framework, **WINDOW), tier, 3.0, FEWEST))
        if 2 in devices:
            planned.append(Planned(_run("replicated_allreduce", 2, framework, **WINDOW), "screening", 3.0))
        if 1 in devices:
            planned.append(Planned(_run("single", 1, framework, feed="arrays", **WINDOW), "screening", 3.0))
    for name, count in _placements(devices):
        planned.append(Planned(_run(name, count, "tensorflow", **AS_THERE, **WINDOW), "screening", 8.0))
    return planned


def inside_model_host(devices: Sequence[int]) -> list[Planned]:
    """What the host costs one GPU: fed by the step's own thread, or one ahead; started op by op, as one graph, compiled.

    Feeding is repeated, since the page compares it with the document's companion text, and so is one CUDA graph against kernel by
    kernel. What is compiled, and TensorFlow op by op, differs by more than launches do: once.
    """
    if 1 not in devices:
        return []
    epoch = {"timed_steps": epoch_steps(BATCH)}
    planned = [
        Planned(_run("single", 1, framework, feed=feed, **epoch), "headline", 4.0, FEWEST)
        for framework in FRAMEWORKS
        for feed in ("arrays", "pipeline")
    ]
    planned.append(Planned(_run("single", 1, "tensorflow", execution="eager", **epoch), "screening", 8.0, FEWEST))
    planned.append(Planned(_run("replicated_allreduce", 1, "tensorflow", execution="xla", **epoch), "screening", 6.0, FEWEST))
    for execution in ("eager", "captured", "compiled", "compiled_captured"):
        cost = 12.0 if "compiled" in execution else 5.0
        tier: Tier = "screening" if "compiled" in execution else "headline"
        planned.append(Planned(_run("ddp", 1, "torch", processes="per_device", execution=execution, **epoch), tier, cost, FEWEST))
    return planned


def inside_model_crossing(devices: Sequence[int]) -> list[Planned]:
    """From which batch and width on two GPUs win: one GPU, one tower a GPU, and two replicas of half the batch.

    Repeated is the document's width in PyTorch, where replicas cross one GPU within the batches measured: with an interval. Wider models
    and TensorFlow once.
    """
    planned = []
    for framework in FRAMEWORKS:
        for width, batches in BATCHES.items():
            tier: Tier = "headline" if (framework, width) == ("torch", "deepconn") else "screening"
            for batch in batches:
                steps = {"timed_steps": 100 if batch <= 512 else 30}
                for placement, count in (("single", 1), ("tower_per_gpu", 2), ("replicated_allreduce", 2)):
                    if count in devices:
                        run = _run(placement, count, framework, model=width, batch_size=batch, **steps)
                        planned.append(Planned(run, tier, COST_S[framework], FEWEST))
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
