"""Batch norm with what follows it, a sum, ReLU and max-pooling, as PyTorch operators:
`torch.ops.multigpu.batch_norm` and its backward pass, written out for CPUs, as Triton's kernels
(`batch_norm_triton.py`) on GPUs. Images are (B, C, H, W) with channels last in memory. The exact
type is float32 where they have 16 bits, else their own.
"""

import functools
import importlib.util
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from multigpu.kernels import batch_norm_launch
from multigpu.kernels.batch_norm_launch import Norm, Pool
from multigpu.kernels.lstm import exact_type, stand_in

LAST = torch.channels_last
KINDS = (torch.float32, torch.bfloat16, torch.float16)  # what the kernels read and write on GPUs
# numbers that a tensor which is pooled may have on a GPU: places in it are counted in 32 bits
MOST = 2**31


@functools.cache
def unavailable(device: int) -> str | None:
    """Why this GPU cannot run the kernels, in one clause; None where it can."""
    if torch.version.cuda is None:
        return "this PyTorch is built without CUDA"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    major, minor = torch.cuda.get_device_capability(device)
    if major >= 8:
        return None
    return (
        "the kernels are written for compute capability 8.0 and above, and this GPU has"
        f" {major}.{minor}"
    )


def library_instead(device: torch.device) -> str | None:
    """Why batch norm is left to the library on this device, in one clause; None: it is not."""
    if device.type != "cuda":
        return None
    return unavailable(torch.cuda.current_device() if device.index is None else device.index)


def check_arguments(
    x: Tensor, vectors: dict[str, Tensor], after: Tensor | None = None, pool: Sequence[int] = ()
) -> None:
    """Raises ValueError where shapes or types do not fit."""
    if x.dim() != 4 or x.numel() <= x.shape[1] or not x.shape[1]:
        raise ValueError(
            f"x is {tuple(x.shape)}: batch norm takes (images, channels, height, width) with more"
            " than one value a channel"
        )
    for name, vector in vectors.items():
        if vector.shape != x.shape[1:2] or vector.dtype != exact_type(x.dtype):
            raise ValueError(
                f"{name} is {vector.dtype} {tuple(vector.shape)}: it must be {exact_type(x.dtype)}"
                f" {tuple(x.shape[1:2])} beside x {x.dtype} {tuple(x.shape)}"
            )
    if after is not None and (after.shape != x.shape or after.dtype != x.dtype):
        raise ValueError(
            f"what is added is {after.dtype} {tuple(after.shape)}: it must be {x.dtype}"
            f" {tuple(x.shape)}, as x is"
        )
    if pool and after is not None:
        raise ValueError("a sum is not pooled in one piece: pool it afterwards")
    if x.is_cuda and x.dtype not in KINDS:
        raise ValueError(
            f"fused batch norm computes in float32, bfloat16 and float16 on GPUs, not in {x.dtype}"
        )
    if x.is_cuda and pool and x.numel() >= MOST:
        raise ValueError(
            f"{x.numel()} numbers are too many to be pooled in one piece (at most 2^31 - 1): take a"
            " smaller batch"
        )


@torch.library.custom_op("multigpu::batch_moments", mutates_args=("running_mean", "running_var"))
def batch_moments(
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    arrivals: Tensor,
    momentum: float,
    epsilon: float,
) -> tuple[Tensor, Tensor]:
    """Mean and inverse deviation of each of x's channels, (C,) in the exact type; running ones,
    too, move by `momentum` towards them.
    arrivals: (C,) int32 zeros, and zeros again afterwards: no two calls may use it at once.
    """
    check_arguments(x, {"running_mean": running_mean, "running_var": running_var})
    with torch.autocast(x.device.type, enabled=False):
        run = batch_norm_launch.moments if x.is_cuda else moments
        return run(
            x.contiguous(memory_format=LAST), running_mean, running_var, arrivals, momentum, epsilon
        )


