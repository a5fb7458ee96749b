"""The layer language and its modules against arithmetic written out and against explicit
padding.
"""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multigpu.spec.model import Model
from multigpu.workloads import find_model, workloads
from multigpu.workloads.cnn import layers as L
from multigpu.workloads.cnn import network as net
from multigpu.workloads.cnn import torch as torch_cnn
from multigpu.workloads.cnn.description import SMALL
from multigpu.workloads.cnn.torch import build, parts
from tests.multigpu.workloads.helpers import filled, gradients
from tests.refusals import refused

TINY = find_model("cnn", "resnet_tiny")
FAMILIES = [model for model in SMALL.values() if model.name.endswith("_tiny")]


def images(model: Model = TINY, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(model.config.classes, (4,), generator=generator)
    return {
        "images": torch.randn(4, *model.config.image_shape, generator=generator, dtype=dtype),
        "labels": labels,
    }


def small(network: net.Network, shape: net.Shape) -> nn.Sequential:
    """A network's modules with random values, in float64."""
    module = nn.Sequential(parts(network, shape)).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return module


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ((L.Residual((L.Convolution(1, 1, net.NO_PADS, 3),)),), "cannot be added"),
        ((L.Concat(((), (L.MaxPool(2, 2),))),), "cannot be concatenated"),
        ((L.Dense(3),), "flatten it first"),
        ((L.MaxPool(9),), "does not fit"),
        ((L.MaxPool((1, 9)),), "a 1 x 9 max_pool does not fit a padded image of 8 x 8"),
        ((L.Dropout(0.0),), "leave the layer out"),
    ],
)
def test_what_does_not_fit_is_refused(network: net.Network, message: str) -> None:
    refused(message, net.trace, network, (2, 8, 8))
    refused("NHWC", build, TINY, "NHWC")


WINDOWS = [  # kernel, stride, pads, height and width
    (3, 2, "same", (8, 8)),
    (3, 2, "same", (7, 9)),
    (2, 1, "same", (5, 5)),
    (3, 2, (1, 1, 1, 1), (8, 8)),
    (3, 2, (1, 0, 1, 0), (8, 8)),
    (5, 3, (1, 4, 0, 2), (9, 11)),
    (1, 2, "same", (8, 7)),
    (2, 3, (0, 3, 0, 3), (6, 6)),  # the last window lies outside the image
    ((1, 7), 1, "same", (5, 6)),
    ((3, 5), 2, "same", (8, 9)),
    ((2, 3), 2, (0, 0, 0, 0), (8, 9)),
]


@pytest.mark.parametrize(("kernel", "stride", "pads", "size"), WINDOWS)
def test_windows_are_those_of_an_explicitly_padded_image(
    kernel: Any, stride: int, pads: net.Pads, size: tuple[int, int]
) -> None:
    """Of which average pooling leaves the padding out of the mean."""
    pool, shape, x = (
        L.MaxPool(kernel, stride, pads),
        (3, *size),
        torch.randn(2, 3, *size, dtype=torch.float64),
    )
    top, bottom, left, right = pool.pads_for(shape)
    sides = (left, right, top, bottom)
    expected = F.max_pool2d(F.pad(x, sides, value=-torch.inf), kernel, stride)
    assert torch.equal(small((pool,), shape)(x), expected)
    assert expected.shape[1:] == net.trace((pool,), shape).output
    convolution = L.Convolution(kernel, stride, pads, 4, bias=True)
    module = small((convolution,), shape)
    expected = F.conv2d(F.pad(x, sides), *module.parameters(), stride)
    assert (module(x) - expected).norm() <= 1e-12 * expected.norm()
    assert expected.shape[1:] == net.trace((convolution,), shape).output
    try:
        module = small((L.AveragePool(kernel, stride, pads),), shape)
    except NotImplementedError as error:
        assert str(pool.pads_for(shape)) in str(error)
        return
    sums, counts = (F.avg_pool2d(F.pad(y, sides), kernel, stride) for y in (x, torch.ones_like(x)))
    assert torch.allclose(module(x), sums / counts, rtol=1e-13, atol=1e-13)


def test_resnet50_copies_no_image_to_pad_it_and_names_variables_by_place() -> None:
    model = find_model("cnn", "resnet50_v1.5")
    with torch.device("meta"):
        assert not [m for m in build(model).modules() if "Pad" in type(m).__name__]
    names = [v.name for v in model.variables]
    assert (
        names[:3] == ["conv1.weight", "norm1.weight", "norm1.bias"] and names[-1] == "dense1.bias"
    )
    assert "residual1.shortcut.conv1.weight" in names and "residual16.branch.norm3.bias" in names


