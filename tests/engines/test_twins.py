"""Every workload's TensorFlow twin: with PyTorch's weights and batch, the same loss and the same gradients."""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from multigpu.run import Run
from multigpu.workloads import workloads
from multigpu.workloads.base import Model
from tests.workloads.helpers import filled, gradients, labelled, rated, sentences

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"),
    pytest.mark.timeout(240),
]

ROOT = Path(__file__).parents[2]
EVEN, RAGGED = ([4, 4, 4], [5, 5, 5]), ([1, 4, 3], [2, 5, 4])
FAMILIES = tuple(
    f"{family}_tiny" for family in ("alexnet", "alexnet_cifar", "overfeat", "vgg", "googlenet", "inception3", "inception4", "densenet")
)
STACKS = tuple(workloads()["stacks"].models)
"""Every one: each layer is written once, and none has dropout."""
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
    **{model: {"model": model, "precision": "fp64"} for model in STACKS},
    "stack_recurrent_tiny fused": {"model": "stack_recurrent_tiny", "recurrence": "fused", "precision": "fp32"},
    # as on GPUs: what is handed to cuDNN's recurrence, its manual written out; and images with channels first
    "nmt as on GPUs": {"model": "nmt_tiny", "recurrence": "fused", "lengths": EVEN, "precision": "fp64", "as_on_gpus": True},
    "stack_recurrent_tiny as on GPUs": {"model": "stack_recurrent_tiny", "recurrence": "fused", "precision": "fp64", "as_on_gpus": True},
    "stack_convolution_tiny as on GPUs": {"model": "stack_convolution_tiny", "precision": "fp32", "as_on_gpus": True},
}
TOLERANCE = {"fp64": 1e-6, "fp32": 1e-4}


def described(name: str) -> Model:
    """The model of this name, whatever its workload."""
    return next(workload.models[name] for workload in workloads().values() if name in workload.models)


def make(fields: dict[str, Any]) -> tuple[dict[str, Any], float, dict[str, np.ndarray]]:
    """What TensorFlow is asked, and PyTorch's loss and gradients, float64."""
    model = described(fields["model"])
    module = filled(model)
    if model.unit == "words":
        batch = sentences(model, *fields["lengths"])
    elif model.unit == "reviews":
        batch = rated(model, 5)
    elif model.unit == "samples":
        batch = labelled(model, 3)
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
        "as_on_gpus": fields.get("as_on_gpus", False),
        "values": {name: value.detach().contiguous().numpy() for name, value in module.named_parameters()},
        "batch": {name: array.numpy() for name, array in batch.items()},
    }
    return case, float(loss.detach()), {name: value.numpy() for name, value in found.items()}


@pytest.fixture(scope="module")
def twins():
    """By case: PyTorch's and TensorFlow's loss and gradients; TensorFlow runs in a process of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    expected = {}
    with tempfile.TemporaryDirectory() as folder:  # which pytest's own would outlast: a case may have 42 million variables in float64
        file = Path(folder) / "cases.pickle"
        with open(file, "wb") as cases:
            for name, fields in CASES.items():
                case, *expected[name] = make(fields)
                pickle.dump(case, cases, 5)
        subprocess.run([sys.executable, "-m", "tests.engines.twin", str(file)], env=environment, check=True)
        with open(file.with_suffix(".out"), "rb") as answers:
            return {name: (*own, pickle.load(answers)) for name, own in expected.items()}


@pytest.mark.parametrize("name", CASES)
def test_twins_agree(name: str, twins) -> None:
    loss, expected, answer = twins[name]
    if "lacks" in answer:
        pytest.skip(answer["lacks"])
    tolerance = TOLERANCE[CASES[name]["precision"]]
    assert answer["loss"] == pytest.approx(loss, rel=tolerance)
    difference = sum(float(np.square(answer["gradients"][key] - value).sum()) for key, value in expected.items()) ** 0.5
    norm = sum(float(np.square(value).sum()) for value in expected.values()) ** 0.5
    assert difference < tolerance * norm
    assert {key: value.shape for key, value in answer["gradients"].items()} == {key: value.shape for key, value in expected.items()}
    assert sum(value.size for value in answer["gradients"].values()) == described(CASES[name]["model"]).parameters
    assert all(np.abs(value).sum() > 0 for value in answer["gradients"].values()), "every variable has a gradient"


def test_every_workload_has_a_twin() -> None:
    assert {described(fields["model"]).workload for fields in CASES.values()} == {
        name for name, one in workloads().items() if not one.checked
    }
