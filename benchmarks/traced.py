"""A script of a kind that people bring: a small network trained in plain PyTorch, traced by its
profiler on one or several GPUs.

    python benchmarks/traced.py FOLDER [--ranks 2] [--cause host|input|none|late]

Writes FOLDER/CAUSE-RANK.json.gz of four steps. host: many small kernels, each launched by the host.
input: a loader that takes 30 ms to
make a batch. late: rank 1 sleeps 15 ms in each step.
    `tests/multigpu/user_model/test_script_trace.py` reads what it wrote on the machines that
`ORIGIN.md` names.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

WARMUP_STEPS, STEPS = 3, 4


class Batches(Dataset[tuple[Tensor, Tensor]]):
    """Whole batches, each made in so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return WARMUP_STEPS + STEPS

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index >= len(self):
            raise IndexError(index)
        time.sleep(self.seconds)
        return torch.randn(8192, 64), torch.randint(10, (8192,))


def network(cause: str) -> nn.Module:
    """Wide layers; deep and narrow ones where the host is to be the slower of the two."""
    if cause == "host":
        return nn.Sequential(
            *(nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(40)),
            nn.Linear(64, 10),
        )
    return nn.Sequential(
        nn.Linear(64, 4096),
        nn.GELU(),
        *(nn.Linear(4096, 4096) for _ in range(6)),
        nn.Linear(4096, 10),
    )


def train(rank: int, ranks: int, cause: str, folder: str) -> None:
    """One process: seven steps, of which the last four are traced."""
    torch.cuda.set_device(rank)
    model: nn.Module = network(cause).cuda()
    if ranks > 1:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29501"}
        torch.distributed.init_process_group("nccl", rank=rank, world_size=ranks)
        model = DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    out = f"{folder}/{cause}-{rank}.json.gz"
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    batches = DataLoader(Batches(0.03 if cause == "input" else 0), batch_size=None)
    cycle = schedule(wait=0, warmup=WARMUP_STEPS, active=STEPS, repeat=1)
    with profile(
        activities=activities,
        schedule=cycle,
        on_trace_ready=lambda one: one.export_chrome_trace(out),
    ) as profiler:
        for x, y in batches:
            loss = F.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
            if cause == "late" and rank == 1:
                torch.cuda.synchronize()
                time.sleep(0.015)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if cause == "host":
                loss.item()
            profiler.step()
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--cause", nargs="+", default=["none"])
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for cause in options.cause:
        mp.spawn(train, (options.ranks, cause, str(options.folder)), options.ranks)
