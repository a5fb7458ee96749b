"""A user's Keras job, examined."""

import contextlib
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from multigpu.spec.errors import JobError
from multigpu.user_model.examine import Examination, Precision
from multigpu.user_model.examined import Tried, shortest
from multigpu.workloads.own.job import Job
from multigpu.workloads.own.tensorflow import OwnStep, comparable
from multigpu.workloads.tensorflow_module import Form, Tensors


class Examined(Examination):
    """Of a `keras.Model`."""

    framework: Literal["tensorflow"] = "tensorflow"

    def __init__(self, job: Job, replicas: int) -> None:
        if job.own_update or job.micro_steps > 1 or job.shard is not None:
            told = ", ".join([*job.own_update, "micro_steps", "shard"][:1])
            raise JobError(
                f"{told} is of PyTorch's jobs: leave it out for a Keras model ({job.made_at})"
            )
        if job.rule.name == "adamw":
            raise JobError(
                "AdamW is not built in TensorFlow here: choose multigpu.Adam or multigpu.SGD"
                f" ({job.made_at})"
            )
        with contextlib.suppress(RuntimeError):  # the user's own program chose before
            for gpu in tf.config.list_physical_devices("GPU"):
                tf.config.experimental.set_memory_growth(gpu, True)
        super().__init__(job, replicas)
        self.model, self.tied = self._made("fp32"), {}
        self.shapes = {name: tuple(self.model.variables[name].shape) for name in self.model.trained}
        self.frozen = [name for name in self.model.variables if name not in self.shapes]
        self.values = {name: variable.numpy() for name, variable in self.model.variables.items()}
        if any(
            isinstance(layer, keras.layers.Embedding)
            for layer in self.model.model._flatten_layers()
        ):
            self.notes.append("gradients of embeddings are merged as arrays here")

    def _made(self, precision: Precision) -> OwnStep:
        kind = tf.float64 if precision == "fp64" else tf.float32
        made = OwnStep(
            self.job, self.structure, self.leaves, Form(cuda=False, dtype=kind, compute=kind)
        )
        made.begin(
            {
                name: variable.numpy()
                for name, variable in made.variables.items()
                if name not in made.trained
            }
        )
        return made

    def plain(self, precision: Precision) -> OwnStep:
        with comparable():
            made = self._made(precision)
        if {layer.compute_dtype for layer in made.model._flatten_layers()} - {
            "float64"
        } and precision == "fp64":
            raise JobError("its layers name their own types")
        return made

    def _passes(
        self, arrays: list[np.ndarray], module: OwnStep
    ) -> tuple[tf.Tensor, dict[str, Any], Tensors]:
        kind = module.form.dtype
        batch = {
            str(at): tf.constant(array, kind if array.dtype.kind == "f" else None)
            for at, array in enumerate(arrays)
        }
        values = {name: tf.constant(self.values[name], kind) for name in self.shapes}
        states = {
            name: tf.constant(start, kind, shape)
            for name, (shape, start) in module.statistics.items()
        }
        with tf.device("/device:CPU:0"), tf.GradientTape() as tape:
            tape.watch(list(values.values()))
            total, after = module.loss(values, batch, {}, states)
            loss = total / len(arrays[0])
        return loss, tape.gradient(loss, values), after

    def step(
        self, arrays: list[np.ndarray], model: Any = None, precision: Precision = "fp32"
    ) -> Tried:
        module: OwnStep = model or self.model
        loss, found, after = self._passes(arrays, module)
        value = self.checked(float(loss))
        if all(gradient is None for gradient in found.values()):
            raise JobError(
                "the loss depends on no parameter that is trained: nothing can be learned"
                f" ({self.job.made_at})"
            )
        gradients = {
            name: None if gradient is None else tf.convert_to_tensor(gradient).numpy()
            for name, gradient in found.items()
        }
        drawn = any("seed_generator_state" in name for name in after)
        return Tried(value, 0, {}, gradients, drawn)

    def flops(self, arrays: list[np.ndarray]) -> int:
        """Products and convolutions outside of loops, as TensorFlow's profiler counts them."""
        graph = (
            tf.function(lambda: self._passes(arrays, self.model)[0], autograph=False)
            .get_concrete_function()
            .graph
        )
        options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
        logger = tf.get_logger()
        level = logger.level
        logger.setLevel("ERROR")  # that this function is an old one
        try:
            return int(
                tf.compat.v1.profiler.profile(
                    graph, options=options | {"output": "none"}
                ).total_float_ops
            )
        finally:
            logger.setLevel(level)

    def step_s(self) -> float:
        return shortest(
            tf.function(lambda: self._passes(self.arrays, self.model)[:2], autograph=False)
        )

    def store(self, path: Path) -> None:
        with open(path, "wb") as file:
            np.savez(file, **self.values)
