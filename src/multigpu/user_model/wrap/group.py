"""The processes that train together: one a device, started by torchrun, or this one alone."""

import os

import torch
import torch.distributed as dist
from torch import Tensor

MADE: list[bool] = []
"""Whether this process's group was made here, and so is to be closed here."""


class Group:
    """The ranks of one training: this process's rank, their number, its device, collectives.

    device: the device to train on; by default the GPU of LOCAL_RANK, else the CPU.
    """

    def __init__(self, device: torch.device | str | None = None) -> None:
        self.device = self._device(device)
        if not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            if "RANK" not in os.environ:
                raise ValueError(
                    f"WORLD_SIZE={os.environ['WORLD_SIZE']} is set and RANK is not: start the"
                    " script with torchrun --nproc-per-node N"
                )
            cuda = self.device.type == "cuda"
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if cuda else "gloo", device_id=self.device if cuda else None
            )
            MADE.append(True)
        self.size = dist.get_world_size() if dist.is_initialized() else 1
        self.rank = dist.get_rank() if dist.is_initialized() else 0

    @staticmethod
    def _device(device: torch.device | str | None) -> torch.device:
        if device is None:
            if not torch.cuda.is_available():
                return torch.device("cpu")
            local = int(os.environ.get("LOCAL_RANK", "0"))
            if local >= torch.cuda.device_count():
                raise ValueError(
                    f"LOCAL_RANK={local}, and this host has {torch.cuda.device_count()} GPUs:"
                    " start at most one process a GPU"
                )
            device = torch.device("cuda", local)
        device = torch.device(device)
        if device.type not in ("cpu", "cuda"):
            raise ValueError(f"device={str(device)!r} is not supported: give 'cpu' or 'cuda:N'")
        if device.type == "cuda":
            if not torch.cuda.is_available():
                raise ValueError(f"device={str(device)!r}, and PyTorch finds no GPU: give 'cpu'")
            device = torch.device("cuda", device.index or 0)
            torch.cuda.set_device(device)
        return device

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all ranks, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def from_rank(self, tensor: Tensor, source: int = 0) -> None:
        """Overwrite a contiguous tensor on this group's device by that of rank `source`."""
        if self.size > 1:
            dist.broadcast(tensor, src=source)

    def agree(self, good: bool) -> bool:
        """Tell whether all ranks say yes; every rank must ask."""
        if self.size == 1:
            return good
        answer = torch.tensor(int(good), device=self.device)
        dist.all_reduce(answer, op=dist.ReduceOp.MIN)
        return bool(answer.item())


def close_group() -> None:
    """Destroy the process group, if it was made here and still is."""
    if MADE and dist.is_initialized():
        MADE.clear()
        dist.destroy_process_group()
