"""How fused batch norm's kernels share out rows and channels, and their launches."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from multigpu.kernels.batch_norm_plans import (
    GRADIENTS,
    MOMENTS,
    NORMALISE,
    PART,
    SUMS,
    backward_kernels,
    blocks,
    early,
    kernels,
    programs_of,
    second_pass,
    share_for_map,
    share_for_sums,
)


class Norm(NamedTuple):
    """Scale, shift, mean and inverse deviation, (C,) each, in the kernels' order."""

    weight: Tensor
    bias: Tensor
    mean: Tensor
    inverse: Tensor


@dataclass(frozen=True)
class Pool:
    """Max-pooling: sides (0: none), stride, pads at the top and left, windows down and across."""

    down: int = 0
    across: int = 0
    stride: int = 1
    top: int = 0
    left: int = 0
    high: int = 1
    wide: int = 1

    @property
    def sides(self) -> tuple[int, int] | None:
        return (self.down, self.across) if self.down else None

    def shape(self, x: Tensor) -> tuple[int, ...]:
        """Of the result for x (B, C, H, W)."""
        return (*x.shape[:2], self.high, self.wide) if self.sides else tuple(x.shape)

    def padded(self) -> tuple[int, int]:
        """Height and width of what all windows cover."""
        return (self.high - 1) * self.stride + self.down, (
            self.wide - 1
        ) * self.stride + self.across

    def pads(self, x: Tensor) -> tuple[int, int, int, int]:
        """Columns and rows to add to x, or to cut off, so that windows cover it."""
        height, width = self.padded()
        return self.left, width - self.left - x.shape[3], self.top, height - self.top - x.shape[2]

    def taps(self, places: Tensor, x: Tensor) -> Tensor:
        """Places in the padded image as places in each window."""
        width = self.padded()[1]
        corner = self.corners(places)
        return (
            (places // width - corner // width) * self.across + places % width - corner % width
        ).to(torch.uint8)

    def corners(self, like: Tensor) -> Tensor:
        """Where in the padded image each window begins, (high, wide)."""
        lines, columns = (
            torch.arange(count, device=like.device) * self.stride
            for count in (self.high, self.wide)
        )
        return lines[:, None] * self.padded()[1] + columns

    def spread(self, dy: Tensor, taps: Tensor, x: Tensor) -> Tensor:
        """Each window's gradient at its largest place, (B, C, H, W)."""
        height, width = self.padded()
        places = self.corners(dy) + taps.long() // self.across * width + taps.long() % self.across
        flat = dy.new_zeros(*dy.shape[:2], height * width).scatter_add_(
            2, places.flatten(2), dy.flatten(2)
        )
        return F.pad(flat.view(*dy.shape[:2], height, width), tuple(-pad for pad in self.pads(x)))

    @property
    def constants(self) -> dict[str, int]:
        return {
            "STRIDE": self.stride,
            "TOP": self.top,
            "LEFT": self.left,
            "DOWN": self.down,
            "ACROSS": self.across,
        }


def moments(
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    arrivals: Tensor,
    momentum: float,
    epsilon: float,
) -> tuple[Tensor, Tensor]:
    """Mean and inverse deviation."""
    channels = x.shape[1]
    rows = x.numel() // channels
    mean, inverse = torch.empty_like(running_mean), torch.empty_like(running_mean)
    share = share_for_sums(
        rows, channels, programs_of(x.device.index, MOMENTS.programs), MOMENTS.tile
    )
    means, squares = mean.new_empty(2, share.count, channels).unbind()
    kernels().moments[blocks(channels, share)](
        x,
        means,
        squares,
        arrivals,
        running_mean,
        running_var,
        mean,
        inverse,
        rows,
        channels,
        share.tiles,
        share.count,
        momentum,
        epsilon,
        ROWS=share.rows,
        CHANNELS=share.channels,
        PART=PART,
        STAGES=MOMENTS.stages,
        EARLY=early(x.device),
        num_warps=MOMENTS.warps,
    )
    return mean, inverse


def forward(
    x: Tensor, norm: Norm, after: Tensor | None, relu: bool, pool: Pool
) -> tuple[Tensor, Tensor]:
    """The result and its taps."""
    channels, height, width = x.shape[1:]
    rows = x.numel() // channels
    y = torch.empty(
        pool.shape(x), dtype=x.dtype, device=x.device, memory_format=torch.channels_last
    )
    if pool.sides:
        taps = torch.empty_like(y, dtype=torch.uint8)
        outputs = y.numel() // channels
        share = share_for_map(outputs, channels, NORMALISE.tile // 2, 1)
        kernels().normalise_pool[blocks(channels, share)](
            x,
            *norm,
            y,
            taps,
            outputs,
            channels,
            height,
            width,
            pool.high,
            pool.wide,
            **pool.constants,
            RELU=relu,
            ROWS=share.rows,
            CHANNELS=share.channels,
            num_warps=NORMALISE.warps,
            **second_pass(x.device),
        )
        return y, taps
    share = share_for_map(rows, channels, NORMALISE.tile, NORMALISE.tiles)
    kernels().normalise[blocks(channels, share)](
        x,
        x if after is None else after,
        *norm,
        y,
        rows,
        channels,
        share.tiles,
        RELU=relu,
        AFTER=after is not None,
        ROWS=share.rows,
        CHANNELS=share.channels,
        num_warps=NORMALISE.warps,
        **second_pass(x.device),
    )
    return y, x.new_empty((0,), dtype=torch.uint8)


def backward(
    dy: Tensor,
    more: Tensor | None,
    x: Tensor,
    y: Tensor | None,
    norm: Norm,
    taps: Tensor,
    arrivals: Tensor,
    relu: bool,
    pool: Pool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of x, of what was added (empty where `y` is None), of weight and bias."""
    channels, height, width = x.shape[1:]
    rows = x.numel() // channels
    added = y is not None
    share = share_for_sums(
        rows,
        channels,
        programs_of(x.device.index, SUMS.programs),
        SUMS.tile // 2 if pool.sides else SUMS.tile,
    )
    partial = norm.weight.new_empty(2, share.count, channels)
    dz = torch.empty_like(x) if added else x.new_empty((0,))
    dweight = torch.empty_like(norm.weight)
    dbias = torch.empty_like(norm.weight)
    dx = torch.empty_like(x)
    place = height, width, pool.high, pool.wide
    backward_kernels().gradient_sums[blocks(channels, share)](
        dy,
        dy if more is None else more,
        x,
        y if added else x,
        *norm,
        taps,
        dz,
        partial,
        arrivals,
        dweight,
        dbias,
        rows,
        channels,
        share.tiles,
        share.count,
        *place,
        **pool.constants,
        RELU=relu,
        AFTER=added,
        MORE=more is not None,
        POOL=pool.sides is not None,
        ROWS=share.rows,
        CHANNELS=share.channels,
        PART=PART,
        STAGES=SUMS.stages,
        num_warps=SUMS.warps,
        EARLY=early(x.device),
    )
    share = share_for_map(rows, channels, GRADIENTS.tile, GRADIENTS.tiles)
    backward_kernels().gradients[blocks(channels, share)](
        dz if added else dy,
        x,
        *norm,
        taps,
        dweight,
        dbias,
        dx,
        rows,
        channels,
        share.tiles,
        *place,
        **pool.constants,
        RELU=relu and not added,
        POOL=pool.sides is not None,
        ROWS=share.rows,
        CHANNELS=share.channels,
        num_warps=GRADIENTS.warps,
        **second_pass(x.device),
    )
    return dx, dz, dweight, dbias
