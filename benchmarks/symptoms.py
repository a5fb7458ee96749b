"""Measure symptoms that users of several GPUs report, each beside the line that mends it.

    python benchmarks/symptoms.py --out symptoms.csv                 # two CPU processes, 2 minutes
    python benchmarks/symptoms.py --device cuda --out symptoms.csv   # two GPUs, 1 minute

half_batches: one step of N against 2 x N/2: by how much the training differs. buckets: the sizes
that DistributedDataParallel uses. graphs: what torch.compile makes of a model under it. threads:
two processes with OMP_NUM_THREADS unset, 1 and cores over ranks. sizes: ranks whose inputs differ
in size. server: devices of a worker that send their gradients each by itself, or as one sum.
"""

import argparse
import csv
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as reduced
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from multigpu.analysis.statistics import mean_interval
from multigpu.workloads import find_workload

RANKS, STEPS, ROWS = 2, 20, 16
Row = dict[str, Any]


def row(symptom: str, case: str, quantity: str, values: Any, remedy: str = "") -> Row:
    """Return a row of the table: the mean of these values with its 95% interval."""
    every = [float(value) for value in (values if isinstance(values, list) else [values])]
    low, high = mean_interval(every) if len(every) > 1 else (math.nan, math.nan)
    return {
        "symptom": symptom,
        "case": case,
        "quantity": quantity,
        "value": f"{statistics.fmean(every):.6g}",
        "low": "" if math.isnan(low) else f"{low:.6g}",
        "high": "" if math.isnan(high) else f"{high:.6g}",
        "n": len(every),
        "remedy": remedy,
    }


# --- one step of N against two of N/2


class Synced(nn.Module):
    """Batch norm over all ranks' rows, as SyncBatchNorm, which runs on GPUs alone."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not dist.is_initialized() or not self.joined:
            mean, square = x.mean(0), (x * x).mean(0)
        else:
            both = reduced.all_reduce(torch.stack([x.mean(0), (x * x).mean(0)])) / RANKS
            mean, square = both
        return (x - mean) / (square - mean * mean + 1e-5).sqrt() * self.weight + self.bias

    joined = True


def network(middle: Callable[[int], nn.Module]) -> nn.Sequential:
    """Return a small network with this layer in the middle, always of the same weights."""
    torch.manual_seed(0)
    layers = nn.Linear(12, 24), middle(24), nn.Tanh(), nn.Linear(24, 5)
    return nn.Sequential(*layers).double()


Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool], torch.Tensor]


def mean_loss(out: torch.Tensor, y: torch.Tensor, kept: torch.Tensor, mine: bool) -> torch.Tensor:
    """The mean over this process's rows that count."""
    return (nn.functional.cross_entropy(out, y, reduction="none") * kept).sum() / kept.sum()


def sum_loss(out: torch.Tensor, y: torch.Tensor, kept: torch.Tensor, mine: bool) -> torch.Tensor:
    """The sum over this process's rows, as a step of N divides it."""
    return (nn.functional.cross_entropy(out, y, reduction="none") * kept).sum() / 64


def summed(out: torch.Tensor, y: torch.Tensor, kept: torch.Tensor, mine: bool) -> torch.Tensor:
    """The sum, times the ranks by which DistributedDataParallel divides."""
    return sum_loss(out, y, kept, mine) * (RANKS if mine else 1)


def weighted(out: torch.Tensor, y: torch.Tensor, kept: torch.Tensor, mine: bool) -> torch.Tensor:
    """The sum over all ranks' rows that count, for which each rank asks how many there are."""
    count = kept.sum()
    if mine:
        dist.all_reduce(count)
    each = nn.functional.cross_entropy(out, y, reduction="none") * kept
    return each.sum() * (RANKS if mine else 1) / count


