"""What the persistent LSTM is asked: how much faster one GPU trains document 000's model with it, and whether it trains the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from multigpu.grid.batching import CAPTURE_WARMUP
from multigpu.grid.entries import TRACED, Planned, nmt

FIVE = (0, 1, 2, 3, 4)
"""A repeat in each of five launches, which both sides of a comparison share."""

LOSSES: dict[str, Any] = {"inputs": "catalogs", "sequence_length": None, "warmup_steps": 10, "timed_steps": 290}
"""300 steps on the committed corpus, of which a Record keeps every loss."""

SEEDS = (0, 1, 2)


def persistent(devices: Sequence[int]) -> list[Planned]:
    """How much faster is a whole step of document 000's model with persistent LSTMs than with the library's, on one GPU, bf16?

    128 and 384 x 100 words as one CUDA graph; buckets at their mean lengths, a graph each; and the document's own lengths, eager. All in
    windows of two seconds, the library's LSTM in the same launches, five repeats over five launches. Then a trace of each graph, and 300
    steps on the committed corpus with both, in bf16 and the library's in fp32, three seeds each: are losses the same? About 5 minutes.
    """
    if 1 not in devices:
        return []
    both, graph = (None, "persistent"), {"precision": "bf16", "execution": "captured", "cross_entropy": "fused"}
    means = {"inputs": "bucket_means_000", "sequence_length": None, "warmup_steps": CAPTURE_WARMUP, "timed_steps": 600}
    own = {"inputs": "lengths_000", "sequence_length": None, "precision": "bf16", "cross_entropy": "fused", "timed_steps": 300}
    jobs: list[tuple[int, dict[str, Any], float]] = [
        (128, graph | {"timed_steps": 240}, 6.0),
        (384, graph | {"timed_steps": 90}, 6.0),
        (128, graph | means, 6.0),
        (128, own, 5.0),
    ]
    planned = [Planned(nmt("ddp", 1, batch, recurrence=r, **form), "headline", cost_s, FIVE) for batch, form, cost_s in jobs for r in both]
    traced = [nmt("ddp", 1, batch, recurrence=r, **graph, **TRACED) for batch in (128, 384) for r in both]
    forms: list[tuple[str, str | None]] = [("bf16", "persistent"), ("bf16", None), ("fp32", None)]
    losses = [nmt("ddp", 1, 64, precision=kind, recurrence=r, seed=seed, **LOSSES) for seed in SEEDS for kind, r in forms]
    return planned + [Planned(run, "screening", 5.0) for run in traced] + [Planned(run, "screening", 8.0) for run in losses]
