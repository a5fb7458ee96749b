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

    128 and 384 x 100 words as one CUDA graph, at 128 also with variables updated in backward; and the document's own lengths, launched
    kernel by kernel with both, and as graphs with lengths on the device, which the library's LSTM cannot read there. Windows of two
    seconds, both sides in the same launches, five repeats over five launches. Then a trace of each graph, and 300 steps on the committed
    corpus with both in bf16 and the library's in fp32, three seeds each: are losses the same? About four minutes.
    """
    if 1 not in devices:
        return []
    ours: dict[str, Any] = {"recurrence": "persistent"}
    fused: dict[str, Any] = {"precision": "bf16", "cross_entropy": "fused"}
    graph, early = fused | {"execution": "captured"}, {"bucket_update": "in_backward"}
    own = fused | {"inputs": "lengths_000", "sequence_length": None}
    forms = [graph | {"timed_steps": 240} | more for more in ({}, early)]
    planned = [Planned(nmt("ddp", 1, 128, **form, **more), "headline", 4.5, FIVE) for form in forms for more in ({}, ours)]
    planned += [Planned(nmt("ddp", 1, 384, **graph, timed_steps=90, **more), "headline", 4.5, FIVE) for more in ({}, ours)]
    planned += [Planned(nmt("ddp", 1, 128, **own, timed_steps=90, **more), "headline", 4.5, FIVE) for more in ({}, ours)]
    captured = own | ours | {"execution": "captured", "warmup_steps": CAPTURE_WARMUP, "timed_steps": 600}
    planned.append(Planned(nmt("ddp", 1, 128, **captured), "headline", 5.0, FIVE))
    losses = [
        nmt("ddp", 1, 64, precision=precision, seed=seed, **LOSSES, **more)
        for seed in SEEDS
        for precision, more in (("bf16", ours), ("bf16", {}), ("fp32", {}))
    ]
    traced = [nmt("ddp", 1, batch, **graph, **TRACED, **more) for batch in (128, 384) for more in ({}, ours)]
    return planned + [Planned(run, "screening", 6.0) for run in losses] + [Planned(run, "screening", 3.0) for run in traced]
