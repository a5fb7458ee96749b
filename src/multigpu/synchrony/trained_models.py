"""The study's own models as problems: ResNet-20 and its kin on images, the translation model on sentences, on CPUs or GPUs.

The description imports no framework; a process imports PyTorch when it builds the problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import model_validator

from multigpu.synchrony.problems import Count, Description
from multigpu.workloads import find_model

if TYPE_CHECKING:
    from multigpu.synchrony.model_problem import ModelProblem


class TrainedModel(Description):
    """A model of a workload, its loss the mean over images or target words.

    cnn: images of a class's grating under noise (`model_problem.gratings`); nmt: sentences of the committed corpus with at most
    `longest` words a side (`model_problem.sentences`), so that all has real words; a row is an image or a pair of sentences.
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
        return self

    def build(self) -> ModelProblem:
        from multigpu.synchrony.model_problem import ModelProblem

        return ModelProblem(self)
