"""The study's own models as problems: ResNet-20 and its kin on images, the translation model on sentences, on CPUs or GPUs.

The description imports no framework; a process imports PyTorch when it computes its first gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import model_validator

from multigpu.synchrony.problem_description import Batches, Count, Description
from multigpu.workloads import find_model

if TYPE_CHECKING:
    import torch

    from multigpu.synchrony.model_data import Rows

EVALUATED = 256
"""Rows that are evaluated together."""


class TrainedModel(Description):
    """A model of a workload, its loss the mean over images or target words.

    cnn: images of a class's grating under noise (`model_data.gratings`); nmt: sentences of the committed corpus with at most
    `longest` words a side (`model_data.sentences`), so that all has real words; a row is an image or a pair of sentences.
    device: "cuda" gives worker w the GPU of number w modulo the GPUs there are, and the server's evaluations the first one.
    precision: "bf16" computes under autocast; parameters and gradients travel as float32.
    Batch norm takes the statistics of the rows it is given, in training and in evaluation, and keeps no running ones.
    """

    kind: Literal["model"] = "model"
    workload: Literal["cnn", "nmt"]
    model: str
    rows: Count = 2048
    test_rows: Count = 512
    longest: Count = 12
    device: Literal["cpu", "cuda"] = "cpu"
    precision: Literal["fp32", "bf16"] = "fp32"

    @model_validator(mode="after")
    def _possible(self) -> TrainedModel:
        find_model(self.workload, self.model)
        self._check_shards(self.rows)
        return self

    def build(self) -> ModelProblem:
        return ModelProblem(self)


class _Placed:
    """A model, its flat parameters and gradients, and the rows, all on one device."""

    def __init__(self, description: TrainedModel, rows: Rows, device: torch.device) -> None:
        import torch

        from multigpu.engines.torch.variables import materialise

        self.model = find_model(description.workload, description.model)
        builder: Any
        if description.workload == "cnn":
            from multigpu.workloads.cnn.torch import build as builder
        else:
            from multigpu.workloads.nmt.torch import build as builder
        with torch.device("meta"):
            self.module = builder(self.model)
        self.flat, self.gradients = (torch.zeros(self.model.parameters, device=device) for _ in range(2))
        memory, self.device, at = {}, device, 0
        for variable in self.model.variables:
            memory[variable.name] = self.flat[at : at + variable.elements].view(variable.shape)
            at += variable.elements
        parameters = materialise(self.module, memory, device, torch.float32)
        at = 0
        for variable in self.model.variables:
            parameters[variable.name].grad = self.gradients[at : at + variable.elements].view(variable.shape)
            at += variable.elements
        self.module.train()
        self.rows = rows.on(device)
        if device.type == "cuda":
            torch.backends.cudnn.benchmark = description.workload == "cnn"
            # cuDNN's own choice is TF32, which is no fp32
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = description.precision != "fp32"
        self.precision = description.precision

    def load(self, parameters: np.ndarray | torch.Tensor) -> None:
        import torch

        self.flat.copy_(torch.as_tensor(parameters))

    def autocast(self) -> Any:
        import torch

        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16")


class ModelProblem:
    """See `TrainedModel`. `gradient` gives the same bits for the same arguments on a CPU; a GPU's libraries do not promise it."""

    dtype = np.dtype(np.float32)

    def __init__(self, description: TrainedModel) -> None:
        self.description = description
        self.size = find_model(description.workload, description.model).parameters
        self.batches = Batches(description, description.rows)
        self._rows: Rows | None = None
        self._placed: dict[str, _Placed] = {}

    def initial(self, seed: int = 0) -> np.ndarray:
        """The description's own initialisation, drawn on the CPU whatever the device."""
        import torch

        from multigpu.engines.torch.variables import initial_values

        model = find_model(self.description.workload, self.description.model)
        values = initial_values(model, seed, torch.device("cpu"), torch.float32)
        return np.concatenate([value.numpy().ravel() for _, value in values])

    def gradient(self, parameters: np.ndarray, worker: int, draw: int) -> np.ndarray:
        return self.gradient_tensor(parameters, worker, draw).cpu().numpy().copy()

    def gradient_tensor(self, parameters: np.ndarray | torch.Tensor, worker: int, draw: int) -> torch.Tensor:
        """The same on the worker's device, from parameters on any; the next gradient overwrites it."""
        with self._on(worker) as placed:
            placed.load(parameters)
            placed.gradients.zero_()
            batch, terms = placed.rows.batch(self.batches.rows_of(worker, draw))
            with placed.autocast():
                loss = placed.module(batch) / terms
            loss.backward()
            return placed.gradients

    def loss(self, parameters: np.ndarray) -> float:
        rows = np.arange(self.description.rows)
        return self._mean(parameters, rows, lambda placed, batch: placed.module(batch))

    def error(self, parameters: np.ndarray) -> float | None:
        """Share of test images, or of the words of test sentences given those before them, that are told wrong."""
        d = self.description
        rows = np.arange(d.rows, d.rows + d.test_rows)
        return self._mean(parameters, rows, lambda placed, batch: placed.rows.wrong(placed.module, batch))

    def _mean(self, parameters: np.ndarray, rows: np.ndarray, summed: Any) -> float:
        import torch

        total = terms = 0.0
        with self._on(0) as placed, torch.no_grad(), placed.autocast():
            placed.load(parameters)
            for start in range(0, len(rows), EVALUATED):
                batch, count = placed.rows.batch(rows[start : start + EVALUATED])
                total += float(summed(placed, batch))
                terms += count
        return total / terms

    @contextmanager
    def _on(self, worker: int) -> Iterator[_Placed]:
        """The model on the worker's device, with one thread of the host: sums then have one order, and processes do not compete."""
        import torch

        device = torch.device("cpu")
        if self.description.device == "cuda":
            count = torch.cuda.device_count()
            if count == 0:
                raise ValueError("device 'cuda' needs a GPU, and this process sees none: choose device 'cpu'")
            device = torch.device("cuda", worker % count)
            torch.cuda.set_device(device)
        if self._rows is None:
            from multigpu.synchrony.model_data import rows_of

            self._rows = rows_of(self.description)
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            if str(device) not in self._placed:
                self._placed[str(device)] = _Placed(self.description, self._rows, device)
            yield self._placed[str(device)]
        finally:
            torch.set_num_threads(before)
