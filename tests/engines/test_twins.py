"""Every workload's TensorFlow twin: with PyTorch's weights and batch, the same loss and the same gradients."""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from multigpu.run import Run
from multigpu.workloads import find_model
from tests.workloads.helpers import filled, gradients, rated, sentences

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"),
    pytest.mark.timeout(240),
]

ROOT = Path(__file__).parents[2]
EVEN, RAGGED = ([4, 4, 4], [5, 5, 5]), ([1, 4, 3], [2, 5, 4])
FAMILIES = tuple(
    f"{family}_tiny" for family in ("alexnet", "alexnet_cifar", "overfeat", "vgg", "googlenet", "inception3", "inception4", "densenet")
)
CASES: dict[str, dict[str, Any]] = {
    # float64 where TensorFlow's kernels have it; its CPU kernel for whole sequences knows float32 only
    "nmt stepwise, equal lengths": {"model": "nmt_tiny", "recurrence": "stepwise", "lengths": EVEN, "precision": "fp64"},
    "nmt stepwise, ragged": {"model": "nmt_tiny", "recurrence": "stepwise", "lengths": RAGGED, "precision": "fp64"},
    "nmt fused, equal lengths": {"model": "nmt_tiny", "recurrence": "fused", "lengths": EVEN, "precision": "fp32"},
    "nmt fused, ragged": {"model": "nmt_tiny", "recurrence": "fused", "lengths": RAGGED, "precision": "fp32"},
    "resnet, every kind of block": {"model": "resnet_tiny", "precision": "fp64"},
    "resnet, fused batch norm": {"model": "resnet_tiny", "precision": "fp32"},
    "resnet for CIFAR": {"model": "resnet_small", "precision": "fp64"},
    # one of every other family; dropout, which no twin can share, is left out of the tiny models
    **{model: {"model": model, "precision": "fp64"} for model in FAMILIES},
    **{model: {"model": model, "precision": "fp64"} for model in ("deepconn_tiny", "deepconn_fm_tiny")},
}
TOLERANCE = {"fp64": 1e-6, "fp32": 1e-4}


def make(fields: dict[str, Any]) -> tuple[dict[str, Any], float, dict[str, np.ndarray]]:
    """What TensorFlow is asked, and PyTorch's loss and gradients, float64."""
    words, rows = fields["model"].startswith("nmt"), fields["model"].startswith("deepconn")
    model = find_model("nmt" if words else "deepconn" if rows else "cnn", fields["model"])
    module = filled(model)
    if words:
        batch = sentences(model, *fields["lengths"])
    elif rows:
        batch = rated(model, 5)
    else:
        generator = torch.Generator().manual_seed(1)
        images = torch.randn(5, *model.config.image_shape, generator=generator, dtype=torch.float64)
        batch = {"images": images, "labels": torch.randint(model.config.classes, (5,), generator=generator)}
    loss = module(batch)
    found = dict(zip((v.name for v in model.variables), gradients(module, loss), strict=True))
    run = Run(
        workload=model.workload,
        model=model.name,
        placement="independent",
        framework="tensorflow",
        processes="one",
        device_type="cpu",
        batch_size=1,
        recurrence=fields.get("recurrence"),
        execution="graph",
    )
    case = {
        "run": run,
        "even": fields.get("lengths") == EVEN,
        "precision": fields["precision"],
        "values": {name: value.detach().contiguous().numpy() for name, value in module.named_parameters()},
        "batch": {name: array.numpy() for name, array in batch.items()},
    }
    return case, float(loss.detach()), {name: value.numpy() for name, value in found.items()}


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory):
    """By case: PyTorch's and TensorFlow's loss and gradients; TensorFlow runs in a process of its own."""
    file = tmp_path_factory.mktemp("twins") / "cases.pickle"
    made = {name: make(fields) for name, fields in CASES.items()}
    file.write_bytes(pickle.dumps([case for case, _, _ in made.values()]))
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    subprocess.run([sys.executable, "-m", "tests.engines.twin", str(file)], env=environment, check=True)
    answers = pickle.loads(file.with_suffix(".out").read_bytes())
    return {name: (loss, found, answer) for (name, (_, loss, found)), answer in zip(made.items(), answers, strict=True)}


@pytest.mark.parametrize("name", CASES)
def test_twins_agree(name: str, twins) -> None:
    loss, expected, answer = twins[name]
    tolerance = TOLERANCE[CASES[name]["precision"]]
    assert answer["loss"] == pytest.approx(loss, rel=tolerance)
    difference = sum(float(np.square(answer["gradients"][key] - value).sum()) for key, value in expected.items()) ** 0.5
    norm = sum(float(np.square(value).sum()) for value in expected.values()) ** 0.5
    assert difference < tolerance * norm
    assert all(np.abs(value).sum() > 0 for value in answer["gradients"].values()), "every variable has a gradient"
