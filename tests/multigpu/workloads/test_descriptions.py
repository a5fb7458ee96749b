"""What descriptions promise: the documents' counts, and modules that hold exactly the described
variables.
"""

import itertools
from math import prod
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from multigpu.spec.model import LSTM_PASSES, Model, Optimizer
from multigpu.workloads import find_model, import_part, workloads
from multigpu.workloads.cnn import layers as L
from multigpu.workloads.cnn import network as net
from multigpu.workloads.cnn.description import FOR_CIFAR, FOR_IMAGENET
from multigpu.workloads.nmt.description import (
    NmtConfig,
    forward_flops_per_word,
    memory_passes_per_word,
)
from multigpu.workloads.stacks.description import StackConfig, describe
from tests.further import but
from tests.refusals import refused

EVERY_MODEL = [model for workload in workloads().values() for model in workload.models.values()]


def module_of(model: Model, *layout: str) -> nn.Module:
    return import_part(model.workload, "torch").build(model, *layout)


# name, trainable parameters, pixels a side, default batch of one GPU; multiply-adds that are
# published, and how near ours are
IMAGES = [
    ("trivial", 4_263_877, 227, 32, None, 0),
    ("lenet", 2_173_353, 28, 32, None, 0),
    ("alexnet", 61_842_345, 227, 512, None, 0),
    ("overfeat", 145_924_969, 231, 32, 2.81e9, 0.01),
    ("googlenet", 6_999_577, 224, 32, None, 0),
    ("vgg11", 132_867_433, 224, 64, 7.61e9, 0.01),
    ("vgg16", 138_361_641, 224, 64, 15.47e9, 0.01),
    ("vgg19", 143_671_337, 224, 64, 19.63e9, 0.01),
    ("inception3", 23_819_401, 299, 32, 5.71e9, 0.01),
    ("inception4", 42_649_769, 299, 32, 24.584e9 / 2, 0.01),
    ("resnet50_v1", 25_559_081, 224, 64, 3.8e9, 0.02),
    ("resnet50_v1.5", 25_559_081, 224, 64, 4.09e9, 0.01),
    ("resnet101_v1", 44_551_209, 224, 32, 7.6e9, 0.02),
    ("resnet101_v1.5", 44_551_209, 224, 32, 7.80e9, 0.01),
    ("resnet152_v1", 60_194_857, 224, 32, 11.3e9, 0.02),
    ("resnet152_v1.5", 60_194_857, 224, 32, 11.51e9, 0.01),
    ("alexnet_cifar", 1_756_619, 32, 128, None, 0),
    ("resnet20", 269_787, 32, 128, 40.55e6, 0.001),
    ("resnet32", 464_219, 32, 128, None, 0),
    ("resnet44", 658_651, 32, 128, None, 0),
    ("resnet56", 853_083, 32, 128, 125.49e6, 0.01),
    ("resnet110", 1_728_027, 32, 128, 252.89e6, 0.01),
    ("densenet40_k12", 1_021_083, 32, 64, None, 0),
    ("densenet100_k12", 6_983_163, 32, 64, None, 0),
]
"""Multiply-adds of the ResNets v1 are those of He et al. (arXiv:1512.03385, table 1); of Overfeat's
fast model of Sermanet et al. (arXiv:1312.6229: 145 million parameters and 2,810 million
connections); of Inception-v4 OpenVINO's (24.584 GFLOPs; timm's card of
inception_v4.tf_in1k: 12.3 GMACs); of ResNet-56 and 110 of Lin et al. (HRank, arXiv:2002.10179,
    before pruning); of ResNet-20 by hand; all
others stand on torchvision's pages of weights as "GFLOPS".
"""


@pytest.mark.parametrize(("name", "parameters", "size", "batch", "published", "near"), IMAGES)
def test_image_models_equal_the_documents(
    name: str, parameters: int, size: int, batch: int, published: float | None, near: float
) -> None:
    model = find_model("cnn", name)
    config = model.config
    assert model.parameters == parameters
    assert (config.image_size, config.default_batch, config.channels) == (size, batch, 3)
    assert config.classes == (11 if size == 32 else 1001)
    assert published is None or model.forward_flops_per_unit == pytest.approx(
        2 * published, rel=near
    )


