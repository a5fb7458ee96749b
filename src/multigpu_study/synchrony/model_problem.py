"""Compute with a `TrainedModel`: its rows (images with a class's grating, or short sentences), and
the module on each device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from multigpu.engines.torch.variables import initial_values, materialise
from multigpu.inputs.files import read_parallel
from multigpu.inputs.sentences import Sentences, TextShape, text_batch
from multigpu.inputs.text import encode_corpus
from multigpu.paths import CORPUS
from multigpu.workloads import find_model
from multigpu.workloads.cnn.torch import build as build_cnn
from multigpu.workloads.nmt.torch import build as build_nmt
from multigpu_study.synchrony.problems import Batches

if TYPE_CHECKING:
    from multigpu_study.synchrony.experiment import TrainedModel

EVALUATED = 256  # rows that are evaluated together
CLASSES = 10
CONTRAST = 0.5  # amplitude of a grating over the standard deviation of the noise on every pixel


@dataclass(frozen=True)
class Images:
    """images (rows, C, H, W), labels (rows,): training rows, then test rows."""

    images: Tensor
    labels: Tensor

    def on(self, device: torch.device) -> Images:
        return Images(self.images.to(device), self.labels.to(device))

    def batch(self, rows: np.ndarray) -> tuple[dict[str, Tensor], int]:
        """Return the tensors that a module takes, and the terms that its loss sums."""
        index = torch.from_numpy(rows).to(self.images.device)
        return {"images": self.images[index], "labels": self.labels[index]}, len(rows)

    def wrong(self, module: Any, batch: dict[str, Tensor]) -> Tensor:
        """How many of those terms the module tells wrong."""
        return (module.logits(batch["images"]).argmax(1) != batch["labels"]).sum()


@dataclass(frozen=True)
class SentencePairs:
    """The same of pairs of sentences; lengths stay on the host, as the module wants them."""

    source: Sentences
    target: Sentences
    chosen: np.ndarray
    device: torch.device | None = None

    def on(self, device: torch.device) -> SentencePairs:
        return replace(self, device=device)

    def batch(self, rows: np.ndarray) -> tuple[dict[str, Tensor], int]:
        pairs = self.chosen[rows]
        lengths = np.stack([self.source.lengths[pairs], self.target.lengths[pairs]])
        shape = TextShape.of(*lengths)
        sides = (
            self.source.padded(pairs, shape.source_width),
            self.target.padded(pairs, shape.target_width),
        )
        made = text_batch(0, (shape,), *sides, lengths)
        tensors = {
            name: torch.from_numpy(values)
            for name, values in made.arrays.items()
            if isinstance(values, np.ndarray)
        }
        return {
            n: t if n.endswith("_length") else t.to(self.device) for n, t in tensors.items()
        }, made.global_loss_terms

    def wrong(self, module: Any, batch: dict[str, Tensor]) -> Tensor:
        # the wrong ones are not the likeliest; padding has a negative target
        def words(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
            return ((x @ weight).argmax(1) != targets)[targets >= 0].sum()

        loss, module.loss = module.loss, words
        try:
            return module(batch)
        finally:
            module.loss = loss


def gratings(description: TrainedModel) -> Images:
    """Normal noise plus a plane wave: frequencies are the class's, phases the image's own."""
    config = find_model("cnn", description.model).config
    channels, size, _ = config.image_shape
    rng = np.random.default_rng((description.seed, 5))
    count = description.rows + description.test_rows
    labels = rng.integers(CLASSES, size=count)
    angles = np.pi * labels / CLASSES
    grid = 2 * np.pi * np.arange(size) / 5.0  # a wave is five pixels long
    across = (
        grid[None, :, None] * np.cos(angles)[:, None, None]
        + grid[None, None, :] * np.sin(angles)[:, None, None]
    )
    phases = rng.uniform(0, 2 * np.pi, (count, channels, 1, 1))
    images = rng.standard_normal((count, channels, size, size), dtype=np.float32)
    for row in range(0, count, 512):  # in parts, for memory
        part = slice(row, row + 512)
        images[part] += CONTRAST * np.sin(across[part, None] + phases[part])
    return Images(torch.from_numpy(images), torch.from_numpy(labels))


def sentences(description: TrainedModel) -> SentencePairs:
    """Draw pairs of at most `longest` words a side from the corpus; ValueError: too few."""
    config = find_model("nmt", description.model).config
    text = read_parallel(CORPUS / "catalogs.en.gz", CORPUS / "catalogs.de.gz")
    corpus = encode_corpus(text, config.source_vocabulary, config.target_vocabulary)
    short = np.flatnonzero(
        np.maximum(corpus.source.lengths, corpus.target.lengths) <= description.longest
    )
    wanted = description.rows + description.test_rows
    if len(short) < wanted:
        raise ValueError(
            f"the corpus has {len(short)} pairs of at most {description.longest} words, not"
            f" {wanted}: ask for fewer rows"
        )
    return SentencePairs(
        corpus.source,
        corpus.target,
        np.random.default_rng((description.seed, 5)).permutation(short)[:wanted],
    )


Rows = Images | SentencePairs


class _Placed:
    """A model, its flat parameters and gradients, and the rows, all on one device."""

    def __init__(self, description: TrainedModel, rows: Rows, device: torch.device) -> None:
        model = find_model(description.workload, description.model)
        with torch.device("meta"):
            self.module = build_cnn(model) if description.workload == "cnn" else build_nmt(model)
        self.flat, self.gradients = (torch.zeros(model.parameters, device=device) for _ in range(2))
        sizes = [variable.elements for variable in model.variables]
        own, slopes = (
            {
                variable.name: part.view(variable.shape)
                for variable, part in zip(model.variables, flat.split(sizes), strict=True)
            }
            for flat in (self.flat, self.gradients)
        )
        for name, parameter in materialise(self.module, own, device, torch.float32).items():
            parameter.grad = slopes[name]
        self.module.train()
        self.rows = rows.on(device)
        if device.type == "cuda":
            torch.backends.cudnn.benchmark = description.workload == "cnn"
            # cuDNN's own choice is TF32, which is no fp32
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = (
                description.precision != "fp32"
            )
        self.autocast = torch.autocast(
            device.type, dtype=torch.bfloat16, enabled=description.precision == "bf16"
        )


class ModelProblem:
    """See `TrainedModel`. On a CPU `gradient` gives the same bits for the same arguments."""

    dtype = np.dtype(np.float32)

    def __init__(self, description: TrainedModel) -> None:
        self.description = description
        self.model = find_model(description.workload, description.model)
        self.size = self.model.parameters
        self.batches = Batches(description, description.rows)
        self._rows: Rows | None = None
        self._placed: dict[torch.device, _Placed] = {}

    def initial(self, seed: int = 0) -> np.ndarray:
        """The model's own initialisation, drawn on the CPU whatever the device."""
        values = initial_values(self.model, seed, torch.device("cpu"), torch.float32)
        return np.concatenate([value.numpy().ravel() for _, value in values])

    def gradient(self, parameters: np.ndarray, worker: int, draw: int) -> np.ndarray:
        return self.gradient_tensor(parameters, worker, draw).cpu().numpy().copy()

    def gradient_tensor(self, parameters: np.ndarray | Tensor, worker: int, draw: int) -> Tensor:
        """As `gradient`, on the worker's device; the next gradient overwrites it."""
        with self._on(worker) as placed:
            placed.flat.copy_(torch.as_tensor(parameters))
            placed.gradients.zero_()
            batch, terms = placed.rows.batch(self.batches.rows_of(worker, draw))
            with placed.autocast:
                loss = placed.module(batch) / terms
            loss.backward()
            return placed.gradients

    def loss(self, parameters: np.ndarray) -> float:
        rows = np.arange(self.description.rows)
        return self._mean(parameters, rows, lambda placed, batch: placed.module(batch))

    def error(self, parameters: np.ndarray) -> float | None:
        """Share of test images, or of test sentences' words given those before, told wrong."""
        d = self.description
        rows = np.arange(d.rows, d.rows + d.test_rows)
        return self._mean(
            parameters, rows, lambda placed, batch: placed.rows.wrong(placed.module, batch)
        )

    def _mean(
        self,
        parameters: np.ndarray,
        rows: np.ndarray,
        summed: Callable[[_Placed, dict[str, Tensor]], Tensor],
    ) -> float:
        total = terms = 0.0
        with self._on(0) as placed, torch.no_grad(), placed.autocast:
            placed.flat.copy_(torch.as_tensor(parameters))
            for start in range(0, len(rows), EVALUATED):
                batch, count = placed.rows.batch(rows[start : start + EVALUATED])
                total += float(summed(placed, batch))
                terms += count
        return total / terms

    @contextmanager
    def _on(self, worker: int) -> Iterator[_Placed]:
        """Give the model on the worker's device, with one host thread: sums have one order."""
        device = torch.device("cpu")
        if self.description.device == "cuda":
            count = torch.cuda.device_count()
            if count == 0:
                raise ValueError(
                    "device 'cuda' needs a GPU, and this process sees none: choose device 'cpu'"
                )
            device = torch.device("cuda", worker % count)
            torch.cuda.set_device(device)
        if self._rows is None:
            self._rows = (
                gratings(self.description)
                if self.description.workload == "cnn"
                else sentences(self.description)
            )
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            if device not in self._placed:
                self._placed[device] = _Placed(self.description, self._rows, device)
            yield self._placed[device]
        finally:
            torch.set_num_threads(before)
