"""The ranks of a GPU test: with torchrun each is a process of its own, without it there is one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

RANK = int(os.environ.get("RANK", "0"))
RANKS = int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def joined() -> Iterator[None]:
    """The group of all ranks, as a worker of a Run makes it; also of one, which
    DistributedDataParallel wants.
    """
    device = torch.device("cuda", RANK)
    torch.cuda.set_device(device)
    alone: dict[str, Any] = {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group("cpu:gloo,cuda:nccl", device_id=device, **(alone if RANKS == 1 else {}))
    try:
        yield
    finally:
        dist.destroy_process_group()
