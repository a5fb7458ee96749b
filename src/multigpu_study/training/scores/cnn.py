"""Scores of an image model on the images that its input holds out
(`training.evaluation` says what is asked of this).
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multigpu.inputs.batch import Source
from multigpu.inputs.pictures import Pictures
from multigpu.spec.run import Run
from multigpu.workloads.tensors import DTYPES

BATCH = 500


def scores(module: nn.Module, run: Run, source: Source, device: torch.device) -> dict[str, float]:
    """loss: mean cross entropy of held-out images (ValueError: none); accuracy: share right."""
    pictures = source.held_out()
    if pictures is None:
        raise ValueError(
            f"inputs {run.inputs!r} holds no images out to score on: choose digits_split, teacher"
            " or teacher_small"
        )
    loss, right, count = torch.zeros((), dtype=torch.float64), 0, 0
    for images, labels in _held_out(pictures, run, device):
        logits = module.logits(images)  # type: ignore[operator]
        if run.precision != "fp64":
            logits = logits.float()
        loss += F.cross_entropy(logits, labels, reduction="sum").double().cpu()
        right += int((logits.argmax(dim=1) == labels).sum())
        count += len(labels)
    return {"loss": float(loss) / count, "accuracy": right / count}


_kept: dict[tuple[Any, ...], list[tuple[Tensor, Tensor]]] = {}
"""By what determines them: the last two sets of batches, which Runs of one process score on."""


def _held_out(pictures: Pictures, run: Run, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    key = pictures.fingerprint, run.precision, run.layout, device
    if key in _kept:
        return _kept[key]
    batches = []
    for start in range(0, len(pictures), BATCH):
        images, labels = pictures.read(np.arange(start, min(start + BATCH, len(pictures))))
        placed = torch.from_numpy(images).to(device=device, dtype=DTYPES[run.precision])
        if run.layout == "channels_last":
            placed = placed.contiguous(memory_format=torch.channels_last)
        batches.append((placed, torch.from_numpy(labels).to(device)))
    for oldest in list(_kept)[:-1]:
        del _kept[oldest]
    return _kept.setdefault(key, batches)
