"""Rows for the study's models as problems: images that tell their class by a grating, and the committed corpus's short sentences."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from multigpu.inputs.corpora import read_parallel
from multigpu.inputs.sentences import Sentences, TextShape, text_batch
from multigpu.inputs.text import encode_corpus
from multigpu.paths import CORPUS
from multigpu.workloads import find_model

if TYPE_CHECKING:
    from multigpu.synchrony.trained_models import TrainedModel

CLASSES = 10
CONTRAST = 0.5
"""Amplitude of a grating over the standard deviation of the noise on every pixel."""


class Rows:
    """Rows by number: training rows first, test rows after them."""

    def on(self, device: torch.device) -> Rows:
        """The same with what a batch needs on `device`."""
        raise NotImplementedError

    def batch(self, rows: np.ndarray) -> tuple[dict[str, Tensor], int]:
        """What a module takes, and the terms that its loss sums."""
        raise NotImplementedError

    def wrong(self, module: Any, batch: dict[str, Tensor]) -> Tensor:
        """How many of those terms the module tells wrong."""
        raise NotImplementedError


class Images(Rows):
    """images (rows, C, H, W), labels (rows,)."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels

    def on(self, device: torch.device) -> Images:
        return Images(self.images.to(device), self.labels.to(device))

    def batch(self, rows: np.ndarray) -> tuple[dict[str, Tensor], int]:
        index = torch.from_numpy(rows).to(self.images.device)
        return {"images": self.images[index], "labels": self.labels[index]}, len(rows)

    def wrong(self, module: Any, batch: dict[str, Tensor]) -> Tensor:
        return (module.logits(batch["images"]).argmax(1) != batch["labels"]).sum()


class Pairs(Rows):
    """Pairs of sentences; lengths stay on the host, as the module wants them."""

    def __init__(self, source: Sentences, target: Sentences, chosen: np.ndarray, device: torch.device | None = None) -> None:
        self.source, self.target, self.chosen, self.device = source, target, chosen, device

    def on(self, device: torch.device) -> Pairs:
        return Pairs(self.source, self.target, self.chosen, device)

    def batch(self, rows: np.ndarray) -> tuple[dict[str, Tensor], int]:
        pairs = self.chosen[rows]
        lengths = np.stack([self.source.lengths[pairs], self.target.lengths[pairs]])
        shape = TextShape.of(*lengths)
        sides = self.source.padded(pairs, shape.source_width), self.target.padded(pairs, shape.target_width)
        made = text_batch(0, (shape,), *sides, lengths)
        tensors = {name: torch.from_numpy(values) for name, values in made.arrays.items() if isinstance(values, np.ndarray)}
        return {n: t if n.endswith("_length") else t.to(self.device) for n, t in tensors.items()}, made.joined_loss_terms

    def wrong(self, module: Any, batch: dict[str, Tensor]) -> Tensor:
        loss, module.loss = module.loss, _wrong_words
        try:
            return module(batch)
        finally:
            module.loss = loss


def _wrong_words(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """In place of the loss: target words that are not the likeliest. Padding has a negative target."""
    real = targets >= 0
    return ((x @ weight).argmax(1) != targets)[real].sum()


def rows_of(description: TrainedModel) -> Rows:
    """The rows of a problem: the same for the same description."""
    return gratings(description) if description.workload == "cnn" else sentences(description)


def gratings(description: TrainedModel) -> Images:
    """Normal noise plus a plane wave whose two frequencies are the class's; its phase, in every channel, is the image's own."""
    config = find_model("cnn", description.model).config
    channels, size, _ = config.image_shape
    rng = np.random.default_rng((description.seed, 5))
    count = description.rows + description.test_rows
    labels = rng.integers(CLASSES, size=count)
    angles = np.pi * labels / CLASSES
    grid = 2 * np.pi * np.arange(size) / 5.0  # a wave is five pixels long
    across = grid[None, :, None] * np.cos(angles)[:, None, None] + grid[None, None, :] * np.sin(angles)[:, None, None]
    phases = rng.uniform(0, 2 * np.pi, (count, channels, 1, 1))
    images = rng.standard_normal((count, channels, size, size), dtype=np.float32)
    for row in range(0, count, 512):  # in parts, for memory
        part = slice(row, row + 512)
        images[part] += CONTRAST * np.sin(across[part, None] + phases[part])
    return Images(torch.from_numpy(images), torch.from_numpy(labels))


@lru_cache(maxsize=2)
def _corpus(source_entries: int, target_entries: int) -> tuple[Sentences, Sentences]:
    text = read_parallel(CORPUS / "catalogs.en.gz", CORPUS / "catalogs.de.gz")
    encoded = encode_corpus(text, source_entries, target_entries)
    return encoded.source, encoded.target


def sentences(description: TrainedModel) -> Pairs:
    """Pairs of the committed corpus with at most `longest` words a side, drawn once by the seed.

    Raises:
        ValueError: the corpus has fewer such pairs than rows and test rows.
    """
    config = find_model("nmt", description.model).config
    source, target = _corpus(config.source_vocabulary, config.target_vocabulary)
    short = np.flatnonzero(np.maximum(source.lengths, target.lengths) <= description.longest)
    wanted = description.rows + description.test_rows
    if len(short) < wanted:
        raise ValueError(f"the corpus has {len(short)} pairs of at most {description.longest} words, not {wanted}: ask for fewer rows")
    return Pairs(source, target, np.random.default_rng((description.seed, 5)).permutation(short)[:wanted])
