"""What descriptions promise: the documents' counts, and modules that hold exactly the described variables."""

from __future__ import annotations

import importlib
from collections import Counter

import pytest
import torch

from multigpu.workloads import find_model, workloads
from multigpu.workloads.base import Model
from multigpu.workloads.nmt.description import NmtConfig, forward_flops_per_word

EVERY_MODEL = [model for workload in workloads().values() for model in workload.models.values()]


@pytest.mark.parametrize(
    ("workload", "name", "parameters"),
    [
        ("nmt", "nmt000", 93_593_600),
        ("nmt", "nmt004", 179_417_088),
        ("cnn", "resnet50_v1", 25_559_081),
        ("cnn", "resnet50_v1.5", 25_559_081),
        ("cnn", "resnet20", 269_787),
    ],
)
def test_parameters_equal_the_documents(workload: str, name: str, parameters: int) -> None:
    assert find_model(workload, name).parameters == parameters


def test_sizes_in_bytes_equal_the_documents() -> None:
    assert find_model("nmt", "nmt000").parameter_bytes / 2**20 == pytest.approx(357.0, abs=0.05)
    assert find_model("nmt", "nmt004").parameter_bytes / 1e6 == pytest.approx(717.67, abs=0.005)


def test_nmt000_has_nineteen_variables_in_order() -> None:
    variables = find_model("nmt", "nmt000").variables
    cells = [f"encoder_{way}_{i}" for way in ("forward", "backward") for i in range(2)] + [f"decoder_{i}" for i in range(4)]
    parts = [f"{cell}_{part}" for cell in cells for part in ("kernel", "bias")]
    assert [v.name for v in variables] == ["source_embedding", "target_embedding", *parts, "projection"]
    assert len(variables) == 19
    assert {v.shape for v in variables if v.kind == "kernel"} == {(2, 2048, 512)}
    assert [v.name for v in variables if v.kind == "embedding"] == ["source_embedding", "target_embedding"]
    assert variables[-1].shape == (512, 50_000)


@pytest.mark.parametrize(
    ("model", "layout"),
    [(m, None) for m in EVERY_MODEL] + [(m, "channels_last") for m in EVERY_MODEL if m.unit == "images"],
    ids=lambda value: getattr(value, "name", value),
)
def test_modules_hold_the_described_variables(model: Model, layout: str | None) -> None:
    with torch.device("meta"):
        module = importlib.import_module(f"multigpu.workloads.{model.workload}.torch").build(model, layout)
    assert [(name, tuple(p.shape)) for name, p in module.named_parameters()] == [(v.name, v.shape) for v in model.variables]
    assert all(parameter.is_meta for parameter in module.parameters())
    assert all(buffer.is_floating_point() for buffer in module.buffers())


@pytest.mark.parametrize("model", EVERY_MODEL, ids=lambda model: model.name)
def test_names_are_unique_and_models_know_themselves(model: Model) -> None:
    assert max(Counter(v.name for v in model.variables).values()) == 1
    assert find_model(model.workload, model.name) is model


def test_training_000_takes_127_million_operations_a_word() -> None:
    """anchors.md: 127.1 MFLOP a word, training, sentences of equal lengths."""
    model = find_model("nmt", "nmt000")
    assert 3 * model.forward_flops_per_unit == pytest.approx(127.1e6, rel=5e-4)
    # by hand: a source word passes 4 cells, a target word 4 cells and the projection
    cells, projection = 4 * 2 * 1024 * 2048, 2 * 512 * 50_000
    assert model.forward_flops_per_unit == (cells + cells + projection) / 2


def test_operations_follow_the_share_of_source_words() -> None:
    config = NmtConfig(units=8, source_vocabulary=50, target_vocabulary=50)
    source, target = forward_flops_per_word(config, 1.0), forward_flops_per_word(config, 0.0)
    assert (source, target) == (4 * 16 * 64, 4 * 16 * 64 + 2 * 8 * 50)
    assert forward_flops_per_word(config) == (source + target) / 2


@pytest.mark.parametrize(("name", "multiply_adds"), [("resnet50_v1", 3.858e9), ("resnet50_v1.5", 4.089e9), ("resnet20", 40.55e6)])
def test_operations_of_residual_networks(name: str, multiply_adds: float) -> None:
    """The paper says 3.8e9 for ResNet-50 (v1); the 3x3 stride of v1.5 is known to cost 4.1e9."""
    assert find_model("cnn", name).forward_flops_per_unit == pytest.approx(2 * multiply_adds, rel=1e-3)


def test_optimisers_are_the_documents() -> None:
    assert find_model("nmt", "nmt000").optimizer.name == "adam" and find_model("nmt", "nmt000").optimizer.rate == 1e-3
    assert find_model("nmt", "nmt004").optimizer.rate == 1.0 and find_model("nmt", "nmt004").optimizer.slots == 0
    cifar = find_model("cnn", "resnet20").optimizer
    assert (cifar.rate, cifar.momentum, cifar.weight_decay, cifar.slots) == (0.1, 0.9, 4e-5, 1)


def test_images_are_described() -> None:
    config = find_model("cnn", "resnet50_v1").config
    assert (config.image_size, config.channels, config.classes) == (224, 3, 1001)
    config = find_model("cnn", "resnet20").config
    assert (config.image_size, config.channels, config.classes) == (32, 3, 11)


@pytest.mark.parametrize("workload", ["nmt", "cnn"])
def test_unknown_models_are_refused_by_name(workload: str) -> None:
    with pytest.raises(ValueError, match="nonesuch"):
        find_model(workload, "nonesuch")