@batch_moments.register_fake
def _(x: Tensor, running_mean: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(running_mean), torch.empty_like(running_mean)


@torch.library.custom_op("multigpu::batch_norm", mutates_args=())
def batch_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    after: Tensor | None,
    mean: Tensor,
    inverse: Tensor,
    arrivals: Tensor,
    relu: bool,
    pool: list[int],
    twice: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise x, add `after`, apply ReLU and pool. The gradient takes mean and deviation for what
    they are, x's own.

    weight, bias: (C,) in the exact type. after: added to what is normalised; like x, or None.
    mean, inverse, arrivals: of `batch_moments`. pool: a `Pool`'s numbers, or none. twice: whether
        the result is used twice (`SecondUse`).

    Returns the result; which place of each window was the largest (uint8; empty unpooled); what
    takes a second use's gradient (or empty).
    """
    check_arguments(
        x, {"weight": weight, "bias": bias, "mean": mean, "inverse": inverse}, after, pool
    )
    with torch.autocast(x.device.type, enabled=False):
        x = x.contiguous(memory_format=LAST)
        after = None if after is None else after.contiguous(memory_format=LAST)
        run = batch_norm_launch.forward if x.is_cuda else forward
        y, taps = run(x, Norm(weight, bias, mean, inverse), after, relu, Pool(*pool))
        return y, taps, stand_in(y.new_empty(1), y.shape) if twice else y.new_empty((0,))


@batch_norm.register_fake
def _(x: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    *_, pool, twice = others
    y = x.new_empty(Pool(*pool).shape(x)).contiguous(memory_format=LAST)
    taps = torch.empty_like(y, dtype=torch.uint8) if pool else x.new_empty((0,), dtype=torch.uint8)
    return y, taps, stand_in(y.new_empty(1), y.shape) if twice else y.new_empty((0,))


@torch.library.custom_op("multigpu::batch_norm_backward", mutates_args=())
def batch_norm_backward(
    dy: Tensor,
    more: Tensor | None,
    x: Tensor,
    y: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    inverse: Tensor,
    taps: Tensor,
    arrivals: Tensor,
    relu: bool,
    pool: list[int],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, of what was added (empty without the `y` then returned), of weight and bias.
    more: that of y's second use.
    """
    with torch.autocast(x.device.type, enabled=False):
        x, dy = x.contiguous(memory_format=LAST), dy.to(x.dtype).contiguous(memory_format=LAST)
        more = None if more is None else more.to(x.dtype).contiguous(memory_format=LAST)
        run = batch_norm_launch.backward if x.is_cuda else backward
        return run(
            dy, more, x, y, Norm(weight, bias, mean, inverse), taps, arrivals, relu, Pool(*pool)
        )


@batch_norm_backward.register_fake
def _(
    dy: Tensor, more: Tensor | None, x: Tensor, y: Tensor | None, weight: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dx = torch.empty_like(x, memory_format=LAST)
    dafter = x.new_empty((0,)) if y is None else torch.empty_like(dx)
    return dx, dafter, torch.empty_like(weight), torch.empty_like(weight)


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    x, weight, bias, after, mean, inverse, arrivals, relu, pool, twice = inputs
    y, taps, second = output
    ctx.mark_non_differentiable(taps, *(() if twice else (second,)))
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, None if after is None else y, weight, bias, mean, inverse, taps)
    ctx.arrivals, ctx.relu, ctx.pool = arrivals, relu, pool


def _differentiate(ctx, dy, _, more):  # type: ignore[no-untyped-def]
    if dy is None and more is None:
        return (None,) * 10
    x, y, *kept = ctx.saved_tensors
    first, second = (more, None) if dy is None else (dy, more)
    if second is not None and y is None:
        first, second = first + second, None
    dx, dafter, dweight, dbias = batch_norm_backward(
        first, second, x, y, *kept, ctx.arrivals, ctx.relu, ctx.pool
    )
    return dx, dweight, dbias, None if y is None else dafter, *(None,) * 6


batch_norm.register_autograd(_differentiate, setup_context=_setup)


class SecondUse(torch.autograd.Function):
    """A result of `batch_norm` once more, whose gradient goes to the stand-in beside it: the kernel
    that needs both adds them up.
    """

    @staticmethod
    def forward(ctx: Any, y: Tensor, stand_in: Tensor) -> Tensor:
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, gradients[0]


def moments(
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    arrivals: Tensor,
    momentum: float,
    epsilon: float,
) -> tuple[Tensor, Tensor]:
    """Compute in PyTorch's operations what the kernel computes."""
    variance, mean = torch.var_mean(x.to(running_mean.dtype), (0, 2, 3), correction=0)
    count = x.numel() // x.shape[1]
    running_mean.lerp_(mean, momentum)
    running_var.lerp_(variance * (count / (count - 1)), momentum)
    return mean, torch.rsqrt(variance + epsilon)


def forward(
    x: Tensor, norm: Norm, after: Tensor | None, relu: bool, pool: Pool
) -> tuple[Tensor, Tensor]:
    """Compute in PyTorch's operations what the kernels compute."""
    y = normalised(x.to(norm.weight.dtype), norm) + (0 if after is None else after)
    y = (y.relu() if relu else y).to(x.dtype)
    taps = x.new_empty((0,), dtype=torch.uint8)
    if pool.sides:
        y, places = F.max_pool2d(
            F.pad(y, pool.pads(x), value=-torch.inf), pool.sides, pool.stride, return_indices=True
        )
        taps = pool.taps(places, x).contiguous(memory_format=LAST)
    return y.contiguous(memory_format=LAST), taps


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
    """Compute in PyTorch's operations what the kernels compute."""
    exact, dz = x.to(norm.weight.dtype), dy.to(norm.weight.dtype)
    if more is not None:
        dz = dz + more
    if pool.sides:
        dz = pool.spread(dz, taps, x)
    if relu:
        out = normalised(exact, norm).to(x.dtype) if y is None else y
        dz = torch.where(out <= 0, 0, dz)
    dafter = x.new_empty((0,)) if y is None else dz.to(x.dtype).contiguous(memory_format=LAST)
    along = (exact - wide(norm.mean)) * wide(norm.inverse)
    dbias, dweight = dz.sum((0, 2, 3)), (dz * along).sum((0, 2, 3))
    count = x.numel() // x.shape[1]
    dx = wide(norm.weight * norm.inverse) * (
        dz - wide(dbias / count) - along * wide(dweight / count)
    )
    return dx.to(x.dtype).contiguous(memory_format=LAST), dafter, dweight, dbias


def wide(vector: Tensor) -> Tensor:
    """(C,) as (C, 1, 1)."""
    return vector[:, None, None]


def normalised(x: Tensor, norm: Norm) -> Tensor:
    """Deviations from the mean, scaled and shifted."""
    return (x - wide(norm.mean)) * wide(norm.inverse * norm.weight) + wide(norm.bias)
