"""Image models traced in TensorFlow at full size, in both layouts: `python -m tests.workloads.trace_cnn`.

Tracing runs nothing, so it also shows what only a GPU can execute (convolutions of channels first). Prints one JSON object: by model and
layout, the shapes of variables read and of the loss, and the names of running statistics.
"""

from __future__ import annotations

import json
import sys

import tensorflow as tf

from multigpu.engines.tensorflow.module import Form
from multigpu.workloads import find_model
from multigpu.workloads.cnn.tensorflow import build


def traced(name: str, layout: str) -> dict[str, object]:
    model = find_model("cnn", name)
    cnn = build(model, Form(True, tf.float32, tf.bfloat16, True, False, layout, "fused"))  # type: ignore[arg-type]
    with tf.Graph().as_default() as graph:
        values = {}
        for variable in model.variables:
            order = cnn.stored(variable)
            shape = [variable.shape[axis] for axis in order] if order else variable.shape
            values[variable.name] = tf.zeros(shape)
        statistics = {key: tf.fill(shape, start) for key, (shape, start) in cnn.statistics.items()}
        batch = {"images": tf.zeros((2, *model.config.image_shape)), "labels": tf.zeros(2, tf.int64)}
        loss, updated = cnn.loss(values, batch, {}, statistics)
        kinds = [operation.type for operation in graph.get_operations()]
    return {
        "loss": loss.shape.as_list(),
        "type": loss.dtype.name,
        "statistics": sorted(updated),
        "same_shapes": all(updated[key].shape == statistics[key].shape for key in statistics),
        "convolutions": kinds.count("Conv2D"),
    }


if __name__ == "__main__":
    names = sys.argv[1:]
    print(json.dumps({name: {layout: traced(name, layout) for layout in ("channels_first", "channels_last")} for name in names}))
