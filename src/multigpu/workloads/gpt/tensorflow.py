"""The transformers in TensorFlow."""

import tensorflow as tf

from multigpu.spec.model import Model
from multigpu.workloads.gpt.description import GptConfig
from multigpu.workloads.tensorflow_module import Form, StepModule, Tensors

EPSILON = 1e-5
"""Added to a norm's variance: PyTorch's default."""


class Gpt(StepModule):
    """Sum of a shard's cross entropies over its tokens."""

    def __init__(self, model: Model, form: Form) -> None:
        self.config: GptConfig = model.config
        self.form = form

    def loss(
        self, values: Tensors, batch: Tensors, rows: Tensors, statistics: Tensors
    ) -> tuple[tf.Tensor, Tensors]:
        """Return the loss of tokens and targets, (B, T) int64 each."""
        tokens, targets = batch["tokens"], batch["targets"]
        x = tf.gather(values["table"], tokens) + values["positions"][: tf.shape(tokens)[1]]
        x = self._dropped(x)
        for layer in range(self.config.layers):
            x = self._block(values, f"blocks.{layer}", x)
        x = tf.cast(self._norm(values, "norm", x), self.form.compute)
        table = tf.cast(values["table"], self.form.compute)
        logits = tf.cast(tf.einsum("btc,vc->btv", x, table), self.form.dtype)
        terms = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
        return tf.reduce_sum(terms), {}

    def _block(self, values: Tensors, name: str, x: tf.Tensor) -> tf.Tensor:
        """Compute (B, T, C) in the variables' type, in which the residual sum stays."""
        read = self._attend(values, name, self._norm(values, f"{name}.norm_1", x))
        x += self._dropped(tf.cast(self._dense(values, f"{name}.out", read), x.dtype))
        wide = self._dense(values, f"{name}.up", self._norm(values, f"{name}.norm_2", x))
        added = self._dense(values, f"{name}.down", tf.nn.gelu(wide, approximate=True))
        return x + self._dropped(tf.cast(added, x.dtype))

    def _attend(self, values: Tensors, name: str, x: tf.Tensor) -> tf.Tensor:
        """Let each token read itself and those before it, heads side by side."""
        batch, length, width = tf.shape(x)[0], tf.shape(x)[1], self.config.width
        heads, each = self.config.heads, width // self.config.heads
        by_head = tf.reshape(self._dense(values, f"{name}.qkv", x), [batch, length, heads, 3, each])
        q, k, v = tf.unstack(by_head, axis=3)  # (B, T, H, C / H)
        scores = tf.cast(tf.einsum("bqhe,bkhe->bhqk", q, k), self.form.dtype) * each**-0.5
        seen = tf.linalg.band_part(tf.ones([length, length], tf.bool), -1, 0)
        weights = tf.nn.softmax(tf.where(seen, scores, scores.dtype.min))
        weights = tf.cast(self._dropped(weights), v.dtype)
        return tf.reshape(tf.einsum("bhqk,bkhe->bqhe", weights, v), [batch, length, width])

    def _dense(self, values: Tensors, name: str, x: tf.Tensor) -> tf.Tensor:
        kernel, bias = (
            tf.cast(values[f"{name}.{part}"], self.form.compute) for part in ("weight", "bias")
        )
        return tf.einsum("bti,oi->bto", tf.cast(x, self.form.compute), kernel) + bias

    def _norm(self, values: Tensors, name: str, x: tf.Tensor) -> tf.Tensor:
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return tf.nn.batch_normalization(
            x, mean, variance, values[f"{name}.bias"], values[f"{name}.weight"], EPSILON
        )

    def _dropped(self, x: tf.Tensor) -> tf.Tensor:
        return tf.nn.dropout(x, self.config.dropout) if self.config.dropout else x


def build(model: Model, form: Form) -> Gpt:
    """Return the functions of a transformer."""
    return Gpt(model, form)
