"""A workload's model in TensorFlow: pure functions of values."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import tensorflow as tf

from multigpu.spec.model import Variable

Tensors = dict[str, tf.Tensor]


@dataclass(frozen=True)
class Form:
    """How a model is computed. dtype: of variables; compute: of products; even: unpadded."""

    cuda: bool
    dtype: tf.DType
    compute: tf.DType
    even: bool = False
    xla: bool = False
    layout: Literal["channels_first", "channels_last"] | None = None
    recurrence: Literal["fused", "stepwise"] = "fused"


class StepModule(ABC):
    """A model as pure functions. lookup_arrays: table -> the batch's ids. statistics: a step's
    running ones: name -> (shape, start).
    """

    lookup_arrays: Mapping[str, str] = {}
    statistics: Mapping[str, tuple[tuple[int, ...], Any]] = {}

    def stored(self, variable: Variable) -> tuple[int, ...] | None:
        """TensorFlow's order of axes ([*window, channels, filters]); None: the description's."""
        return (*range(2, len(variable.shape)), 1, 0) if variable.kind == "convolution" else None

    @abstractmethod
    def loss(
        self, values: Tensors, batch: Tensors, rows: Tensors, statistics: Tensors
    ) -> tuple[tf.Tensor, Tensors]:
        """The sum of the shard's loss, float32 or 64, and the running statistics. rows: table ->
        rows looked up, (B, T, width).
        """