@pytest.mark.parametrize("channels", [3, 16])
def test_response_norm_equals_the_librarys(channels: int) -> None:
    """Whose alpha is divided by the size of the window."""
    layer = L.LocalResponseNorm(radius=4, bias=1.5, alpha=0.3, beta=0.75)
    x = torch.randn(2, channels, 5, 6, dtype=torch.float64)
    expected = F.local_response_norm(x, 9, alpha=0.3 * 9, beta=0.75, k=1.5)
    module = small((layer,), (channels, 5, 6))
    assert torch.allclose(module(x), expected, rtol=1e-12)
    last = module(x.contiguous(memory_format=torch.channels_last))
    assert last.is_contiguous(memory_format=torch.channels_last) and torch.allclose(
        last, expected, rtol=1e-12
    )


@pytest.mark.parametrize("model", FAMILIES, ids=lambda model: model.name)
def test_channels_last_equals_channels_first(model: Model) -> None:
    """And no layer gives it up: one that answered in channels first would make every later one
    convert.
    """
    seen, batch = [], images(model)

    def look(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if output.dim() == 4 and min(output.shape[1], output.shape[2] * output.shape[3]) > 1:
            seen.append(output.is_contiguous(memory_format=torch.channels_last))

    first, last = filled(model), filled(model, layout="channels_last")
    for part in last.modules():
        if part is not last and not any(part.children()):
            part.register_forward_hook(look)
    weights = [
        v
        for v in last.parameters()
        if v.dim() == 4 and min(v.shape[1], v.shape[2] * v.shape[3]) > 1
    ]
    assert weights and all(
        w.is_contiguous(memory_format=torch.channels_last) and not w.is_contiguous()
        for w in weights
    )
    a, b = first(batch), last(batch)
    assert len(seen) > 4 and all(seen)
    assert torch.allclose(a, b, rtol=1e-12)
    ours, theirs = (
        torch.cat([x.flatten() for x in gradients(module, loss)])
        for module, loss in ((first, a), (last, b))
    )
    assert (ours - theirs).norm() < 1e-9 * theirs.norm()


def test_constants_survive_leaving_the_meta_device() -> None:
    """Buffers hold nothing there: engines make them of zeros and call `reset_buffers`."""
    for name in ("alexnet_cifar_tiny", "inception3_tiny"):
        model = find_model("cnn", name)
        module, batch = filled(model), images(model)
        expected = module(batch)
        for owner in module.modules():
            for leaf, buffer in list(owner.named_buffers(recurse=False)):
                owner._buffers[leaf] = torch.zeros_like(buffer)
        assert module(batch) != expected
        module.reset_buffers()
        assert torch.equal(module(batch), expected)


def test_running_statistics_follow_the_described_decay() -> None:
    module, batch = filled(TINY), images()
    seen = F.conv2d(batch["images"], module.get_parameter("conv1.weight"), padding=1)
    module(batch)
    norm = module.get_submodule("norm1")
    assert torch.allclose(norm.running_mean, 0.1 * seen.mean((0, 2, 3)))
    assert torch.allclose(norm.running_var, 0.9 + 0.1 * seen.var((0, 2, 3)))
    module.reset_buffers()
    assert not norm.running_mean.any() and bool((norm.running_var == 1).all())
    assert {name.rsplit(".", 1)[1] for name, _ in module.named_buffers()} == {
        "running_mean",
        "running_var",
    }


@pytest.mark.parametrize("model", FAMILIES, ids=lambda model: model.name)
def test_weights_cast_in_groups_train_bit_for_bit_alike(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_cnn, "CAST_MIB", 0.006)
    modules = [filled(model, dtype=torch.float32, layout="channels_last") for _ in range(2)]
    modules[1].cast_in_groups()
    found = []
    for module in modules:
        torch.manual_seed(0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = module(images(model, dtype=torch.float32))
        loss.backward()
        found.append([loss, *(parameter.grad for parameter in module.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    convolutions = [layer for layer in modules[1].modules() if isinstance(layer, nn.Conv2d)]
    assert sum(map(len, modules[1].groups)) == len(convolutions) and all(
        layer.lent is None for layer in convolutions
    )


def test_bfloat16_arithmetic_is_near_float32() -> None:
    module = filled(TINY, dtype=torch.float32, layout="channels_last").eval()
    batch = images(dtype=torch.float32)
    exact = module(batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = module(batch)
    assert rounded.dtype == torch.float32
    assert rounded.item() == pytest.approx(exact.item(), rel=0.05)


def test_dropout_is_where_tf_cnn_benchmarks_has_it() -> None:
    """Behind the dense layers of the large plain networks (0.5) and before the last of Inception-v4
    (0.2).
    """
    found = {
        model.name: [layer.rate for layer in model.config.network if isinstance(layer, L.Dropout)]
        for model in workloads()["cnn"].models.values()
    }
    twice = ("alexnet", "overfeat", "vgg11", "vgg16", "vgg19")
    assert {name: rates for name, rates in found.items() if rates} == {
        name: [0.5, 0.5] for name in twice
    } | {"inception4": [0.2]}
