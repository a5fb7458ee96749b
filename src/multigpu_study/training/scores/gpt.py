"""Scores of a transformer on the sequences that its input holds out
(`training.evaluation` says what is asked of this).
"""

import math

import torch
from torch import nn

from multigpu.inputs.batch import Source
from multigpu.spec.run import Run

TOGETHER = 8
"""Sequences scored at a time."""


def scores(module: nn.Module, run: Run, source: Source, device: torch.device) -> dict[str, float]:
    """Return `loss`, the mean cross entropy of a held-out token in nats (a ValueError: none is held
    out), and `perplexity`, its exponential.
    """
    held_out = source.held_out()
    if held_out is None:
        raise ValueError(
            f"inputs {run.inputs!r} hold nothing out to score with: choose pieces or pieces_package"
        )
    total, terms = 0.0, 0
    for start in range(0, len(held_out), TOGETHER):
        tokens = torch.tensor(held_out[start : start + TOGETHER], dtype=torch.int64, device=device)
        batch = {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}
        total += float(module(batch))
        terms += batch["targets"].numel()
    return {"loss": total / terms, "perplexity": math.exp(min(total / terms, 700.0))}
