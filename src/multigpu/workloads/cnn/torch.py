"""Image models in PyTorch, built from the layer language by recursion."""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multigpu.spec.model import Model
from multigpu.workloads.cnn import layers as L
from multigpu.workloads.cnn import network as net
from multigpu.workloads.cnn import torch_layers as T
from multigpu.workloads.cnn.torch_fused import fuse

CAST_MIB = 4.0
"""Weights of this size are cast together: their gradients wait for the last of them, and buckets of
gradients are to leave early.
"""


def build(
    model: Model,
    layout: str | None = None,
    batch_norm: str | None = None,
    stem: str | None = None,
    weight_casts: str | None = None,
) -> nn.Module:
    """The module of an image model, its parameters uninitialised (and on the meta device if built
    under it).

    layout: of images and weights in memory, "channels_first" (also None) or "channels_last", else a
        ValueError; shapes are NCHW in both.
    batch_norm: "fused": in one piece with what follows it (`torch_fused`). stem: "folded": of
        blocks of pixels (`FoldedConv`).
    weight_casts: "grouped": weights of several convolutions are cast to 16 bits by one kernel.
    """
    if layout not in (None, "channels_first", "channels_last"):
        raise ValueError(f"unknown layout {layout!r}: choose channels_first or channels_last")
    memory_format = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    module = Cnn(parts(model.config.network, model.config.image_shape), memory_format)
    if batch_norm == "fused":
        fuse(module, model.config.network, model.config.image_shape)
    if stem == "folded":
        T.fold(module, model.config.network, model.config.image_shape)
    if weight_casts == "grouped":
        module.cast_in_groups()
    return module.to(memory_format=memory_format)  # type: ignore[call-overload]


