"""The documents' counts of parameters, and what the description of the two towers promises."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from multigpu.spec.model import Model, Variable
from multigpu.workloads import find_model
from multigpu.workloads.cnn import densenet
from multigpu.workloads.cnn import network as net
from multigpu.workloads.cnn.description import FOR_CIFAR
from multigpu_study.published import load_published
from multigpu_study.workloads.deepconn import description as deepconn
from multigpu_study.workloads.deepconn.torch import build
from tests.refusals import refused


def counted_by_the_document(variables: tuple[Variable, ...]) -> int:
    """Trainable parameters, running statistics (a mean and a variance for each shift of batch norm)
    and the step counter.
    """
    shifts = [v for v in variables if v.kind == "norm" and v.name.endswith(".bias")]
    return sum(v.elements for v in variables) + 2 * sum(v.elements for v in shifts) + 1


def test_what_document_001_counts_for_cifar() -> None:
    """Its other counts follow from ours; those of the DenseNets from transitions that wrongly pass
    on 24 channels.
    """
    published = load_published("001_cifar10").set_index("model")["parameters"]
    for model in FOR_CIFAR.values():
        if not model.name.startswith("densenet"):
            assert (
                counted_by_the_document(model.variables)
                == published[model.name.removesuffix("_cifar")]
            )
    for name, layers, narrowed in (
        ("densenet40_k12", 12, 357_491),
        ("densenet100_k12", 32, 2_217_411),
    ):
        whole = net.trace(densenet.cifar(layers, 12, transition=24), (3, 32, 32))
        assert sum(v.elements for v in whole.variables) == narrowed
        assert counted_by_the_document(whole.variables) == published[name]


def test_the_two_towers_are_the_documents() -> None:
    """By hand: 800 words, 798 windows of 3, 797 maxima of 2, 10 filters: 7,970."""
    model = find_model("deepconn", "deepconn")
    config = model.config
    assert (
        config.embedding,
        config.filters,
        config.width,
        config.pool,
        config.dense,
        config.length,
    ) == (50, 10, 3, 2, 64, 800)
    assert config.flat == 797 * 10 == 7970
    towers = [
        ("conv_kernel", (10, 50, 3)),
        ("conv_bias", (10,)),
        ("dense_kernel", (64, 7970)),
        ("dense_bias", (64,)),
    ]
    expected = [("word_embeddings", (80_000, 50))] + [
        (f"{side}_{name}", shape) for side in ("user", "item") for name, shape in towers
    ]
    assert [(v.name, v.shape) for v in model.variables] == expected
    tower = 3 * 50 * 10 + 10 + 7970 * 64 + 64
    assert model.parameters == 4_000_000 + 2 * tower == 5_023_308
    assert model.forward_flops_per_unit == 2 * 2 * (798 * 3 * 50 * 10 + 7970 * 64)
    assert (model.optimizer.name, model.optimizer.rate, model.unit) == ("adam", 1e-4, "reviews")
    assert deepconn.epoch_steps(32) == 824
    short = deepconn.DeepconnConfig(50, length=3)
    refused(
        "reads 3 words: its convolution and maximum need at least 4",
        deepconn.describe,
        "short",
        short,
        model.optimizer,
    )


def test_operations_equal_those_that_pytorch_counts() -> None:
    """On the meta device, at full size."""
    model: Model = find_model("deepconn", "deepconn")
    with torch.device("meta"):
        module = build(model)
        batch = {
            "words": torch.zeros(2, 2 * model.config.length, dtype=torch.int64),
            "ratings": torch.zeros(2),
        }
    with FlopCounterMode(display=False) as counter:
        module(batch)
    assert counter.get_total_flops() == 2 * model.forward_flops_per_unit
