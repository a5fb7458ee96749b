"""The persistent LSTM's kernels on one GPU: whether they can run, and their launches."""

import functools
from collections.abc import Iterator

import torch
from torch import Tensor

from multigpu.kernels import build
from multigpu.kernels.build import CUDA, Unavailable
from multigpu.kernels.driver import Kernel

CLUSTER = 16
FORWARD = ((16, 1), (24, 1), (16, 2), (24, 2), (32, 2))
"""Rows of one product and such parts of a cluster; fewer rows make a shorter step."""
BACKWARD = ((16, 1), (16, 2), (16, 3), (16, 4))
CAPABILITY = (9, 0)
ACQUIRE = '-DWAIT_SCOPE=".acquire.cluster"'


def options(kind: str, rows: int = 16, parts: int = 1) -> tuple[str, ...]:
    """NVRTC's options for one kernel of `lstm.cu`."""
    defined = (f"-D{kind}", f"-DROWS={rows}", f"-DPARTS={parts}")
    return ("--gpu-architecture=sm_90a", "--std=c++17", *defined, ACQUIRE)


def forward_bytes(rows: int, parts: int) -> int:
    """Shared memory of a block of `lstm_forward`: operands, pieces, products, barriers."""
    ahead = 2 if rows * parts >= 64 else 3
    return parts * (2 * 1024 * rows + 2 * 2 * 32 * rows + ahead * rows // 8 * 2048 + 2 * 8)


def backward_bytes(rows: int, parts: int) -> int:
    """Shared memory of a block of `lstm_backward`: partial sums, operands, inputs, barriers."""
    return parts * (2 * 16384 + 2 * 256 * (rows + 1) + 2 * 6144 + 2 * 8)


@functools.cache
def forward_kernel(device: int, rows: int, parts: int) -> Kernel:
    """`lstm_forward` for clusters of `rows * parts` rows."""
    choices = options("FORWARD", rows, parts)
    return Kernel(
        device, "lstm.cu", "lstm_forward", choices, 384, forward_bytes(rows, parts), CLUSTER
    )


@functools.cache
def backward_kernel(device: int, rows: int, parts: int) -> Kernel:
    """`lstm_backward` for clusters of `rows * parts` rows."""
    choices = options("BACKWARD", rows, parts)
    return Kernel(
        device, "lstm.cu", "lstm_backward", choices, 256, backward_bytes(rows, parts), CLUSTER
    )


@functools.cache
def prepare_kernel(device: int, name: str) -> Kernel:
    """`lstm_pack` or `lstm_pad`."""
    return Kernel(device, "lstm.cu", name, options("PREPARE"), 256)


@functools.cache
def clusters(device: int) -> int:
    """How many clusters this GPU holds at once, as its driver says."""
    largest = FORWARD[-1], BACKWARD[-1]
    return min(
        forward_kernel(device, *largest[0]).most_clusters(),
        backward_kernel(device, *largest[1]).most_clusters(),
    )


def missing(cuda_version: str | None, capability: tuple[int, int]) -> str | None:
    """Why no GPU of this capability under this CUDA runs the kernels; None if one may."""
    if cuda_version is None:
        return "this PyTorch is built without CUDA"
    if int(cuda_version.split(".")[0]) < CUDA:
        return (
            f"PyTorch is built for CUDA {cuda_version}, and the kernels need CUDA {CUDA}'s compiler"
        )
    if capability != CAPABILITY:
        return (
            "the kernels are written for compute capability 9.0 (H100, H200), and this GPU has"
            f" {capability[0]}.{capability[1]}"
        )
    return None


@functools.cache
def unavailable(device: int) -> str | None:
    """Why this GPU cannot run the persistent LSTM, in a clause, or None. Builds its kernels."""
    reason = missing(torch.version.cuda, torch.cuda.get_device_capability(device))
    if reason is not None:
        return reason
    try:
        found = clusters(device)
        prepare_kernel(device, "lstm_pack")
        prepare_kernel(device, "lstm_pad")
    except (Unavailable, RuntimeError) as error:
        return str(error)
    return None if found else f"this GPU holds no cluster of {CLUSTER} thread blocks"


def devices() -> list[torch.device]:
    """This machine's GPUs, as PyTorch sees them."""
    return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]


