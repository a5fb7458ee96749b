"""Document 004's dropout: of every cell's input, in training only, with a mask of its own on every
replica.
"""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from multigpu.engines.torch.devices import Device
from multigpu.engines.torch.variables import initial_values
from multigpu.spec.run import Run
from multigpu.workloads import description_of
from multigpu.workloads.nmt.description import MODELS, describe
from multigpu.workloads.nmt.recurrence import Cells, dropped, fused, persistent, stepwise
from tests.multigpu.workloads.helpers import filled, sentences

T, B, UNITS, CELLS = 5, 3, 4, 2
TINY = MODELS["nmt_tiny"]
DROPPING = describe("nmt_tiny", dataclasses.replace(TINY.config, dropout=0.2), TINY.optimizer)


@pytest.mark.parametrize("way", [fused, stepwise, persistent])
def test_all_of_every_cells_input_and_nothing_of_its_state_is_dropped(way: Any) -> None:
    """With every input element dropped, a cell is a function of its own state alone."""
    generator = torch.Generator().manual_seed(0)
    x, hidden, cell = (
        torch.randn(size, B, UNITS, generator=generator) for size in (T, CELLS, CELLS)
    )
    kernels = [torch.randn(2, 4 * UNITS, UNITS, generator=generator) for _ in range(CELLS)]
    biases = [torch.randn(4 * UNITS, generator=generator) for _ in range(CELLS)]
    ones = torch.ones(4 * UNITS)
    y, after = way(x, (hidden, cell), Cells(kernels, biases, ones, dropout=1.0))
    alone, _ = way(
        torch.zeros_like(x), (hidden[1:], cell[1:]), Cells(kernels[1:], biases[1:], ones)
    )
    torch.testing.assert_close(y, alone)
    plain, kept = way(x, (hidden, cell), Cells(kernels, biases, ones))
    assert not torch.allclose(y, plain) and not torch.allclose(after[0], kept[0])


def test_dropout_acts_in_training_only() -> None:
    module, plain = (filled(model, dtype=torch.float32) for model in (DROPPING, TINY))
    batch = sentences(TINY, (4, 4), (4, 4))
    with torch.no_grad():
        first, second = float(module(batch)), float(module(batch))
        assert first != second
        module.eval()
        assert float(module(batch)) == float(module(batch)) == float(plain(batch)) != first


def test_replicas_share_weights_and_not_masks() -> None:
    run = Run(
        workload="nmt",
        model="nmt_tiny",
        placement="ddp",
        device_type="cpu",
        devices=3,
        batch_size=2,
        sequence_length=3,
        seed=3,
    )
    masks, weights = [], []
    for rank in (0, 1, 2, 1):
        Device(run, rank, threads=1)
        masks.append(dropped(torch.ones(1000), 0.5))
        weights.append(
            dict(initial_values(description_of(run), run.seed, torch.device("cpu"), torch.float32))
        )
    assert torch.equal(masks[1], masks[3])
    assert not any(torch.equal(masks[a], masks[b]) for a, b in ((0, 1), (0, 2), (1, 2)))
    assert all(
        torch.equal(value, other[variable])
        for other in weights
        for variable, value in weights[0].items()
    )


TIMES, ROWS, FEATURES = 40, 50, 20  # of what TensorFlow drops: positions, sentences, units


@pytest.fixture
def nmt(tf: Any) -> Any:
    from multigpu.workloads.nmt import tensorflow

    return tensorflow


@pytest.mark.parametrize("way", ["block_lstm", "stepwise"])
def test_tensorflow_drops_every_cells_input_at_every_position_anew(
    way: str, tf: Any, nmt: Any
) -> None:
    """Cells whose output is 0 where their input is, and depends on nothing else: gates i and o
    open, f closed, g the input itself.
    """
    kernel = np.zeros((2, 4 * FEATURES, FEATURES), np.float32)
    kernel[0, 2 * FEATURES : 3 * FEATURES] = np.eye(FEATURES)
    bias = np.repeat(np.array([100, -100, 0, 100], np.float32), FEATURES)
    telling = nmt.Cells(
        [nmt.matrix(tf.constant(kernel))] * CELLS, [tf.constant(bias)] * CELLS, 1.0, 0.2
    )
    state = (tf.zeros([CELLS, ROWS, FEATURES]), tf.zeros([CELLS, ROWS, FEATURES]))
    first, second = (
        found.numpy() == 0
        for found in tf.function(
            lambda: [
                getattr(nmt, way)(tf.ones([TIMES, ROWS, FEATURES]), state, telling, None)[0]
                for _ in range(2)
            ]
        )()
    )
    # 1 - 0.8^2 of 40,000 elements, five standard deviations
    assert (
        abs(float(first.mean()) - 0.36) < 0.012
        and len({position.tobytes() for position in first}) == TIMES
    )
    assert (first != second).any(), "replicas would share their masks"


@pytest.mark.parametrize("way", ["block_lstm", "stepwise"])
def test_tensorflow_drops_nothing_of_a_cells_state(
    way: str, tf: Any, nmt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every cell's input dropped, the top cell's output is that of a cell that gets zeros."""
    generator = np.random.default_rng(0)
    x, *state = (
        tf.constant(generator.normal(size=(size, ROWS, FEATURES)), tf.float32)
        for size in (TIMES, CELLS, CELLS)
    )
    matrices = [
        tf.constant(generator.normal(size=(2 * FEATURES, 4 * FEATURES)), tf.float32)
        for _ in range(CELLS)
    ]
    biases = [tf.constant(generator.normal(size=4 * FEATURES), tf.float32) for _ in range(CELLS)]
    run = getattr(nmt, way)
    monkeypatch.setattr(nmt, "dropped", lambda x, dropout: tf.zeros_like(x) if dropout else x)
    found, _ = run(x, tuple(state), nmt.Cells(matrices, biases, 1.0, 0.2), None)
    alone, _ = run(
        tf.zeros_like(x),
        (state[0][1:], state[1][1:]),
        nmt.Cells(matrices[1:], biases[1:], 1.0),
        None,
    )
    assert float(tf.reduce_max(tf.abs(found - alone))) < 1e-6


def test_a_described_dropout_reaches_every_cell_in_tensorflow(tf: Any, nmt: Any) -> None:
    """Traced and not run: an operation that draws a mask a cell."""
    from multigpu.workloads.tensorflow_module import Form

    module = nmt.build(DROPPING, Form(False, tf.float32, tf.float32, True))
    ids = {
        name: tf.TensorSpec([2, 3], tf.int64)
        for name in ("target_output", "source_length", "target_length")
    }
    rows = {name: tf.TensorSpec([2, 3, DROPPING.config.units]) for name in module.lookup_arrays}
    dense = {v.name: tf.TensorSpec(v.shape) for v in DROPPING.variables if v.name not in rows}
    graph = (
        tf.function(lambda *given: module.loss(*given, {})[0], autograph=False)
        .get_concrete_function(dense, ids, rows)
        .graph
    )
    assert sum(one.type == "RandomUniform" for one in graph.get_operations()) == 8
