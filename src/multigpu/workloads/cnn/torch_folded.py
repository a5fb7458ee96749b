"""A strided convolution of few channels without its stride: as many neighbouring pixels become channels (space to depth)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multigpu.workloads.cnn import layers as L
from multigpu.workloads.cnn.torch_layers import Conv

CHANNELS = 8
"""Of which tensor cores take a multiple."""


class FoldedConv(Conv):
    """What a convolution computes, on images whose blocks of stride x stride pixels have become channels.

    A kernel of few channels leaves tensor cores idle and has images padded in every step. Weights keep their shape; they are folded in
    each step, as images are when they are brought into memory's order, which a step with channels last does anyway.

    top, left: pads; positions: of the window, downwards and across.
    """

    top = left = 0
    positions = (0, 0)

    def forward(self, x: Tensor) -> Tensor:
        stride, (high, wide) = self.stride[0], self.kernel_size
        above, before = -self.top % stride, -self.left % stride  # zeros in front of the kernel, so that blocks begin where pads end
        down, across = -(-(high + above) // stride), -(-(wide + before) // stride)
        pads = before, across * stride - wide - before, above, down * stride - high - above
        weight = (
            F.pad(self.weight, pads).unflatten(3, (across, stride)).unflatten(2, (down, stride)).permute(0, 3, 5, 1, 2, 4).flatten(1, 3)
        )
        channels = -(-weight.shape[1] // CHANNELS) * CHANNELS
        weight = F.pad(weight, (0, 0, 0, 0, 0, channels - weight.shape[1]))
        lines, columns = self.positions[0] + down - 1, self.positions[1] + across - 1
        kind = torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype
        folded = x.new_zeros(len(x), lines, columns, channels, dtype=kind)
        blocks = x.unflatten(3, (-1, stride)).unflatten(2, (-1, stride)).permute(0, 2, 4, 3, 5, 1)
        top, left = (self.top + above) // stride, (self.left + before) // stride
        blocks = blocks[:, : lines - top, : columns - left]
        part = folded[:, top : top + blocks.shape[1], left : left + blocks.shape[2], : stride * stride * x.shape[1]]
        part.unflatten(3, (stride, stride, x.shape[1])).copy_(blocks)
        weight = weight.contiguous(memory_format=torch.channels_last)
        return F.conv2d(folded.permute(0, 3, 1, 2), weight, self.bias)


def fold(stack: nn.Sequential, network: L.Network, shape: L.Shape) -> None:
    """Have the first convolution of the network that `stack` was built from read blocks of pixels.

    Raises:
        ValueError: the network does not begin with a convolution that has a stride.
    """
    name, layer, _ = next(L.steps(network, shape))
    if not isinstance(layer, L.Convolution) or layer.stride == 1:
        raise ValueError("only a first convolution with a stride can be folded")
    folded = FoldedConv(shape[0], layer.filters, layer.sides, layer.stride, bias=layer.bias)
    folded.top, _, folded.left, _ = layer.pads_for(shape)
    folded.positions = layer.positions(shape)
    setattr(stack, name, folded)
