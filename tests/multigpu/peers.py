"""What a replica reaches of all replicas' memory, where replicas are processes on CPUs."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class FilePeers:
    """As `engines.torch.symmetric_memory.PeerMemory`, in a file of the folder for each replica."""

    def __init__(
        self, folder: Path, group: Any, device: torch.device, numbers: int, dtype: torch.dtype
    ) -> None:
        self.rank, self.replicas = group.rank(), group.size()
        paths = [f"{folder}/peers{rank}" for rank in range(self.replicas)]
        self._open(paths[self.rank], numbers, dtype).fill_(torch.nan)
        self.meet()
        self.memory = [self._open(path, numbers, dtype) for path in paths]

    @staticmethod
    def _open(path: str, numbers: int, dtype: torch.dtype) -> Tensor:
        return torch.from_file(path, shared=True, size=numbers, dtype=dtype)

    def of(self, rank: int, start: int, count: int) -> Tensor:
        return self.memory[rank][start : start + count]

    def meet(self) -> None:
        dist.barrier()
