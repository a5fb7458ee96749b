"""Image models traced in TensorFlow at full size, in both layouts: `python -m tests.workloads.trace_cnn`.

Tracing runs nothing, so it also shows what only a GPU can execute (convolutions of channels first). Prints one JSON object: by model and
layout, the shape of the loss, the names of running statistics, and the trainable variables on which the loss depends: how many elements
they have, as TensorFlow stores them, which of the description's are not among them, and how many variables the pass made itself.
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
            values[variable.name] = tf.compat.v1.placeholder(tf.float32, shape)  # takes no memory, whatever its size
        statistics = {key: tf.fill(shape, start) for key, (shape, start) in cnn.statistics.items()}
        batch = {"images": tf.zeros((2, *model.config.image_shape)), "labels": tf.zeros(2, tf.int64)}
        loss, updated = cnn.loss(values, batch, {}, statistics)
        kinds = [operation.type for operation in graph.get_operations()]
        reached = behind(loss)
    return {
        "loss": loss.shape.as_list(),
        "type": loss.dtype.name,
        "statistics": sorted(updated),
        "same_shapes": all(updated[key].shape == statistics[key].shape for key in statistics),
        "convolutions": kinds.count("Conv2D"),
        "parameters": sum(value.shape.num_elements() for value in values.values() if value.op in reached),
        "made": sum(kind in ("VarHandleOp", "VariableV2") for kind in kinds),
        "unread": sorted(name for name, value in values.items() if value.op not in reached),
    }


def behind(tensor: tf.Tensor) -> set[tf.Operation]:
    """Every operation that a tensor's value depends on."""
    found: set[tf.Operation] = set()
    left = [tensor.op]
    while left:
        operation = left.pop()
        if operation not in found:
            found.add(operation)
            left += [one.op for one in operation.inputs]
    return found


if __name__ == "__main__":
    names = sys.argv[1:]
    print(json.dumps({name: {layout: traced(name, layout) for layout in ("channels_first", "channels_last")} for name in names}))
