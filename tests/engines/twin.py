"""One workload's loss and gradients in TensorFlow, from values and a batch that another process made with PyTorch.

`python -m tests.engines.twin FILE` reads a pickle with {"cases": [...]} and writes each case's answer to FILE.out.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Loss and gradients, in the description's layout."""
    import tensorflow as tf

    from multigpu.engines.tensorflow.module import Form, build_module
    from multigpu.engines.tensorflow.variables import from_stored, to_stored
    from multigpu.run import Run

    run: Run = case["run"]
    dtype = tf.float64 if case["precision"] == "fp64" else tf.float32
    form = Form(False, dtype, dtype, case["even"], False, run.layout, run.recurrence or "fused")
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

    loss, gradients, row_gradients = tf.function(passes, autograph=False)()
    found = {name: gradient.numpy() for name, gradient in gradients.items()}
    for name, gradient in row_gradients.items():
        found[name] = np.zeros_like(values[name])
        np.add.at(found[name], case["batch"][module.lookup_arrays[name]], gradient.numpy())
    return {"loss": float(loss), "gradients": {v.name: from_stored(module, v, found[v.name]) for v in run.description.variables}}


def main() -> None:
    file = Path(sys.argv[1])
    cases = pickle.loads(file.read_bytes())
    file.with_suffix(".out").write_bytes(pickle.dumps([answer(case) for case in cases]))


if __name__ == "__main__":
    main()
