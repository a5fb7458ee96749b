"""Image layers in PyTorch whose library form lacks something."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multigpu.workloads.cnn import layers as L
from multigpu.workloads.cnn import network as net
from multigpu.workloads.tensors import arithmetic_type


class CastTogether(torch.autograd.Function):
    """Tensors in another type by one kernel, and their gradients back by one."""

    @staticmethod
    def forward(ctx: Any, kind: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.kind = tensors[0].dtype
        return cast_all(tensors, kind)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, *cast_all(gradients, ctx.kind)


def cast_all(tensors: tuple[Tensor, ...], kind: torch.dtype) -> tuple[Tensor, ...]:
    """Copies in another type, each in its own order in memory."""
    cast = [torch.empty_like(tensor, dtype=kind) for tensor in tensors]
    torch._foreach_copy_(cast, tensors)
    return tuple(cast)


class Conv(nn.Conv2d):
    """A convolution with the description's values. lent: its weight in 16 bits, if lent."""

    lent: Tensor | None = None

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""

    def forward(self, x: Tensor) -> Tensor:
        return (
            super().forward(x) if self.lent is None else self._conv_forward(x, self.lent, self.bias)
        )


CHANNELS = 8
"""Of images whose pixels become channels: tensor cores take a multiple."""


class FoldedConv(Conv):
    """A convolution on images whose blocks of stride x stride pixels have become channels, as
    tensor cores want them. Weights keep their shape and are folded in each step, as images are when
    they are brought into memory's order. top, left: pads; positions: of the window, downwards and
    across.
    """

    top = left = 0
    positions = (0, 0)

    def forward(self, x: Tensor) -> Tensor:
        stride, (high, wide) = self.stride[0], self.kernel_size
        # zeros in front of the kernel, so that blocks begin where pads end
        above = -self.top % stride
        before = -self.left % stride
        down, across = -(-(high + above) // stride), -(-(wide + before) // stride)
        pads = before, across * stride - wide - before, above, down * stride - high - above
        weight = (
            F.pad(self.weight, pads)
            .unflatten(3, (across, stride))
            .unflatten(2, (down, stride))
            .permute(0, 3, 5, 1, 2, 4)
            .flatten(1, 3)
        )
        channels = -(-weight.shape[1] // CHANNELS) * CHANNELS
        weight = F.pad(weight, (0, 0, 0, 0, 0, channels - weight.shape[1]))
        lines, columns = self.positions[0] + down - 1, self.positions[1] + across - 1
        folded = x.new_zeros(len(x), lines, columns, channels, dtype=arithmetic_type(x))
        blocks = x.unflatten(3, (-1, stride)).unflatten(2, (-1, stride)).permute(0, 2, 4, 3, 5, 1)
        top, left = (self.top + above) // stride, (self.left + before) // stride
        blocks = blocks[:, : lines - top, : columns - left]
        part = folded[
            :,
            top : top + blocks.shape[1],
            left : left + blocks.shape[2],
            : stride * stride * x.shape[1],
        ]
        part.unflatten(3, (stride, stride, x.shape[1])).copy_(blocks)
        weight = weight.contiguous(memory_format=torch.channels_last)
        return F.conv2d(folded.permute(0, 3, 1, 2), weight, self.bias)


class PaddedConv(Conv):
    """A convolution whose pads differ by side, which the library's own padding cannot express."""

    sides: tuple[int, ...]

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.pad(x, self.sides))


class PaddedMaxPool(nn.MaxPool2d):
    """Max-pooling with pads that neither the library's padding nor its rounding up can express."""

    sides: tuple[int, ...]

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.pad(x, self.sides, value=-torch.inf))


class Linear(nn.Linear):
    """A dense layer whose values come from the description."""

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""


class Norm(nn.BatchNorm2d):
    """Batch norm without the library's count of batches, a kernel a layer that nobody reads;
    without a scale, ones stand in for cuDNN.
    """

    def __init__(self, channels: int, epsilon: float, momentum: float, scale: bool = True) -> None:
        super().__init__(channels, epsilon, momentum)
        self.num_batches_tracked = None
        if not scale:
            del self.weight
            self.register_buffer("weight", torch.ones(channels))

    def reset_running_stats(self) -> None:
        self.running_mean.zero_()  # type: ignore[union-attr]
        self.running_var.fill_(1)  # type: ignore[union-attr]

    def reset_buffers(self) -> None:
        self.reset_running_stats()
        if "weight" in self._buffers:
            self.weight.fill_(1)


class ResponseNorm(nn.Module):
    """Local response normalisation, (B, C, H, W), by a 1x1 convolution with a band of ones."""

    band: Tensor

    def __init__(self, layer: L.LocalResponseNorm, channels: int) -> None:
        super().__init__()
        self.layer = layer
        self.register_buffer("band", torch.empty(channels, channels, 1, 1))
        self.reset_buffers()

    def reset_buffers(self) -> None:
        """Ones where two channels are at most `radius` apart."""
        place = torch.arange(len(self.band), device=self.band.device)
        self.band.copy_(((place - place[:, None]).abs() <= self.layer.radius)[:, :, None, None])

    def forward(self, x: Tensor) -> Tensor:
        sums = F.conv2d(x * x, self.band)
        factor = (self.layer.bias + self.layer.alpha * sums.to(self.band.dtype)).pow(
            -self.layer.beta
        )
        return x * factor.to(x.dtype)


class Subsample(nn.Module):
    """Every stride-th pixel: pooling with a 1x1 kernel."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :, :: self.stride, :: self.stride]


class Mean(nn.Module):
    """(B, C, H, W) -> (B, C)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


class Residual(nn.Module):
    """branch(x) + shortcut(x)."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module | None, in_place: bool) -> None:
        super().__init__()
        self.branch = branch
        if shortcut is not None:
            self.shortcut = shortcut
        self.projected, self.in_place = shortcut is not None, in_place

    def forward(self, x: Tensor) -> Tensor:
        y = self.branch(x)
        if self.projected:
            x = self.shortcut(x)
        return y.add_(x) if self.in_place else y + x


class Concat(nn.Module):
    """The channels of all branches, one after another."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.children()], 1)


def fold(stack: nn.Sequential, network: net.Network, shape: net.Shape) -> None:
    """Have the network's first convolution in `stack` read blocks of pixels; a ValueError where it
    does not begin with a strided one.
    """
    name, layer, _ = next(net.steps(network, shape))
    if not isinstance(layer, L.Convolution) or layer.stride == 1:
        raise ValueError("only a first convolution with a stride can be folded")
    folded = FoldedConv(shape[0], layer.filters, layer.sides, layer.stride, bias=layer.bias)
    folded.top, _, folded.left, _ = layer.pads_for(shape)
    folded.positions = layer.positions(shape)
    setattr(stack, name, folded)
