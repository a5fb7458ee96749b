"""Every workload's TensorFlow twin: with PyTorch's weights and batch, the same loss and the same
gradients.
"""

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from multigpu.spec.model import Model
from multigpu.spec.run import Run
from multigpu.workloads import workloads
from tests.installed import DEEPCONN
from tests.multigpu.workloads.helpers import filled, gradients, labelled, rated, sentences, tokens
from tests.refusals import cases_beside

EVEN, RAGGED = ([4, 4, 4], [5, 5, 5]), ([1, 4, 3], [2, 5, 4])
COLUMNS = ("model", "precision", "recurrence", "lengths", "as_on_gpus")
CASES: dict[str, dict[str, Any]] = {
    name: {column: given for column, given in zip(COLUMNS, fields, strict=True) if given}
    for name, *fields, _ in cases_beside(__file__, "twins.csv")
    if DEEPCONN or name != "deepconn_tiny"
}
LENGTHS = {None: None, "even": EVEN, "ragged": RAGGED}
TOLERANCE = {"fp64": 1e-6, "fp32": 1e-4}
Arrays = dict[str, np.ndarray]


def described(name: str) -> Model:
    return next(
        workload.models[name] for workload in workloads().values() if name in workload.models
    )


def batch_of(model: Model, lengths: tuple[list[int], list[int]] | None) -> dict[str, torch.Tensor]:
    if lengths:
        return sentences(model, *lengths)
    if model.unit == "tokens":
        return tokens(model, 3)
    if model.unit in ("reviews", "samples"):
        return rated(model, 5) if model.unit == "reviews" else labelled(model, 3)
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(5, *model.config.image_shape, generator=generator, dtype=torch.float64)
    return {
        "images": images,
        "labels": torch.randint(model.config.classes, (5,), generator=generator),
    }


def written_lstm(
    *, input: Any, input_h: Any, input_c: Any, params: Any, **rest: Any
) -> tuple[Any, Any, Any]:
    """What cuDNN's manual says of its LSTM, for sequences of one length, (T, B, features): y, and
    the last hidden and cell states.
    params: of each layer W of i, f, g, o [units, features] and R of these [units, units]; then of
        each layer their biases, W's and R's.
    """
    import tensorflow as tf

    layers, _, units = (int(size) for size in input_h.shape)
    features = [int(input.shape[-1])] + [units] * (layers - 1)
    sizes = [size for before in features for size in (4 * units * before, 4 * units * units)] + [
        4 * units
    ] * (2 * layers)
    parts = tf.split(params, sizes)
    x, ends = input, []
    for layer in range(layers):
        into, hidden = (
            tf.reshape(part, [4 * units, -1]) for part in parts[2 * layer : 2 * layer + 2]
        )
        bias = parts[2 * (layers + layer)] + parts[2 * (layers + layer) + 1]
        h, c, outputs = input_h[layer], input_c[layer], []
        for position in tf.unstack(x):
            gates = (
                tf.matmul(position, into, transpose_b=True)
                + tf.matmul(h, hidden, transpose_b=True)
                + bias
            )
            i, f, g, o = tf.split(gates, 4, 1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            h = tf.sigmoid(o) * tf.tanh(c)
            outputs.append(h)
        x = tf.stack(outputs)
        ends.append((h, c))
    return x, tf.stack([h for h, _ in ends]), tf.stack([c for _, c in ends])


def in_tensorflow(
    tf: Any, fields: dict[str, Any], values: Arrays, batch: Arrays
) -> tuple[float, Arrays]:
    """Loss and gradients from these values and this batch, in the description's layout."""
    from multigpu.engines.tensorflow.checked import shard_gradients
    from multigpu.engines.tensorflow.feed import Shard
    from multigpu.engines.tensorflow.module import build_module
    from multigpu.engines.tensorflow.variables import from_stored, to_stored
    from multigpu.workloads.tensorflow_module import Form

    model, as_on_gpus = described(fields["model"]), "as_on_gpus" in fields
    common = {
        "placement": "independent",
        "framework": "tensorflow",
        "processes": "one",
        "device_type": "cpu",
        "execution": "graph",
    }
    run = Run(
        workload=model.workload,
        model=model.name,
        batch_size=1,
        recurrence=fields.get("recurrence"),
        **common,
    )
    dtype = tf.float64 if fields["precision"] == "fp64" else tf.float32
    form = Form(
        as_on_gpus,
        dtype,
        dtype,
        fields.get("lengths") == "even",
        False,
        run.layout,
        run.recurrence or "fused",
    )
    module = build_module(run, form)
    placed = {
        name: tf.constant(array, dtype if array.dtype.kind == "f" else None)
        for name, array in batch.items()
    }
    if "source_length" in placed:
        placed["source_length_host"] = tf.cast(placed["source_length"], tf.int32)
    stored = {v.name: to_stored(module, v, values[v.name]) for v in model.variables}
    try:
        with patch.object(tf.raw_ops, "CudnnRNNV3", written_lstm):  # no CPU has it
            shard = Shard(None, placed)
            loss, found = shard_gradients(module, stored, shard, dtype)
    except tf.errors.OpError as error:
        if as_on_gpus and "NHWC" in str(error):
            pytest.skip(
                "TensorFlow's convolutions of channels first run on CPUs through oneDNN alone"
            )
        raise
    return loss, {v.name: from_stored(module, v, found[v.name]) for v in model.variables}


@pytest.mark.parametrize("name", CASES)
def test_twins_agree(name: str, tf: Any) -> None:
    fields, tolerance = CASES[name], TOLERANCE[CASES[name]["precision"]]
    model = described(fields["model"])
    module, batch = filled(model), batch_of(model, LENGTHS[fields.get("lengths")])
    loss = module(batch)
    expected = {
        v.name: gradient.numpy()
        for v, gradient in zip(model.variables, gradients(module, loss), strict=True)
    }
    values = {
        name: value.detach().contiguous().numpy() for name, value in module.named_parameters()
    }
    answer, found = in_tensorflow(
        tf, fields, values, {name: array.numpy() for name, array in batch.items()}
    )
    assert answer == pytest.approx(float(loss.detach()), rel=tolerance)
    difference = (
        sum(float(np.square(found[key] - value).sum()) for key, value in expected.items()) ** 0.5
    )
    norm = sum(float(np.square(value).sum()) for value in expected.values()) ** 0.5
    assert difference < tolerance * norm
    assert {key: value.shape for key, value in found.items()} == {
        key: value.shape for key, value in expected.items()
    }
    assert sum(value.size for value in found.values()) == model.parameters
    assert all(np.abs(value).sum() > 0 for value in found.values()), "every variable has a gradient"


def test_every_workload_has_a_twin() -> None:
    tried = {described(fields["model"]).workload for fields in CASES.values()}
    assert tried == {name for name, one in workloads().items() if not one.checked}
