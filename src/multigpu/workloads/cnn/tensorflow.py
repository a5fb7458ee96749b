"""Image models in TensorFlow, walked through the layer language at every trace."""

from typing import Any

import tensorflow as tf

from multigpu.spec.errors import Unsupported
from multigpu.spec.model import Model
from multigpu.workloads.cnn import layers as L
from multigpu.workloads.cnn import network as net
from multigpu.workloads.tensorflow_module import Form, StepModule, Tensors


class Cnn(StepModule):
    """Sum of a shard's cross entropies over its images."""

    def __init__(self, model: Model, form: Form) -> None:
        self.config, self.form = model.config, form
        self.first = form.cuda and form.layout != "channels_last"
        self.format = "NCHW" if self.first else "NHWC"
        self.statistics: dict[str, tuple[tuple[int, ...], float]] = {}
        for variable in model.variables:
            # every norm has a shift
            if variable.kind == "norm" and variable.name.endswith(".bias"):
                name = variable.name.removesuffix(".bias")
                self.statistics |= {
                    f"{name}.mean": (variable.shape, 0.0),
                    f"{name}.variance": (variable.shape, 1.0),
                }

    def loss(
        self, values: Tensors, batch: Tensors, rows: Tensors, statistics: Tensors
    ) -> tuple[tf.Tensor, Tensors]:
        """Of images (B, channels, height, width) and labels (B,) int64; new statistics."""
        logits, updated = self.logits(values, batch["images"], statistics)
        return self.loss_of(logits, batch["labels"]), updated

    def logits(
        self, values: Tensors, images: tf.Tensor, statistics: Tensors
    ) -> tuple[tf.Tensor, Tensors]:
        """(B, channels, height, width) -> (B, classes) in the products' type; new statistics."""
        x = tf.cast(images, self.form.compute)
        if not self.first:
            x = tf.transpose(x, [0, 2, 3, 1])
        pass_ = Pass(self, values, statistics)
        return pass_.network(self.config.network, self.config.image_shape, x, ""), pass_.updated

    def loss_of(self, logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        terms = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels, tf.cast(logits, self.form.dtype)
        )
        return tf.reduce_sum(terms)


def build(model: Model, form: Form) -> Cnn:
    """The functions of an image model; `Unsupported` for channels first on a CPU."""
    if form.layout == "channels_first" and not form.cuda:
        raise Unsupported(
            "TensorFlow's CPU convolutions take channels_last only: choose layout 'channels_last'"
        )
    return Cnn(model, form)


