"""Batches of sentences of different lengths in few shapes, so that a captured step can take them: padded to a coarse grid of widths, with
lengths and numbers of loss terms on the device, where a graph reads them anew in every step.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F

from multigpu.engines.torch.feed import Shard
from multigpu.workloads.nmt.recurrence import to_device

WIDTH = 10
"""Widths are multiples of this, as document 000's buckets are wide: its own lengths then have six or seven shapes."""

SIDES = {"source": ("source",), "target": ("target_input", "target_output")}
"""Which arrays a side's lengths are of."""


def is_ragged(shard: Shard) -> bool:
    """Whether the shard has sentences of different lengths."""
    return any(len(set(lengths.tolist())) > 1 for name, lengths in shard.host.items() if name.endswith("_length"))


def with_few_shapes(shard: Shard, device: torch.device) -> Shard:
    """The shard padded to the grid, with `source_ends` and `target_ends`, (B,) int32 on the device, and `terms`."""
    batch, placed = shard.batch, dict(shard.device)
    numbers = torch.tensor([batch.loss_terms[batch.rank], batch.joined_loss_terms])
    lengths = [shard.host[f"{side}_length"] for side in SIDES]
    ends, terms = to_device(torch.cat(lengths), device).int().split(len(lengths[0])), to_device(numbers, device)
    for (side, names), end in zip(SIDES.items(), ends, strict=True):
        placed[f"{side}_ends"] = end.contiguous()
        for name in names:
            placed[name] = F.pad(placed[name], (0, -placed[name].shape[1] % WIDTH))
    return replace(shard, device=placed, terms=terms)
