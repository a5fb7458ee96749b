"""Exchange objects among processes, read as checkpoints are (`weights_only`), where
`all_gather_object` would run their code.
"""

import io
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def _packed(value: Any) -> Tensor:
    held = io.BytesIO()
    torch.save(value, held)
    return torch.frombuffer(held.getbuffer(), dtype=torch.uint8)


def _unpacked(content: Tensor) -> Any:
    return torch.load(io.BytesIO(content.numpy().tobytes()), map_location="cpu", weights_only=True)


def _alone() -> bool:
    return not dist.is_initialized() or dist.get_world_size() == 1


def _sizes(mine: Tensor) -> list[int]:
    """Of every process's bytes, by rank."""
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(mine)]))
    return [int(size) for size in sizes]


def all_gather(value: Any) -> list[Any]:
    """Every process's value, by rank; tensors of others are on the CPU."""
    if _alone():
        return [value]
    mine = _packed(value)
    sizes = _sizes(mine)
    parts = [torch.empty(max(sizes), dtype=torch.uint8) for _ in sizes]
    dist.all_gather(parts, torch.nn.functional.pad(mine, (0, max(sizes) - len(mine))))
    return [_unpacked(part[:size]) for part, size in zip(parts, sizes, strict=True)]


def gather(value: Any) -> list[Any] | None:
    """As `everyone`, in the first process; None in the others."""
    if _alone():
        return [value]
    mine = _packed(value)
    sizes = _sizes(mine)
    if dist.get_rank():
        dist.send(mine, 0)
        return None
    found = [value]
    for other, size in enumerate(sizes[1:], 1):
        part = torch.empty(size, dtype=torch.uint8)
        dist.recv(part, other)
        found.append(_unpacked(part))
    return found


def broadcast(value: Any) -> Any:
    """The first process's value, in all of them."""
    if _alone():
        return value
    first = dist.get_rank() == 0
    content = _packed(value) if first else torch.empty(0, dtype=torch.uint8)
    size = torch.tensor([len(content)])
    dist.broadcast(size, 0)
    if not first:
        content = torch.empty(int(size), dtype=torch.uint8)
    dist.broadcast(content, 0)
    return value if first else _unpacked(content)