class Pass:
    """One forward pass in training mode."""

    def __init__(self, cnn: Cnn, values: Tensors, statistics: Tensors) -> None:
        self.values, self.statistics, self.form = values, statistics, cnn.form
        self.first, self.format = cnn.first, cnn.format
        self.updated: Tensors = {}

    def network(
        self, network: net.Network, shape: net.Shape, x: tf.Tensor, prefix: str
    ) -> tf.Tensor:
        for name, layer, size in net.steps(network, shape):
            x = getattr(self, layer.kind)(layer, size, x, prefix + name)
        return x

    def value(self, name: str) -> tf.Tensor:
        return tf.cast(self.values[name], self.form.compute)

    def axes(self, height: Any, width: Any, batch: Any, channels: Any) -> list[Any]:
        return [batch, channels, height, width] if self.first else [batch, height, width, channels]

    def padding(self, layer: L.Window, shape: net.Shape) -> Any:
        top, bottom, left, right = pads = layer.pads_for(shape)
        if pads == net.NO_PADS:
            return "VALID"
        if pads == net.same_pads((shape[1], shape[2]), layer.kernel, layer.stride):
            return "SAME"
        return self.axes((top, bottom), (left, right), (0, 0), (0, 0))

    def conv(self, layer: L.Convolution, shape: net.Shape, x: tf.Tensor, name: str) -> tf.Tensor:
        kernel, pads = self.value(f"{name}.weight"), self.padding(layer, shape)
        y = tf.nn.conv2d(x, kernel, layer.stride, pads, data_format=self.format)
        if layer.bias:
            return tf.nn.bias_add(y, self.value(f"{name}.bias"), data_format=self.format)
        return y

    def max_pool(self, layer: L.MaxPool, shape: net.Shape, x: tf.Tensor, name: str) -> tf.Tensor:
        padding = self.padding(layer, shape)
        if not isinstance(padding, str):
            x, padding = tf.pad(x, padding, constant_values=x.dtype.min), "VALID"
        return tf.nn.max_pool2d(x, layer.kernel, layer.stride, padding, data_format=self.format)

    def average_pool(
        self, layer: L.AveragePool, shape: net.Shape, x: tf.Tensor, name: str
    ) -> tf.Tensor:
        if layer.sides == (1, 1):
            s = layer.stride
            return x[:, :, ::s, ::s] if self.first else x[:, ::s, ::s]
        padding = self.padding(layer, shape)
        if not isinstance(padding, str):
            raise NotImplementedError(
                f"average pooling with pads {layer.pads_for(shape)} over {shape}: pad only as SAME"
                " does"
            )
        return tf.nn.avg_pool2d(x, layer.kernel, layer.stride, padding, data_format=self.format)

    def norm(self, layer: L.BatchNorm, shape: net.Shape, x: tf.Tensor, name: str) -> tf.Tensor:
        shift = self.values[f"{name}.bias"]
        scale = self.values[f"{name}.weight"] if layer.scale else tf.ones(shape[:1], shift.dtype)
        if x.dtype == tf.float64:  # the fused kernel has no float64
            return self._written_norm(layer, x, name, scale, shift)
        y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=x,
            scale=scale,
            offset=shift,
            mean=self.statistics[f"{name}.mean"],
            variance=self.statistics[f"{name}.variance"],
            epsilon=layer.epsilon,
            exponential_avg_factor=1 - layer.decay,
            data_format=self.format,
            is_training=True,
        )
        self.updated |= {f"{name}.mean": mean, f"{name}.variance": variance}
        return y

    def _written_norm(
        self, layer: L.BatchNorm, x: tf.Tensor, name: str, scale: tf.Tensor, shift: tf.Tensor
    ) -> tf.Tensor:
        axes = [0, 2, 3] if self.first else [0, 1, 2]
        wide = self.axes(1, 1, 1, -1)
        mean = tf.reduce_mean(x, axes)
        centred = x - tf.reshape(mean, wide)
        variance = tf.reduce_mean(centred * centred, axes)
        count = tf.cast(tf.size(x) // tf.size(mean), x.dtype)
        keep = tf.constant(layer.decay, x.dtype)
        old_mean = self.statistics[f"{name}.mean"]
        old_variance = self.statistics[f"{name}.variance"]
        self.updated[f"{name}.mean"] = keep * old_mean + (1 - keep) * mean
        self.updated[f"{name}.variance"] = keep * old_variance + (
            1 - keep
        ) * variance * count / tf.maximum(count - 1, 1)
        factor = scale * tf.math.rsqrt(variance + tf.constant(layer.epsilon, x.dtype))
        return centred * tf.reshape(factor, wide) + tf.reshape(shift, wide)

    def response_norm(
        self, layer: L.LocalResponseNorm, shape: net.Shape, x: tf.Tensor, name: str
    ) -> tf.Tensor:
        # as in PyTorch: tf.nn.lrn takes neither channels first nor float64
        band = tf.linalg.band_part(tf.ones(2 * shape[:1], x.dtype), layer.radius, layer.radius)
        sums = tf.nn.conv2d(x * x, band[None, None], 1, "VALID", data_format=self.format)
        factor = tf.pow(layer.bias + layer.alpha * tf.cast(sums, self.form.dtype), -layer.beta)
        return x * tf.cast(factor, x.dtype)

    def dropout(self, layer: L.Dropout, shape: net.Shape, x: tf.Tensor, name: str) -> tf.Tensor:
        return tf.nn.dropout(x, layer.rate)

    def relu(self, layer: L.Relu, shape: net.Shape, x: tf.Tensor, name: str) -> tf.Tensor:
        return tf.nn.relu(x)

    def mean(
        self, layer: L.GlobalAveragePool, shape: net.Shape, x: tf.Tensor, name: str
    ) -> tf.Tensor:
        return tf.reduce_mean(x, [2, 3] if self.first else [1, 2])

    def flatten(self, layer: L.Flatten, shape: net.Shape, x: tf.Tensor, name: str) -> tf.Tensor:
        if not self.first:
            x = tf.transpose(x, [0, 3, 1, 2])
        return tf.reshape(x, [tf.shape(x)[0], -1])

    def pad_channels(
        self, layer: L.PadChannels, shape: net.Shape, x: tf.Tensor, name: str
    ) -> tf.Tensor:
        return tf.pad(x, self.axes((0, 0), (0, 0), (0, 0), (layer.each_side, layer.each_side)))

    def dense(self, layer: L.Dense, shape: net.Shape, x: tf.Tensor, name: str) -> tf.Tensor:
        return tf.matmul(x, self.value(f"{name}.weight"), transpose_b=True) + self.value(
            f"{name}.bias"
        )

    def residual(self, layer: L.Residual, shape: net.Shape, x: tf.Tensor, name: str) -> tf.Tensor:
        y = self.network(layer.branch, shape, x, f"{name}.branch.")
        return y + self.network(layer.shortcut, shape, x, f"{name}.shortcut.")

    def concat(self, layer: L.Concat, shape: net.Shape, x: tf.Tensor, name: str) -> tf.Tensor:
        branches = [
            self.network(branch, shape, x, f"{name}.branch{index}.")
            for index, branch in enumerate(layer.branches, 1)
        ]
        return tf.concat(branches, 1 if self.first else 3)