def trained(
    model: nn.Module, loss: Loss, shares: list[slice], padded: bool, mine: bool, seed: int
) -> torch.Tensor:
    """Train on the same 20 batches, of which this process has the rows of `shares`; return the
    weights.
    """
    draw = torch.Generator().manual_seed(1)
    torch.manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        x = torch.randn(ROWS, 12, generator=draw, dtype=torch.float64)
        y = torch.randint(5, (ROWS,), generator=draw)
        kept = torch.ones(ROWS, dtype=torch.float64)
        if padded:  # rows are tokens; short sentences of the second half are mostly padding
            kept[ROWS // 2 + 2 :] = 0
        rows = shares[dist.get_rank() if mine else 0]
        optimizer.zero_grad()
        loss(model(x[rows]), y[rows], kept[rows], mine).backward()
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


EQUAL = [slice(0, ROWS // 2), slice(ROWS // 2, ROWS)]
UNEQUAL = [slice(0, 3 * ROWS // 4), slice(3 * ROWS // 4, ROWS)]
HALVES: dict[str, tuple[Callable[[int], nn.Module], Loss, list[slice], bool, str]] = {
    "no layer that sees the batch": (lambda w: nn.Identity(), mean_loss, EQUAL, False, ""),
    "batch norm": (nn.BatchNorm1d, mean_loss, EQUAL, False, ""),
    "batch norm over all ranks": (
        Synced,
        mean_loss,
        EQUAL,
        False,
        "SyncBatchNorm.convert_sync_batchnorm(model)",
    ),
    "dropout": (lambda w: nn.Dropout(0.1), mean_loss, EQUAL, False, ""),
    "sum loss": (lambda w: nn.Identity(), sum_loss, EQUAL, False, ""),
    "sum loss times ranks": (
        lambda w: nn.Identity(),
        summed,
        EQUAL,
        False,
        "loss = loss * dist.get_world_size()",
    ),
    "mean loss of unequal shards": (lambda w: nn.Identity(), mean_loss, UNEQUAL, False, ""),
    "unequal shards weighted": (
        lambda w: nn.Identity(),
        weighted,
        UNEQUAL,
        False,
        "loss = loss_sum * dist.get_world_size() / rows_of_all_ranks",
    ),
    "mean over tokens of padded shards": (lambda w: nn.Identity(), mean_loss, EQUAL, True, ""),
    "tokens weighted": (
        lambda w: nn.Identity(),
        weighted,
        EQUAL,
        True,
        "loss = loss_sum * dist.get_world_size() / tokens_of_all_ranks",
    ),
}


def half_batches(device: torch.device) -> Iterator[Row]:
    """Yield by how much 20 steps of 2 x N/2 part from 20 steps of N, as a share of their way."""
    for case, (middle, loss, shares, padded, remedy) in HALVES.items():
        model = network(middle)
        start = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        Synced.joined = True
        split = trained(
            DistributedDataParallel(model), loss, shares, padded, True, 7 + dist.get_rank()
        )
        Synced.joined = False
        whole = trained(network(middle), loss, [slice(0, ROWS)], padded, False, 7)
        apart = float((split - whole).norm() / (whole - start).norm())
        yield row("half_batches", case, "apart", apart, remedy)
    tokens = (ROWS // 2, 2)
    fair = sum(tokens) / RANKS
    for rank, own in enumerate(tokens):
        yield row("half_batches", f"weight of a token of rank {rank}", "times", fair / own)


# --- what DistributedDataParallel and torch.compile make of a model


class Weights(nn.Module):
    """The variables of one of the study's networks, each used once."""

    def __init__(self, model: str) -> None:
        super().__init__()
        variables = find_workload("cnn").models[model].variables
        self.own = nn.ParameterList([torch.zeros(one.shape) for one in variables])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.own:
            x = x + weight.sum()
        return x


def buckets(device: torch.device) -> Iterator[Row]:
    """Yield the sizes of buckets after the first step, in which they are ordered anew."""
    for cap in (25, 100):
        asked = None if cap == 25 else cap  # None: 25, but for a first bucket of 1
        model = DistributedDataParallel(Weights("resnet50_v1.5").to(device), bucket_cap_mb=asked)
        for _ in range(3):
            model(torch.ones(1, device=device)).sum().backward()
        told = model._get_ddp_logging_data()
        sizes = told.get("rebuilt_bucket_sizes") or told["bucket_sizes"]
        for number, size in enumerate(str(sizes).split(","), 1):
            yield row("buckets", f"cap {cap} MiB, bucket {number}", "MiB", float(size) / 2**20)


class Matrices(nn.Module):
    """Eight matrices, in a module of the user's own: the library's alone are not compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(512, 512) for _ in range(8)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def graphs(device: torch.device) -> Iterator[Row]:
    """Yield how many graphs torch.compile makes under DDP, autocast on, and whether it may be asked
    for one.
    """
    for optimized in (True, False):
        for whole in (False, True):
            torch._dynamo.reset()
            torch._dynamo.config.optimize_ddp = optimized
            count = [0]

            def counted(graph: Any, inputs: Any, count: list[int] = count) -> Any:
                count[0] += 1
                return graph.forward

            model = DistributedDataParallel(Matrices().to(device), bucket_cap_mb=2)
            compiled = torch.compile(model, backend=counted, fullgraph=whole)
            failed = 0
            try:
                for _ in range(2):
                    with torch.autocast(device.type, dtype=torch.bfloat16):
                        out = compiled(torch.ones(4, 512, device=device))
                    out.float().sum().backward()
            except Exception as error:
                failed = 1
                print(f"optimize_ddp={optimized} fullgraph={whole}: {str(error)[:300]}")
            case = f"optimize_ddp={optimized}, fullgraph={whole}"
            yield row("graphs", case, "failed" if failed else "graphs", failed or count[0])
    torch._dynamo.config.optimize_ddp = True


# --- time that ranks lose


def work_of(size: int, layer: nn.Module, device: torch.device) -> None:
    """Compute with one picture of this size."""
    layer(torch.ones(2, 8, size, size, device=device)).sum().backward()
    if device.type == "cuda":
        torch.cuda.synchronize()


def sizes(device: torch.device) -> Iterator[Row]:
    """Yield what share of a step ranks wait for each other and for the network, where each draws a
    size of its own and where all draw the same.
    """
    layer = nn.Sequential(nn.Conv2d(8, 32, 3), nn.ReLU(), nn.Conv2d(32, 8, 3)).to(device)
    gradient = torch.ones(500_000, device=device)
    for case, own in (("a size a rank", True), ("one size a step", False)):
        draw = torch.Generator().manual_seed(5 + (dist.get_rank() if own else 0))
        waits, sends = [], []
        for step in range(60):
            size = int(torch.randint(48, 160, (1,), generator=draw))
            begun = time.perf_counter()
            work_of(size, layer, device)
            ready = time.perf_counter()
            dist.barrier()
            together = time.perf_counter()
            dist.all_reduce(gradient)
            if device.type == "cuda":
                torch.cuda.synchronize()
            whole = time.perf_counter() - begun
            if step >= 10:
                waits.append((together - ready) / whole)
                sends.append((time.perf_counter() - together) / whole)
        shares = torch.tensor([statistics.fmean(waits), statistics.fmean(sends)], device=device)
        dist.all_reduce(shares)
        remedy = "" if own else "a sampler that gives every rank the same size in a step"
        for quantity, share in zip(("waiting_share", "network_share"), shares / RANKS, strict=True):
            yield row("sizes", case, quantity, float(share), remedy)


def server(device: torch.device) -> Iterator[Row]:
    """Yield the time of a step in which 1, 4 and 8 devices of a worker send 4 MB of gradients to a
    server and fetch as much, each by itself; and as one sum. Rank 0 serves, rank 1 is the worker.
    """
    tensor = torch.ones(10**6, device=device)
    for devices in (1, 4, 8):
        for case, messages in (("each by itself", devices), ("one sum", 1)):
            took = []
            for _ in range(12):
                dist.barrier()
                begun = time.perf_counter()
                parts = [tensor.clone() for _ in range(devices)] if dist.get_rank() else []
                if parts and messages == 1:
                    parts = [torch.stack(parts).sum(0)]
                for number in range(messages):
                    if dist.get_rank():
                        dist.send(parts[number], 0)
                        dist.recv(parts[number], 0)
                    else:
                        dist.recv(tensor, 1)
                        dist.send(tensor, 1)
                if device.type == "cuda":
                    torch.cuda.synchronize()
                took.append(1e3 * (time.perf_counter() - begun))
            remedy = "sum over a worker's devices first" if messages < devices else ""
            yield row("server", f"{devices} devices, {case}", "ms", took[2:], remedy)


TOGETHER = (half_batches, buckets, graphs, sizes, server)


def rate(device: torch.device) -> Iterator[Row]:
    """Yield steps/s of two processes that train a network of matrices."""
    model = DistributedDataParallel(
        nn.Sequential(*(nn.Linear(512, 512) for _ in range(4))).to(device)
    )
    rates = []
    for window in range(6):
        begun = time.perf_counter()
        for _ in range(4):
            model(torch.ones(64, 512, device=device)).sum().backward()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if window:
            rates.append(4 / (time.perf_counter() - begun))
    yield row("threads", os.environ.get("MULTIGPU_CASE", ""), "steps/s", rates)


def work() -> None:
    """Run one rank; rank 0 writes its rows."""
    kind, out = os.environ["SYMPTOMS"].split(",", 1)
    rank = int(os.environ["RANK"])
    device = torch.device("cpu")
    if os.environ["SYMPTOMS_DEVICE"] == "cuda":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    asked = [part for part in (*TOGETHER, rate) if part.__name__ in kind.split("+")]
    rows = []
    for part in asked:
        rows += list(part(device))
        dist.barrier()
    if rank == 0:
        with open(out, "a", newline="") as file:
            csv.DictWriter(file, rows[0]).writerows(rows)
    dist.destroy_process_group()


def launch(kinds: str, out: Path, device: str, **environment: str | None) -> None:
    """Run two ranks of this script."""
    told = {**os.environ, "OMP_NUM_THREADS": "1", "SYMPTOMS": f"{kinds},{out}"}
    told["SYMPTOMS_DEVICE"] = device
    for name, value in environment.items():
        told.pop(name, None)
        if value is not None:
            told[name] = value
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        told |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, "--rank"],
            env=told | {"RANK": str(rank), "WORLD_SIZE": str(RANKS)},
        )
        for rank in range(RANKS)
    ]
    failed = [process.wait() for process in ranks]
    if any(failed):
        raise RuntimeError(f"ranks of {kinds} ended with {failed}")


def main() -> int:
    """Measure every symptom, or those named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", action="append", help="a symptom by its name")
    parser.add_argument("--out", type=Path, default=Path("symptoms.csv"))
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        work()
        return 0
    if arguments.device == "cuda" and torch.cuda.device_count() < RANKS:
        print(
            f"symptoms.py --device cuda needs {RANKS} GPUs: this machine has"
            f" {torch.cuda.device_count()}",
            file=sys.stderr,
        )
        return 2
    known = [part.__name__ for part in TOGETHER] + ["threads"]
    asked = arguments.only or known
    if unknown := set(asked) - set(known):
        print(f"unknown {', '.join(unknown)}: choose of {', '.join(known)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder, "rows.csv")
        together = "+".join(name for name in asked if name != "threads")
        if together:
            launch(together, rows, arguments.device)
        if "threads" in asked:
            each = max(1, (os.cpu_count() or 1) // RANKS)
            for case, value in (("unset", None), ("1", "1"), ("cores over ranks", str(each))):
                launch("rate", rows, arguments.device, OMP_NUM_THREADS=value, MULTIGPU_CASE=case)
        head = [*row("", "", "", 0), "device", "cores", "torch"]
        about = f"{arguments.device},{os.cpu_count()},{torch.__version__}"
        lines = [f"{line},{about}" for line in rows.read_text().splitlines()]
        arguments.out.write_text("\n".join([",".join(head), *lines]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
