"""One workload's loss and gradients in TensorFlow, from values and a batch that another process made with PyTorch.

`python -m tests.engines.twin FILE` reads cases, a pickle each, and writes the answer to each to FILE.out.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np


def written_lstm(*, input: Any, input_h: Any, input_c: Any, params: Any, **rest: Any) -> tuple[Any, Any, Any]:
    """What cuDNN's manual says of its LSTM, for sequences of one length, (T, B, features): y, and the last hidden and cell states.

    params: of each layer W of i, f, g, o [units, features] and R of these [units, units]; then of each layer their biases, W's and R's.
    """
    import tensorflow as tf

    layers, _, units = (int(size) for size in input_h.shape)
    features = [int(input.shape[-1])] + [units] * (layers - 1)
    sizes = [size for before in features for size in (4 * units * before, 4 * units * units)] + [4 * units] * (2 * layers)
    parts = tf.split(params, sizes)
    x, ends = input, []
    for layer in range(layers):
        into, hidden = (tf.reshape(part, [4 * units, -1]) for part in parts[2 * layer : 2 * layer + 2])
        bias = parts[2 * (layers + layer)] + parts[2 * (layers + layer) + 1]
        h, c, outputs = input_h[layer], input_c[layer], []
        for position in tf.unstack(x):
            gates = tf.matmul(position, into, transpose_b=True) + tf.matmul(h, hidden, transpose_b=True) + bias
            i, f, g, o = tf.split(gates, 4, 1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            h = tf.sigmoid(o) * tf.tanh(c)
            outputs.append(h)
        x = tf.stack(outputs)
        ends.append((h, c))
    return x, tf.stack([h for h, _ in ends]), tf.stack([c for _, c in ends])


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Loss and gradients, in the description's layout."""
    import tensorflow as tf

    from multigpu.engines.tensorflow.module import Form, build_module
    from multigpu.engines.tensorflow.variables import from_stored, to_stored
    from multigpu.run import Run

    run: Run = case["run"]
    dtype = tf.float64 if case["precision"] == "fp64" else tf.float32
    form = Form(case["as_on_gpus"], dtype, dtype, case["even"], False, run.layout, run.recurrence or "fused")
    module = build_module(run, form)
    values = {v.name: to_stored(module, v, case["values"][v.name]) for v in run.description.variables}
    dense = {name: tf.constant(value, dtype) for name, value in values.items() if name not in module.lookup_arrays}
    batch = {name: tf.constant(array, dtype if array.dtype.kind == "f" else None) for name, array in case["batch"].items()}
    if "source_length" in batch:
        batch["source_length_host"] = tf.cast(batch["source_length"], tf.int32)
    rows = {name: tf.constant(values[name][case["batch"][array]], dtype) for name, array in module.lookup_arrays.items()}
    statistics = {name: tf.fill(shape, tf.cast(start, dtype)) for name, (shape, start) in module.statistics.items()}

    def passes():
        with tf.GradientTape() as tape:
            tape.watch([*dense.values(), *rows.values()])
            loss, _ = module.loss(dense, batch, rows, statistics)
        return loss, *tape.gradient(loss, (dense, rows))

    try:
        with patch.object(tf.raw_ops, "CudnnRNNV3", written_lstm):  # no CPU has it
            loss, gradients, row_gradients = tf.function(passes, autograph=False)()
    except tf.errors.OpError as error:
        if case["as_on_gpus"] and "NHWC" in str(error):
            return {"lacks": "TensorFlow's convolutions of channels first run on CPUs through oneDNN alone"}
        raise
    found = {name: gradient.numpy() for name, gradient in gradients.items()}
    for name, gradient in row_gradients.items():
        found[name] = np.zeros_like(values[name])
        np.add.at(found[name], case["batch"][module.lookup_arrays[name]], gradient.numpy())
    return {"loss": float(loss), "gradients": {v.name: from_stored(module, v, found[v.name]) for v in run.description.variables}}


def main() -> None:
    file = Path(sys.argv[1])
    with open(file, "rb") as cases, open(file.with_suffix(".out"), "wb") as answers:
        while cases.peek(1):
            pickle.dump(answer(pickle.load(cases)), answers, 5)


if __name__ == "__main__":
    main()