def test_the_documents_stack_has_42_million_parameters() -> None:
    model = find_model("stacks", "mlp42m")
    sizes = [440, 2560, 2560, 2560, 2560, 8192]
    assert model.parameters == sum(a * b + b for a, b in itertools.pairwise(sizes)) == 41_777_152
    assert model.forward_flops_per_unit == 2 * sum(a * b for a, b in itertools.pairwise(sizes))
    flops = [
        find_model("stacks", f"stack_{kind}").forward_flops_per_unit
        for kind in ("dense", "convolution", "recurrent")
    ]
    assert max(flops) / min(flops) < 1.15, "the three kinds are of like size"
    refused(
        "odd has 3 layers of kind 'dense': they are cut in pairs",
        describe,
        "odd",
        StackConfig("dense", 4, 4, 3, 2),
        model.optimizer,
    )


def test_every_image_model_stands_in_the_table() -> None:
    assert {*FOR_IMAGENET, *FOR_CIFAR} == {name for name, *_ in IMAGES}


def test_nmt000_has_nineteen_variables_in_order() -> None:
    variables = find_model("nmt", "nmt000").variables
    cells = [f"encoder_{way}_{i}" for way in ("forward", "backward") for i in range(2)] + [
        f"decoder_{i}" for i in range(4)
    ]
    parts = [f"{cell}_{part}" for cell in cells for part in ("kernel", "bias")]
    assert [v.name for v in variables] == [
        "source_embedding",
        "target_embedding",
        *parts,
        "projection",
    ]
    assert {v.shape for v in variables if v.kind == "kernel"} == {(2, 2048, 512)}
    assert [v.name for v in variables if v.kind == "embedding"] == [
        "source_embedding",
        "target_embedding",
    ]
    assert variables[-1].shape == (512, 50_000)


@pytest.mark.parametrize(
    ("model", "layout"),
    [(m, None) for m in EVERY_MODEL]
    + [(m, "channels_last") for m in EVERY_MODEL if m.unit == "images"],
    ids=lambda value: getattr(value, "name", value),
)
def test_modules_hold_the_described_variables(model: Model, layout: str | None) -> None:
    with torch.device("meta"):
        module = module_of(model, *([layout] if layout else []))
    assert [(name, tuple(p.shape)) for name, p in module.named_parameters()] == [
        (v.name, v.shape) for v in model.variables
    ]
    assert all(parameter.is_meta for parameter in module.parameters())
    assert all(buffer.is_floating_point() for buffer in module.buffers())


def test_training_000_takes_127_million_operations_a_word() -> None:
    """anchors.md: 127.1 MFLOP a word, training, sentences of equal lengths; and the documents'
    parameters.
    """
    model = find_model("nmt", "nmt000")
    assert (model.parameters, find_model("nmt", "nmt004").parameters) == (93_593_600, 179_417_088)
    assert 3 * model.forward_flops_per_unit == pytest.approx(127.1e6, rel=5e-4)
    # by hand: a source word passes 4 cells, a target word 4 cells and the projection
    cells, projection = 4 * 2 * 1024 * 2048, 2 * 512 * 50_000
    assert model.forward_flops_per_unit == (cells + cells + projection) / 2
    assert [forward_flops_per_word(model.config, share) for share in (1.0, 0.0)] == [
        cells,
        cells + projection,
    ]


@pytest.mark.parametrize(
    "model", [*FOR_IMAGENET.values(), *FOR_CIFAR.values()], ids=lambda model: model.name
)
def test_operations_equal_those_that_pytorch_counts(model: Model) -> None:
    """On the meta device, at full size; the sums of response normalisation, which PyTorch's counter
    sees, are no part of ours.
    """
    layers = net.steps(model.config.network, model.config.image_shape)
    with torch.device("meta"):
        module = module_of(model, "channels_last")
        batch = {
            "images": torch.empty(2, *model.config.image_shape),
            "labels": torch.zeros(2, dtype=torch.int64),
        }
    with FlopCounterMode(display=False) as counter:
        module(batch)
    sums = sum(
        2 * shape[0] ** 2 * shape[1] * shape[2]
        for _, layer, shape in layers
        if isinstance(layer, L.LocalResponseNorm)
    )
    assert counter.get_total_flops() == 2 * (model.forward_flops_per_unit + sums)


