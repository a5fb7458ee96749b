"""Stacks of one kind of layer in TensorFlow."""

import tensorflow as tf

from multigpu.spec.errors import Unsupported
from multigpu.spec.model import Model
from multigpu.workloads.nmt.tensorflow import Cells, block_lstm, cudnn, stepwise
from multigpu.workloads.stacks.description import StackConfig
from multigpu.workloads.tensorflow_module import Form, StepModule, Tensors


class Stack(StepModule):
    """Summed cross entropies over a shard's rows; images are channels first on GPUs alone."""

    def __init__(self, model: Model, form: Form) -> None:
        self.config: StackConfig = model.config
        self.form = form
        self.format = "NCHW" if form.cuda else "NHWC"

    def loss(
        self, values: Tensors, batch: Tensors, rows: Tensors, statistics: Tensors
    ) -> tuple[tf.Tensor, Tensors]:
        """Of samples (B, *row_shape), floating-point, and labels (B,) int64."""
        kind = self.config.kind
        layer = {
            "dense": self._dense,
            "convolution": self._convolution,
            "recurrent": self._recurrent,
        }[kind]
        x = self._enter(tf.cast(batch["samples"], self.form.compute))
        for index in range(self.config.layers):
            x = layer(values, f"{kind}_{index}", x)
        if kind == "convolution":
            x = tf.reduce_mean(x, [2, 3] if self.form.cuda else [1, 2])  # (B, width)
        if kind == "recurrent":
            x = x[-1]  # (B, width)
        logits = self._product(values, "head", x)
        terms = tf.nn.sparse_softmax_cross_entropy_with_logits(
            batch["labels"], tf.cast(logits, self.form.dtype)
        )
        return tf.reduce_sum(terms), {}

    def _enter(self, samples: tf.Tensor) -> tf.Tensor:
        """Sequences as (T, B, features), images in the layout that the device's kernels take."""
        if self.config.kind == "recurrent":
            return tf.transpose(samples, [1, 0, 2])
        if self.config.kind == "convolution" and not self.form.cuda:
            return tf.transpose(samples, [0, 2, 3, 1])
        return samples

    def _product(self, values: Tensors, name: str, x: tf.Tensor) -> tf.Tensor:
        kernel, bias = (tf.cast(values[f"{name}_{part}"], x.dtype) for part in ("kernel", "bias"))
        return tf.matmul(x, kernel, transpose_b=True) + bias

    def _activated(self, x: tf.Tensor) -> tf.Tensor:
        return tf.sigmoid(x) if self.config.activation == "sigmoid" else tf.nn.relu(x)

    def _dense(self, values: Tensors, name: str, x: tf.Tensor) -> tf.Tensor:
        return self._activated(self._product(values, name, x))

    def _convolution(self, values: Tensors, name: str, x: tf.Tensor) -> tf.Tensor:
        """Images in the device's layout -> the same size with `width` channels."""
        kernel, bias = (tf.cast(values[f"{name}_{part}"], x.dtype) for part in ("kernel", "bias"))
        product = tf.nn.conv2d(x, kernel, 1, "SAME", data_format=self.format)
        return self._activated(tf.nn.bias_add(product, bias, data_format=self.format))

    def _recurrent(self, values: Tensors, name: str, x: tf.Tensor) -> tf.Tensor:
        """An LSTM from a zero state, (T, B, features) -> (T, B, width)."""
        fused = self.form.recurrence == "fused"
        on_cudnn = fused and self.form.cuda
        kind = self.form.dtype if on_cudnn else self.form.compute
        # [4, width, features], [4, width, width]
        matrices = [tf.cast(values[f"{name}_{part}"], kind) for part in ("input", "hidden")]
        biases = [tf.reshape(tf.cast(values[f"{name}_bias"], kind), [-1])]
        zero = tf.zeros([1, tf.shape(x)[1], self.config.width], kind)
        if on_cudnn:
            flat = tf.concat([tf.reshape(one, [-1]) for one in matrices], 0)
            y, _ = cudnn(tf.cast(x, kind), (zero, zero), Cells([flat], biases, 0.0), None)
            return tf.cast(y, x.dtype)
        together = tf.transpose(
            tf.concat([tf.reshape(one, [4 * self.config.width, -1]) for one in matrices], 1)
        )
        # TensorFlow's CPU kernel knows neither float64 nor bfloat16
        run = block_lstm if fused and kind == tf.float32 else stepwise
        y, _ = run(x, (zero, zero), Cells([together], biases, 0.0), None)
        return y


def build(model: Model, form: Form) -> Stack:
    """The functions of a stack; Unsupported where the form cannot be computed."""
    if form.xla and form.recurrence == "fused" and model.config.kind == "recurrent":
        raise Unsupported(
            "XLA cannot compile a library's LSTM call: choose recurrence 'stepwise' or execution"
            " 'graph'"
        )
    return Stack(model, form)
