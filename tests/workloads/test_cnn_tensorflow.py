"""Image models at full size in TensorFlow: they trace in both layouts, with the description's convolutions, statistics and parameters.

Tracing runs nothing, so it also shows what only a GPU can execute (convolutions of channels first).
"""

from typing import Any

import pytest

from multigpu.workloads import find_model
from multigpu.workloads.cnn.description import FOR_CIFAR, FOR_IMAGENET
from multigpu.workloads.cnn.layers import LocalResponseNorm


def behind(tensor: Any) -> set[Any]:
    """Every operation that a tensor's value depends on."""
    found: set[Any] = set()
    left = [tensor.op]
    while left:
        operation = left.pop()
        if operation not in found:
            found.add(operation)
            left += [one.op for one in operation.inputs]
    return found


@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
@pytest.mark.parametrize("name", [*FOR_IMAGENET, *FOR_CIFAR])
def test_full_size_models_trace(name: str, layout: str, tf: Any) -> None:
    """The loss depends on every parameter of the description and on no other; `test_descriptions.py` has the counts themselves."""
    from multigpu.engines.tensorflow.module import Form
    from multigpu.workloads.cnn.tensorflow import build

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
    norms = [v.name.removesuffix(".bias") for v in model.variables if v.kind == "norm" and v.name.endswith(".bias")]
    banded = sum(isinstance(layer, LocalResponseNorm) for layer in model.config.network)
    assert (loss.shape.as_list(), loss.dtype) == ([], tf.float32)
    assert sorted(updated) == sorted(f"{norm}.{kind}" for norm in norms for kind in ("mean", "variance"))
    assert all(updated[key].shape == statistics[key].shape for key in statistics)
    assert kinds.count("Conv2D") == sum(v.kind == "convolution" for v in model.variables) + banded
    assert not [name for name, value in values.items() if value.op not in reached]
    assert not {"VarHandleOp", "VariableV2"} & set(kinds), "variables of its own"
    assert sum(value.shape.num_elements() for value in values.values()) == model.parameters
