"""What dropout does to TensorFlow's translation model, as JSON: `python -m tests.workloads.nmt_dropout_tensorflow`."""

from __future__ import annotations

import dataclasses
import json
from typing import Any
from unittest.mock import patch

import numpy as np
import tensorflow as tf

from multigpu.engines.tensorflow.module import Form, build_module
from multigpu.run import Run
from multigpu.workloads.nmt import tensorflow as nmt
from multigpu.workloads.nmt.description import MODELS, describe

T, B, UNITS, CELLS, DROPOUT = 40, 50, 20, 2, 0.2
WAYS = {"fused": nmt.block_lstm, "stepwise": nmt.stepwise}


def telling() -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Cells whose output is 0 where their input is, and depends on nothing else: gates i and o open, f closed, g the input itself."""
    kernel = np.zeros((2, 4 * UNITS, UNITS), np.float32)
    kernel[0, 2 * UNITS : 3 * UNITS] = np.eye(UNITS)
    bias = np.repeat(np.array([100, -100, 0, 100], np.float32), UNITS)
    return [nmt.matrix(tf.constant(kernel))] * CELLS, [tf.constant(bias)] * CELLS


def masks(way: Any) -> dict[str, Any]:
    """Of ones through two cells: the share of zeros, and whether every position has another mask."""
    state = (tf.zeros([CELLS, B, UNITS]), tf.zeros([CELLS, B, UNITS]))
    found, _ = tf.function(lambda: way(tf.ones([T, B, UNITS]), state, *telling(), 1.0, None, DROPOUT))()
    zero = found.numpy() == 0
    return {"zeros": float(zero.mean()), "positions": len({position.tobytes() for position in zero})}


def only_inputs(way: Any) -> float:
    """Largest difference between the top cell's output with every cell's input dropped, and that of a cell that gets zeros."""
    generator = np.random.default_rng(0)
    x, *state = (tf.constant(generator.normal(size=size), tf.float32) for size in ((T, B, UNITS), *[(CELLS, B, UNITS)] * 2))
    matrices = [tf.constant(generator.normal(size=(2 * UNITS, 4 * UNITS)), tf.float32) for _ in range(CELLS)]
    biases = [tf.constant(generator.normal(size=4 * UNITS), tf.float32) for _ in range(CELLS)]
    with patch.object(nmt, "dropped", lambda x, dropout: tf.zeros_like(x) if dropout else x):
        found, _ = way(x, tuple(state), matrices, biases, 1.0, None, DROPOUT)
    alone, _ = way(tf.zeros_like(x), (state[0][1:], state[1][1:]), matrices[1:], biases[1:], 1.0, None)
    return float(tf.reduce_max(tf.abs(found - alone)))


def losses() -> list[list[float]]:
    """Two losses of one traced function, without dropout and with it."""
    plain, found = MODELS["nmt_tiny"], []
    for dropout in (0.0, DROPOUT):
        model = describe("nmt_tiny", dataclasses.replace(plain.config, dropout=dropout), plain.optimizer)
        module = nmt.build(model, Form(False, tf.float32, tf.float32, True, False, None, "fused"))
        generator = np.random.default_rng(1)
        values = {v.name: tf.constant(generator.normal(size=v.shape), tf.float32) for v in model.variables}
        words = tf.constant(generator.integers(0, 50, (3, 4)))
        batch = {"source": words, "target_input": words, "target_output": words}
        batch |= dict.fromkeys(("source_length", "target_length"), tf.fill([3], tf.constant(4, tf.int64)))
        rows = {name: tf.gather(values[name], words) for name in module.lookup_arrays}
        loss = tf.function(lambda module=module, values=values, batch=batch, rows=rows: module.loss(values, batch, rows, {})[0])
        found.append([float(loss()), float(loss())])
    return found


def full_size() -> dict[str, int]:
    """Document 004's model and its gradients, traced and not run: operations that draw masks, and variables with a gradient."""
    run = Run(
        workload="nmt", model="nmt004", framework="tensorflow", placement="independent", processes="one", execution="graph", batch_size=2
    )
    module = build_module(run, Form(False, tf.float32, tf.float32, True, False, None, "fused"))
    dense = {v.name: tf.TensorSpec(v.shape) for v in run.description.variables if v.name not in module.lookup_arrays}
    whole = {name: tf.TensorSpec([2, 3], tf.int64) for name in ("source", "target_input", "target_output")}
    batch = whole | {name: tf.TensorSpec([2], tf.int64) for name in ("source_length", "target_length")}
    rows = {name: tf.TensorSpec([2, 3, 1024]) for name in module.lookup_arrays}

    def passes(dense: Any, batch: Any, rows: Any) -> Any:
        loss, _ = module.loss(dense, batch, rows, {})
        return tf.gradients(loss, [*tf.nest.flatten(dense), *tf.nest.flatten(rows)])

    traced = tf.function(passes, autograph=False).get_concrete_function(dense, batch, rows)
    drawn = [operation for operation in traced.graph.get_operations() if operation.type == "RandomUniform"]
    return {"drawn": len(drawn), "gradients": len([one for one in traced.outputs if one is not None])}


def main() -> None:
    ones = tf.ones([200, 500])
    one = nmt.dropped(ones, DROPOUT).numpy()
    both = tf.function(lambda: [nmt.dropped(ones, DROPOUT) for _ in range(2)])()
    answer = {
        "share": float((one == 0).mean()),
        "kept": sorted({round(float(value), 6) for value in np.unique(one)}),
        "nothing": nmt.dropped(ones, 0.0) is ones,
        "two_operations_agree": bool(tf.reduce_all(both[0] == both[1])),
        "masks": {name: masks(way) for name, way in WAYS.items()},
        "only_inputs": {name: only_inputs(way) for name, way in WAYS.items()},
        "losses": losses(),
        "full_size": full_size(),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
