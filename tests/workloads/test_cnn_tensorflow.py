"""Image models at full size in TensorFlow: they trace in both layouts, with the description's convolutions, statistics and parameters."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from multigpu.workloads import find_model
from multigpu.workloads.cnn.description import FOR_CIFAR, FOR_IMAGENET
from multigpu.workloads.cnn.layers import LocalResponseNorm

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"),
    pytest.mark.timeout(240),
]

ROOT = Path(__file__).parents[2]
NAMES = [model.name for model in (*FOR_IMAGENET, *FOR_CIFAR)]
LAYOUTS = ("channels_first", "channels_last")


@pytest.fixture(scope="module")
def traced() -> dict[str, dict[str, dict[str, object]]]:
    """By model and layout, from a process of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    command = [sys.executable, "-m", "tests.workloads.trace_cnn", *NAMES]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_full_size_models_trace(name: str, layout: str, traced: dict[str, dict[str, dict[str, object]]]) -> None:
    model, found = find_model("cnn", name), traced[name][layout]
    norms = [v.name.removesuffix(".bias") for v in model.variables if v.kind == "norm" and v.name.endswith(".bias")]
    banded = sum(isinstance(layer, LocalResponseNorm) for layer in model.config.network)
    assert (found["loss"], found["type"], found["same_shapes"]) == ([], "float32", True)
    assert found["statistics"] == sorted(f"{norm}.{kind}" for norm in norms for kind in ("mean", "variance"))
    assert found["convolutions"] == sum(v.kind == "convolution" for v in model.variables) + banded


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_depends_on_every_parameter_of_the_description_and_on_no_other(
    name: str, traced: dict[str, dict[str, dict[str, object]]]
) -> None:
    """Elements of the variables behind the loss, in both layouts; `test_descriptions.py` has the counts themselves."""
    found = [[traced[name][layout][key] for key in ("unread", "made", "parameters")] for layout in LAYOUTS]
    assert found == [[[], 0, find_model("cnn", name).parameters]] * 2


def test_all_models_of_the_document_are_traced() -> None:
    assert len(NAMES) == len(set(NAMES)) == 24
