"""Choose the tiles and shares of fused batch norm's kernels."""

import functools
import importlib
from dataclasses import dataclass
from types import ModuleType

import torch

# into how many shares the rows are cut for a sum: the last program to finish puts all of them
# together
MOST_SHARES = 128

PART = 64  # shares that it reads at once


@dataclass(frozen=True)
class TilePlan:
    """How a kernel works: numbers of a tile, which a program reads at once, and its warps.
    stages, programs: of a sum, tiles on their way to a program, and programs of a multiprocessor.
        tiles: of another kernel's program.
    """

    tile: int
    warps: int
    stages: int = 1
    programs: int = 1
    tiles: int = 1


MOMENTS, SUMS = TilePlan(4096, 8, stages=4, programs=2), TilePlan(4096, 4, stages=4, programs=4)

NORMALISE = GRADIENTS = TilePlan(2048, 4, tiles=2)


@dataclass(frozen=True)
class Share:
    """A tile of rows and channels, tiles of a program, and programs that share the rows."""

    rows: int
    channels: int
    tiles: int
    count: int


@functools.cache
def kernels() -> ModuleType:
    """Triton's, which is imported where it is used."""
    return importlib.import_module("multigpu.kernels.batch_norm_triton")


@functools.cache
def backward_kernels() -> ModuleType:
    """Triton's of the backward pass, which are imported where they are used."""
    return importlib.import_module("multigpu.kernels.batch_norm_backward_triton")


def programs_of(device: int, each: int) -> int:
    """How many share a sum on this GPU: a power of two that all run at once."""
    return (
        power_above(each * torch.cuda.get_device_properties(device).multi_processor_count + 1) // 2
    )


def power_above(number: int) -> int:
    """The least power of two that is no less."""
    return 1 << (number - 1).bit_length()


@functools.cache
def share_for_sums(rows: int, channels: int, programs: int, tile: int) -> Share:
    """For a sum over rows by about so many programs."""
    side = min(power_above(channels), 32 if channels <= 64 else 64)
    height = min(tile // side, power_above(rows))
    wanted = max(1, programs // -(-channels // side))
    tiles = max(1, -(-rows // (height * min(wanted, MOST_SHARES))))
    return Share(height, side, tiles, -(-rows // (height * tiles)))


@functools.cache
def share_for_map(rows: int, channels: int, tile: int, tiles: int) -> Share:
    """For what is computed number by number."""
    side = min(power_above(channels), 128)
    height = min(tile // side, power_above(rows))
    return Share(height, side, tiles, -(-rows // (height * tiles)))


@functools.cache
def early(device: torch.device) -> bool:
    """Whether a second pass is launched while the first ends: from compute capability 9.0."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


def second_pass(device: torch.device) -> dict[str, bool]:
    """How the kernel that follows a sum is launched."""
    return {"EARLY": True, "launch_pdl": True} if early(device) else {"EARLY": False}


def blocks(channels: int, share: Share) -> tuple[int]:
    """The grid of programs."""
    return (-(-channels // share.channels) * share.count,)
