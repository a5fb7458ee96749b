"""Document 004's study: the step of its model on 1 to 8 GPUs, with and without communication, during backward and after it."""

from __future__ import annotations

from collections.abc import Sequence

from multigpu.grid.entries import FEWEST, Planned
from multigpu.run import Run

BATCH = 64
LENGTH = 55
"""Words of a source sentence; the target has one more. 51,000 words/s x 560 ms on 4 GPUs at batch 64 are 112 words a pair."""

WAYS = ("ddp", "replicated_allreduce", "independent")
"""All-reduce during backward, after it, and none at all."""

BUCKETS_MIB = (1, 4, 16, 64, 128, 256)
"""Beside the library's own 25."""


def nmt004(placement: str, devices: int, **more: object) -> Run:
    """Document 004's model at its batch, in the document's fp32."""
    fields: dict[str, object] = {"workload": "nmt", "model": "nmt004", "sequence_length": LENGTH, "precision": "fp32"}
    return Run(**(fields | {"placement": placement, "devices": devices, "batch_size": BATCH} | more))  # type: ignore[arg-type]


def document_004(devices: Sequence[int]) -> list[Planned]:
    """The step on every count: headline for the three ways, launched call by call; then bucket sizes, traces, one CUDA graph, bf16.

    About five minutes on 1, 2 and 4 GPUs, eight on 1 to 8.
    """
    counts = sorted(devices, reverse=True)
    planned = [Planned(nmt004(way, count), "headline", 5.0, FEWEST) for count in counts for way in WAYS]
    most = counts[:1] if counts[0] > 1 else []
    planned += [Planned(nmt004("ddp", count, bucket_mib=size), "screening", 5.0) for count in most for size in BUCKETS_MIB]
    planned += [
        Planned(nmt004(way, count, warmup_steps=10, timed_steps=10, traced_steps=3), "screening", 6.0) for count in counts for way in WAYS
    ]
    planned += [Planned(nmt004(way, count, execution="captured"), "screening", 5.0) for count in counts for way in WAYS]
    planned += [Planned(nmt004(way, count, precision="bf16"), "screening", 4.0) for count in counts for way in WAYS[:2]]
    return planned


def document_004_small(devices: Sequence[int]) -> list[Planned]:
    """The same questions of a model that any computer runs, for a dry run of the study. Screening."""
    small: dict[str, object] = {"model": "nmt_tiny", "device_type": "cpu", "sequence_length": 6, "batch_size": 4}
    few = {"warmup_steps": 2, "timed_steps": 6}
    runs = [nmt004(way, count, **small, **few) for count in sorted(devices, reverse=True) for way in WAYS]
    runs += [nmt004("ddp", max(devices), bucket_mib=size, **small, **few) for size in BUCKETS_MIB[:2] if max(devices) > 1]
    return [Planned(run, "screening", 4.0) for run in runs]
