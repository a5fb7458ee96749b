"""Document 000's profile: the phases of Exp4 on 1 to 8 GPUs, from a few steps under the profiler, often enough to decide claims."""

from __future__ import annotations

from collections.abc import Sequence

from multigpu.grid.entries import ENDS, FEWEST, Planned, nmt
from multigpu.grid.tensorflow import TENSORFLOW
from multigpu.measure.machine import framework_version
from multigpu.run import Run

REPEATED = (*ENDS, 2)
"""C6 and C7 compare the most GPUs with one, C9 with two, C8 looks at every count from 4 on."""
STEPS: dict[str, object] = {"warmup_steps": 10, "timed_steps": 10, "traced_steps": 3}


def _ways(count: int) -> list[tuple[Run, float]]:
    """Exp4 as each framework does it, and the seconds that one measurement may cost. The same Runs as in the grids of traces."""
    return [
        (nmt("exp4", count, 128, precision="bf16", processes="one", **STEPS), 2.0 + 2.7 * count),
        (nmt("exp4", count, 128, precision="tf32", **(TENSORFLOW | STEPS)), 11.0 + count),
        (nmt("exp4", count, 128, precision="bf16", **STEPS), 3.0),
    ]


def phases(devices: Sequence[int]) -> list[Planned]:
    """Exp4 traced in PyTorch with one process and with one a GPU, and in TensorFlow. Repeated on 1, 2, 4 and 8 GPUs, once between;
    the repeated ones first. About six minutes on 1, 2 and 4 GPUs, twelve on 1 to 8.
    """
    first = [count for count in sorted(devices, reverse=True) if count in REPEATED]
    planned = [Planned(run, "headline", cost, FEWEST) for count in first for run, cost in _ways(count)]
    between = [count for count in sorted(devices, reverse=True) if count not in REPEATED]
    return planned + [Planned(run, "screening", cost) for count in between for run, cost in _ways(count)]


def phases_small(devices: Sequence[int]) -> list[Planned]:
    """The same of a small model on the most CPU processes, once in each framework: tracing can be seen on any computer. About 20 s."""
    common: dict[str, object] = {"workload": "nmt", "model": "nmt_small", "placement": "exp4", "device_type": "cpu", "batch_size": 16}
    common |= {"devices": max(devices), "sequence_length": 20, "warmup_steps": 3, "timed_steps": 5, "traced_steps": 3}
    frameworks: list[dict[str, object]] = [{}]
    if framework_version("tensorflow") != "none":
        frameworks.append({**TENSORFLOW})
    return [Planned(Run(**common, **way), "screening", 8.0) for way in frameworks]  # type: ignore[arg-type]