class Cnn(nn.Sequential):
    """Summed cross entropies over a shard's images; parameters as the description names them."""

    def __init__(
        self, named: OrderedDict[str, nn.Module], memory_format: torch.memory_format
    ) -> None:
        super().__init__(named)
        self.memory_format = memory_format
        self.compiled: list[Callable[[Tensor], Tensor]] = []
        self.groups: list[list[T.Conv]] = []

    def reset_buffers(self) -> None:
        """Start running statistics and constants anew, once the module is in real memory."""
        for module in self.modules():
            if isinstance(module, T.Norm | T.ResponseNorm):
                module.reset_buffers()

    def lookups(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {}

    def forward(self, batch: dict[str, Tensor], rows: dict[str, Tensor] | None = None) -> Tensor:
        """Of images (B, channels, height, width) and labels (B,) int64; rows are ignored."""
        return self.loss_of(self.logits(batch["images"]), batch["labels"])

    def loss_of(self, logits: Tensor, labels: Tensor) -> Tensor:
        if logits.dtype in (torch.bfloat16, torch.float16):
            logits = logits.float()
        return F.cross_entropy(logits, labels, reduction="sum")

    def logits(self, images: Tensor) -> Tensor:
        if isinstance(self[0], T.FoldedConv):
            x = images
        else:
            x = images.contiguous(memory_format=self.memory_format)
        if self.groups:
            self.lend_weights(images.device.type)
        for part in self.compiled or self:
            x = part(x)
        for layer in chain.from_iterable(self.groups):
            layer.lent = None
        return x

    def cast_in_groups(self) -> None:
        """From now on cast weights of convolutions in groups of CAST_MIB under autocast."""
        size_mib = 0.0
        for module in self.modules():
            if isinstance(module, T.Conv) and not isinstance(module, T.FoldedConv):
                if not self.groups or size_mib >= CAST_MIB:
                    self.groups.append([])
                    size_mib = 0.0
                self.groups[-1].append(module)
                size_mib += module.weight.nbytes / 2**20

    def lend_weights(self, device: str) -> None:
        """Have convolutions of groups compute with weights in autocast's type for now."""
        for group in self.groups if torch.is_autocast_enabled(device) else ():
            cast = T.CastTogether.apply(
                torch.get_autocast_dtype(device), *(layer.weight for layer in group)
            )
            for layer, weight in zip(group, cast, strict=True):
                layer.lent = weight

    def compile_parts(self) -> None:
        """Compile stretches of layers: equal blocks share code, and gradients leave early."""
        stretches: list[list[nn.Module]] = [[]]
        for layer in self:
            if (
                isinstance(
                    layer, (T.Residual, T.Concat, nn.Flatten, T.Mean, nn.MaxPool2d, nn.AvgPool2d)
                )
                and stretches[-1]
            ):
                stretches.append([])
            stretches[-1].append(layer)
        # every stretch runs one method's code
        torch._dynamo.config.recompile_limit = max(256, torch._dynamo.config.recompile_limit)
        # Sequential.compile() would leave the library's own layers out: their frames are the
        # library's, which it does not trace
        # no submodules: a plain list
        self.compiled = [
            torch.compile(nn.Sequential(*stretch), dynamic=False) for stretch in stretches
        ]


OVERWRITABLE = (L.Convolution, L.BatchNorm, L.Dense, L.Residual, L.Concat)
"""Layers whose output their own backward pass does not read: the next may write over it."""


def parts(network: net.Network, shape: net.Shape) -> OrderedDict[str, nn.Module]:
    """A module for each layer, under the description's names."""
    made: OrderedDict[str, nn.Module] = OrderedDict()
    before: net.Layer | None = None
    for name, layer, size in net.steps(network, shape):
        if isinstance(layer, L.Relu):
            made[name] = nn.ReLU(inplace=isinstance(before, OVERWRITABLE))
        else:
            made[name] = MAKERS[type(layer)](layer, size)
        before = layer
    return made


def rounding(layer: L.Window, shape: net.Shape) -> bool | None:
    """Whether the library rounds up (True), down (False) or neither (None) to place its windows so;
    pads at the end alone cost nothing.
    """
    top, _, left, _ = layer.pads_for(shape)
    image, wanted = torch.empty(1, *shape[1:], device="meta"), layer.positions(shape)
    for up in (False, True):
        with suppress(RuntimeError):  # no window fits, or pads are wider than half of one
            if (
                F.max_pool2d(image, layer.sides, layer.stride, (top, left), ceil_mode=up).shape[1:]
                == wanted
            ):
                return up
    return None


def convolution(layer: L.Convolution, shape: net.Shape) -> nn.Module:
    """With the library's own padding where its windows are those of the description."""
    top, bottom, left, right = layer.pads_for(shape)
    if rounding(layer, shape) is False:
        return T.Conv(
            shape[0], layer.filters, layer.sides, layer.stride, (top, left), bias=layer.bias
        )
    padded = T.PaddedConv(shape[0], layer.filters, layer.sides, layer.stride, bias=layer.bias)
    padded.sides = (left, right, top, bottom)
    return padded


def max_pool(layer: L.MaxPool, shape: net.Shape) -> nn.Module:
    """The library's pooling, on a padded copy only where it cannot be helped."""
    top, bottom, left, right = layer.pads_for(shape)
    if (up := rounding(layer, shape)) is not None:
        return nn.MaxPool2d(layer.sides, layer.stride, (top, left), ceil_mode=up)
    padded = T.PaddedMaxPool(layer.sides, layer.stride)
    padded.sides = (left, right, top, bottom)
    return padded


def average_pool(layer: L.AveragePool, shape: net.Shape) -> nn.Module:
    """The library's pooling, padding not counted; NotImplementedError for other pads."""
    top, _, left, _ = layer.pads_for(shape)
    if layer.sides == (1, 1):
        return T.Subsample(layer.stride)
    if (up := rounding(layer, shape)) is None:
        raise NotImplementedError(
            f"average pooling with pads {layer.pads_for(shape)} over {shape}: pad only as SAME with"
            " a stride does"
        )
    return nn.AvgPool2d(
        layer.sides, layer.stride, (top, left), ceil_mode=up, count_include_pad=False
    )


def residual(layer: L.Residual, shape: net.Shape) -> nn.Module:
    """The sum overwrites the branch's output where nothing else needs that."""
    shortcut = nn.Sequential(parts(layer.shortcut, shape)) if layer.shortcut else None
    return T.Residual(
        nn.Sequential(parts(layer.branch, shape)),
        shortcut,
        isinstance(layer.branch[-1], OVERWRITABLE),
    )


def concat(layer: L.Concat, shape: net.Shape) -> nn.Module:
    """One child a branch, in order."""
    made = T.Concat()
    for index, branch in enumerate(layer.branches, 1):
        made.add_module(f"branch{index}", nn.Sequential(parts(branch, shape)))
    return made


MAKERS: dict[type[net.Layer], Callable[[Any, net.Shape], nn.Module]] = {
    L.Convolution: convolution,
    L.MaxPool: max_pool,
    L.AveragePool: average_pool,
    L.BatchNorm: lambda layer, shape: T.Norm(shape[0], layer.epsilon, 1 - layer.decay, layer.scale),
    L.LocalResponseNorm: lambda layer, shape: T.ResponseNorm(layer, shape[0]),
    L.Dropout: lambda layer, shape: nn.Dropout(layer.rate),
    L.GlobalAveragePool: lambda layer, shape: T.Mean(),
    L.Flatten: lambda layer, shape: nn.Flatten(),
    L.PadChannels: lambda layer, shape: nn.ConstantPad3d(
        (0, 0, 0, 0, layer.each_side, layer.each_side), 0.0
    ),
    L.Dense: lambda layer, shape: T.Linear(shape[0], layer.units),
    L.Residual: residual,
    L.Concat: concat,
}
"""Layer -> its module, given the shape of its input; `parts` makes `Relu`."""

Values = dict[str, Tensor]


def section_functions(module: nn.Module) -> dict[str, Callable[[Values], Values]]:
    """Section -> its function, from arrays and earlier tensors to what it gives."""
    assert isinstance(module, Cnn)
    stretches: dict[str, list[nn.Module]] = {}
    for name, layer in module.named_children():
        if stretches and isinstance(layer, nn.ReLU):
            stretches[[*stretches][-1]].append(layer)
        else:
            stretches[name] = [layer]
    before, last = ["", *stretches], [*stretches][-1]
    return {
        name: partial(_section, module, first, name, stretches[name], name == last)
        for first, name in zip(before, stretches, strict=False)
    }


def _section(
    module: Cnn, before: str, name: str, stretch: list[nn.Module], last: bool, values: Values
) -> Values:
    if before:
        x = values[before]
    else:
        x = values["images"].contiguous(memory_format=module.memory_format)
    for layer in stretch:
        x = layer(x)
    return {"loss": module.loss_of(x, values["labels"])} if last else {name: x}
