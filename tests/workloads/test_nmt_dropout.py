"""Document 004's dropout: of every cell's input, in training only, with a mask of its own on every replica."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from multigpu.engines.torch.devices import Device
from multigpu.engines.torch.variables import initial_values
from multigpu.run import Run
from multigpu.workloads.nmt.description import MODELS, describe
from multigpu.workloads.nmt.recurrence import Cells, dropped, fused, persistent, stepwise
from tests.workloads.helpers import filled, sentences

T, B, UNITS, CELLS = 5, 3, 4, 2


def stack(seed: int = 0) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor], list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(T, B, UNITS, generator=generator)
    state = (torch.randn(CELLS, B, UNITS, generator=generator), torch.randn(CELLS, B, UNITS, generator=generator))
    kernels = [torch.randn(2, 4 * UNITS, UNITS, generator=generator) for _ in range(CELLS)]
    biases = [torch.randn(4 * UNITS, generator=generator) for _ in range(CELLS)]
    return x, state, kernels, biases, torch.ones(4 * UNITS)


def test_all_of_every_cells_input_and_nothing_of_its_state_is_dropped() -> None:
    x, state, kernels, biases, forget_bias = stack()
    # with every input element dropped, a cell is a function of its own state alone
    dropping = Cells(kernels, biases, forget_bias, dropout=1.0)
    y, after = fused(x, state, dropping)
    written_out, _ = stepwise(x, state, dropping)
    torch.testing.assert_close(persistent(x, state, dropping)[0], y)
    alone, _ = fused(torch.zeros_like(x), (state[0][1:], state[1][1:]), Cells(kernels[1:], biases[1:], forget_bias))
    torch.testing.assert_close(y, alone)
    torch.testing.assert_close(y, written_out)
    plain, kept = fused(x, state, Cells(kernels, biases, forget_bias))
    assert not torch.allclose(y, plain) and not torch.allclose(after[0], kept[0])


def test_a_fifth_is_dropped_and_the_rest_scaled_up() -> None:
    torch.manual_seed(0)
    x = torch.ones(200, 500)
    found = dropped(x, 0.2)
    assert abs(float((found == 0).float().mean()) - 0.2) < 0.005
    torch.testing.assert_close(found[found > 0].unique(), torch.tensor([1.25]))
    assert dropped(x, 0.0) is x


def test_dropout_acts_in_training_only() -> None:
    tiny = MODELS["nmt_tiny"]
    dropping = describe("nmt_tiny", dataclasses.replace(tiny.config, dropout=0.2), tiny.optimizer)
    module, plain = (filled(model, dtype=torch.float32) for model in (dropping, tiny))
    batch = sentences(tiny, (4, 4), (4, 4))
    with torch.no_grad():
        first, second = float(module(batch)), float(module(batch))
        assert first != second
        module.eval()
        assert float(module(batch)) == float(module(batch)) == float(plain(batch)) != first


@pytest.mark.parametrize("seed", [0, 3])
def test_replicas_share_weights_and_not_masks(seed: int) -> None:
    run = Run(workload="nmt", model="nmt_tiny", placement="ddp", device_type="cpu", devices=3, batch_size=2, sequence_length=3, seed=seed)
    masks, weights = [], []
    for rank in (0, 1, 2, 1):
        Device(run, rank, threads=1)
        masks.append(dropped(torch.ones(1000), 0.5))
        weights.append(dict(initial_values(run.description, run.seed, torch.device("cpu"), torch.float32)))
    assert torch.equal(masks[1], masks[3])
    assert not any(torch.equal(masks[a], masks[b]) for a, b in ((0, 1), (0, 2), (1, 2)))
    for variable, value in weights[0].items():
        assert torch.equal(value, weights[1][variable]) and torch.equal(value, weights[2][variable])


TIMES, ROWS, FEATURES, DROPOUT = 40, 50, 20, 0.2
"""Of what TensorFlow drops: positions, sentences, units."""
WAYS = {"fused": "block_lstm", "stepwise": "stepwise"}


@pytest.fixture
def nmt(tf: Any) -> Any:
    from multigpu.workloads.nmt import tensorflow

    return tensorflow


def test_tensorflow_drops_the_documents_share(tf: Any, nmt: Any) -> None:
    ones = tf.ones([200, 500])
    one = nmt.dropped(ones, DROPOUT).numpy()
    assert abs(float((one == 0).mean()) - DROPOUT) < 0.005 and np.unique(one) == pytest.approx([0, 1.25]) and nmt.dropped(ones, 0.0) is ones
    first, second = tf.function(lambda: [nmt.dropped(ones, DROPOUT) for _ in range(2)])()
    assert not bool(tf.reduce_all(first == second)), "replicas would share their masks"


@pytest.mark.parametrize("way", WAYS)
def test_tensorflow_drops_every_cells_input_at_every_position_anew(way: str, tf: Any, nmt: Any) -> None:
    """Cells whose output is 0 where their input is, and depends on nothing else: gates i and o open, f closed, g the input itself."""
    kernel = np.zeros((2, 4 * FEATURES, FEATURES), np.float32)
    kernel[0, 2 * FEATURES : 3 * FEATURES] = np.eye(FEATURES)
    bias = np.repeat(np.array([100, -100, 0, 100], np.float32), FEATURES)
    telling = nmt.Cells([nmt.matrix(tf.constant(kernel))] * CELLS, [tf.constant(bias)] * CELLS, 1.0, DROPOUT)
    state = (tf.zeros([CELLS, ROWS, FEATURES]), tf.zeros([CELLS, ROWS, FEATURES]))
    run = getattr(nmt, WAYS[way])
    found, _ = tf.function(lambda: run(tf.ones([TIMES, ROWS, FEATURES]), state, telling, None))()
    zero = found.numpy() == 0
    # 1 - 0.8^2 of 40,000 elements, five standard deviations
    assert abs(float(zero.mean()) - 0.36) < 0.012 and len({position.tobytes() for position in zero}) == TIMES


@pytest.mark.parametrize("way", WAYS)
def test_tensorflow_drops_nothing_of_a_cells_state(way: str, tf: Any, nmt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every cell's input dropped, the top cell's output is that of a cell that gets zeros."""
    generator = np.random.default_rng(0)
    x, *state = (tf.constant(generator.normal(size=(size, ROWS, FEATURES)), tf.float32) for size in (TIMES, CELLS, CELLS))
    matrices = [tf.constant(generator.normal(size=(2 * FEATURES, 4 * FEATURES)), tf.float32) for _ in range(CELLS)]
    biases = [tf.constant(generator.normal(size=4 * FEATURES), tf.float32) for _ in range(CELLS)]
    run = getattr(nmt, WAYS[way])
    monkeypatch.setattr(nmt, "dropped", lambda x, dropout: tf.zeros_like(x) if dropout else x)
    found, _ = run(x, tuple(state), nmt.Cells(matrices, biases, 1.0, DROPOUT), None)
    alone, _ = run(tf.zeros_like(x), (state[0][1:], state[1][1:]), nmt.Cells(matrices[1:], biases[1:], 1.0), None)
    assert float(tf.reduce_max(tf.abs(found - alone))) < 1e-6


def test_the_documents_model_exists_in_tensorflow(tf: Any) -> None:
    """With its gradients, traced and not run: operations that draw masks, and variables with a gradient."""
    from multigpu.engines.tensorflow.module import Form, build_module

    fields = {"framework": "tensorflow", "placement": "independent", "processes": "one", "execution": "graph", "batch_size": 2}
    run = Run(workload="nmt", model="nmt004", **fields)
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
    cells = sum(variable.name.endswith("_kernel") for variable in run.description.variables)
    assert cells == 8 == len(drawn)
    assert len([one for one in traced.outputs if one is not None]) == len(run.description.variables)
