"""Document 004's dropout: of every cell's input, in training only, with a mask of its own on every replica."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from multigpu.engines.torch.devices import Device
from multigpu.engines.torch.variables import initial_values
from multigpu.run import Run
from multigpu.workloads import find_model
from multigpu.workloads.nmt.description import MODELS, describe
from multigpu.workloads.nmt.recurrence import dropped, fused, persistent, stepwise
from multigpu.workloads.nmt.torch import Nmt

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
    y, after = fused(x, state, kernels, biases, forget_bias, dropout=1.0)
    written_out, _ = stepwise(x, state, kernels, biases, forget_bias, dropout=1.0)
    torch.testing.assert_close(persistent(x, state, kernels, biases, forget_bias, dropout=1.0)[0], y)
    alone, _ = fused(torch.zeros_like(x), (state[0][1:], state[1][1:]), kernels[1:], biases[1:], forget_bias)
    torch.testing.assert_close(y, alone)
    torch.testing.assert_close(y, written_out)
    plain, kept = fused(x, state, kernels, biases, forget_bias)
    assert not torch.allclose(y, plain) and not torch.allclose(after[0], kept[0])


def test_a_fifth_is_dropped_and_the_rest_scaled_up() -> None:
    torch.manual_seed(0)
    x = torch.ones(200, 500)
    found = dropped(x, 0.2)
    assert abs(float((found == 0).float().mean()) - 0.2) < 0.005
    torch.testing.assert_close(found[found > 0].unique(), torch.tensor([1.25]))
    assert dropped(x, 0.0) is x


def test_dropout_acts_in_training_only() -> None:
    config = dataclasses.replace(MODELS["nmt_tiny"].config, dropout=0.2)
    model = describe("nmt_tiny", config, MODELS["nmt_tiny"].optimizer)
    module, plain = Nmt(model), Nmt(MODELS["nmt_tiny"])
    values = dict(initial_values(model, 0, torch.device("cpu"), torch.float32))
    for one in (module, plain):
        for variable, value in values.items():
            one.get_parameter(variable.name).data.copy_(value)
    lengths = torch.tensor([4, 4])
    words = torch.arange(8).view(2, 4)
    batch = {"source": words, "target_input": words, "target_output": words, "source_length": lengths, "target_length": lengths}
    with torch.no_grad():
        first, second = float(module(batch)), float(module(batch))
        assert first != second
        module.eval()
        assert float(module(batch)) == float(module(batch)) == float(plain(batch)) != first


def test_the_documents_share() -> None:
    assert find_model("nmt", "nmt004").config.dropout == 0.2
    assert [name for name, model in MODELS.items() if model.config.dropout] == ["nmt004"]


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


@pytest.fixture(scope="module")
def in_tensorflow() -> dict[str, Any]:
    """What TensorFlow's model does, from a process of its own."""
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")
    root = Path(__file__).parents[2]
    environment = os.environ | {
        "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    command = [sys.executable, "-m", "tests.workloads.nmt_dropout_tensorflow"]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def test_tensorflow_drops_the_documents_share(in_tensorflow: dict[str, Any]) -> None:
    assert abs(in_tensorflow["share"] - 0.2) < 0.005 and in_tensorflow["kept"] == [0, 1.25] and in_tensorflow["nothing"]
    assert not in_tensorflow["two_operations_agree"], "replicas would share their masks"
    without, with_dropout = in_tensorflow["losses"]
    assert without[0] == without[1] and len({without[0], *with_dropout}) == 3


@pytest.mark.parametrize("way", ["fused", "stepwise"])
def test_tensorflow_drops_every_cells_input_at_every_position_anew(in_tensorflow: dict[str, Any], way: str) -> None:
    found = in_tensorflow["masks"][way]
    # 1 - 0.8^2 of 40,000 elements, five standard deviations
    assert abs(found["zeros"] - 0.36) < 0.012 and found["positions"] == 40
    assert in_tensorflow["only_inputs"][way] < 1e-6, "of its state nothing is dropped"


def test_the_documents_model_exists_in_tensorflow(in_tensorflow: dict[str, Any]) -> None:
    model = find_model("nmt", "nmt004")
    cells = sum(variable.name.endswith("_kernel") for variable in model.variables)
    assert cells == 8 and in_tensorflow["full_size"] == {"drawn": cells, "gradients": len(model.variables)}
