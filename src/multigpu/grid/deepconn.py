"""Document 003's two-tower model."""

from __future__ import annotations

from collections.abc import Sequence

from multigpu.grid.entries import SPINE_PLACEMENTS, Planned
from multigpu.run import Run

BATCHES = (32, 256, 2048)
"""Rows a GPU: the document's, and larger ones until two GPUs win."""


def deepconn(devices: Sequence[int]) -> list[Planned]:
    """The two-tower model at 32, 256 and 2,048 rows on 1 and 2 GPUs, eager and as one CUDA graph, in the document's fp32. Screening.

    Exp2 stands without a graph: its host takes part in every step.
    """
    planned = []
    for count in [count for count in sorted(devices, reverse=True) if count <= 2]:
        for batch in BATCHES:
            for placement in SPINE_PLACEMENTS:
                for execution in ("eager",) if placement == "exp2" else ("eager", "captured"):
                    run = Run(
                        workload="deepconn",
                        model="deepconn",
                        placement=placement,
                        devices=count,
                        batch_size=batch,
                        execution=execution,  # type: ignore[arg-type]
                    )
                    planned.append(Planned(run, "screening", 4.0 if placement == "exp2" else 2.5))
    return planned