def library_instead(device: torch.device) -> str | None:
    """Why the library runs persistent cells on this device, in a clause; None: it does not."""
    if device.type == "cuda":
        return unavailable(torch.cuda.current_device() if device.index is None else device.index)
    return None


def split(batch: int, shapes: tuple[tuple[int, int], ...], most: int) -> tuple[int, int]:
    """Rows and parts with which `most` clusters take this batch at once: the fewest, or all."""
    fitting = [(rows, parts) for rows, parts in shapes if -(-batch // (rows * parts)) <= most]
    return fitting[0] if fitting else shapes[-1]


def forward(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    kernel: Tensor,
    bias: Tensor,
    more_bias: Tensor,
    lengths: Tensor | None,
    beside: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """y, c, gates, cells and packed of `lstm`, all arguments contiguous."""
    positions, batch, n = x.shape
    device = x.get_device()
    with torch.cuda.device(device):
        for_inputs, for_forward = x.new_empty(4 * n, n), x.new_empty(4 * n, n)
        packed, shift = x.new_empty(2, 4 * n, n), bias.new_empty(4 * n)
        prepare_kernel(device, "lstm_pack")(
            2048, kernel, bias, more_bias, for_inputs, packed[0], for_forward, packed[1], shift
        )
        gates = torch.mm(x.view(-1, n), for_inputs.t()).view(positions, batch, 4 * n)
        if lengths is not None:
            prepare_kernel(device, "lstm_pad")(positions * batch, gates, lengths, batch)
        rows, parts = split(batch, FORWARD, max(1, clusters(device) // beside))
        used = -(-batch // (rows * parts))
        y = torch.empty_like(x)
        cells = x.new_empty(positions + 1, batch, n)
        c = torch.empty_like(c0)
        exchange = x.new_empty(used * 2 * parts * n * rows)
        tensors = gates, for_forward, shift, h0, c0, y, cells, c, exchange
        forward_kernel(device, rows, parts)(CLUSTER * used, *tensors, positions, batch)
    return y, c, gates, cells, packed


def backward(
    dy: Tensor, dh: Tensor, dc: Tensor, gates: Tensor, cells: Tensor, packed: Tensor, beside: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of products, first state and interleaved bias, all arguments contiguous."""
    positions, batch, n = dy.shape
    device = dy.get_device()
    with torch.cuda.device(device):
        rows, parts = split(batch, BACKWARD, max(1, clusters(device) // beside))
        used = -(-batch // (rows * parts))
        dgates = torch.empty_like(gates)
        dh0 = torch.empty_like(dh)
        dc0 = torch.empty_like(dc)
        sums = dc.new_empty(8 * used, 4 * n)
        tensors = gates, packed[1], cells, dy, dh, dc, dgates, dh0, dc0, sums
        backward_kernel(device, rows, parts)(CLUSTER * used, *tensors, positions, batch)
    return dgates, dh0, dc0, sums.sum(0)


def persistent_lines() -> Iterator[str]:
    """Whether GPUs here run the persistent LSTM, and whether its build can be kept."""
    reasons = {library_instead(device) for device in devices()}
    for reason in sorted(filter(None, reasons)):
        yield (
            "persistent  the library's LSTM runs where recurrence 'persistent' is asked for:"
            f" {reason}"
        )
    if None in reasons:
        folder = build.cache_folder()
        if build.writable(folder):
            kept = f"kept in {folder}"
        else:
            kept = f"built anew by every process, since {folder} cannot be written"
        yield (
            "persistent  recurrence 'persistent' runs, its kernels built by NVRTC"
            f" {build.version()} and {kept}"
        )