def test_memory_passes_by_hand() -> None:
    """Numbers that a step reads or writes a unit, from the kernels that must run."""
    config = NmtConfig(units=8, source_vocabulary=50, target_vocabulary=30)
    # two cells of either encoder stack, four of the decoder; 4 for the look-up, 3 at the
    # projection's foot, logits five times
    source, target = 8 * (4 + 4 * LSTM_PASSES), 8 * (4 + 4 * LSTM_PASSES + 3) + 5 * 30
    assert (
        memory_passes_per_word(config, 1.0) == source
        and memory_passes_per_word(config) == (source + target) / 2
    )
    block = L.Residual(
        branch=(
            L.Convolution(3, 1, "same", 4),
            L.BatchNorm(),
            L.Relu(),
            L.Convolution(3, 1, "same", 2),
            L.BatchNorm(),
        )
    )
    size = 5 * 5
    whole = net.trace(
        (block, L.Relu(), L.AveragePool(5, 1), L.Flatten(), L.Dropout(0.5)), (2, 5, 5)
    )
    products, norms, pooled = 2 * 3 * (2 + 4) * size, 8 * (4 + 2) * size, 2 * (2 * size + 2)
    assert whole.passes == products + norms + 2 * 2 * size + pooled + 2 * (2 + 2)
    # the gradient of the image is nobody's: the first convolution touches both ends twice
    tiny = find_model("cnn", "alexnet_cifar_tiny")
    first = next(layer for layer in tiny.config.network if isinstance(layer, L.Convolution))
    ends = prod(tiny.config.image_shape) + prod(first.trace(tiny.config.image_shape, "").output)
    assert (
        tiny.memory_passes_per_unit
        == net.trace(tiny.config.network, tiny.config.image_shape).passes - ends
    )
    # one layer of 2 features from 3, then 2 of 2, a head of 5 classes
    stack = describe(
        "s", StackConfig("dense", inputs=3, width=2, layers=2, classes=5), Optimizer("sgd", 0.1)
    )
    assert stack.memory_passes_per_unit == 2 * (3 + 2) + 3 * (2 + 2) + 3 * (2 + 5)


@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
@pytest.mark.parametrize("name", but([*FOR_IMAGENET, *FOR_CIFAR][::2], [*FOR_IMAGENET, *FOR_CIFAR]))
def test_image_models_at_full_size_trace_in_tensorflow(name: str, layout: str, tf: Any) -> None:
    """With every parameter and no other. Tracing runs nothing, so what only a GPU can execute is
    seen too.
    """
    from multigpu.workloads.cnn.tensorflow import build
    from multigpu.workloads.tensorflow_module import Form

    model = find_model("cnn", name)
    form = Form(True, tf.float32, tf.bfloat16, True, False, layout, "fused")
    cnn = build(model, form)
    with tf.Graph().as_default() as graph:
        values = {}
        for variable in model.variables:
            order = cnn.stored(variable)
            shape = [variable.shape[axis] for axis in order] if order else variable.shape
            # takes no memory, whatever its size
            values[variable.name] = tf.compat.v1.placeholder(tf.float32, shape)
        statistics = {key: tf.fill(shape, start) for key, (shape, start) in cnn.statistics.items()}
        batch = {
            "images": tf.zeros((2, *model.config.image_shape)),
            "labels": tf.zeros(2, tf.int64),
        }
        loss, updated = cnn.loss(values, batch, {}, statistics)
        kinds = [operation.type for operation in graph.get_operations()]
        unused = [name for name, value in values.items() if not value.consumers()]
    norms = [
        v.name.removesuffix(".bias")
        for v in model.variables
        if v.kind == "norm" and v.name.endswith(".bias")
    ]
    banded = sum(isinstance(layer, L.LocalResponseNorm) for layer in model.config.network)
    assert (loss.shape.as_list(), loss.dtype) == ([], tf.float32)
    assert sorted(updated) == sorted(
        f"{norm}.{kind}" for norm in norms for kind in ("mean", "variance")
    )
    assert all(updated[key].shape == statistics[key].shape for key in statistics)
    assert kinds.count("Conv2D") == sum(v.kind == "convolution" for v in model.variables) + banded
    assert not unused and not {"VarHandleOp", "VariableV2"} & set(kinds), "variables of its own"
    assert sum(value.shape.num_elements() for value in values.values()) == model.parameters
