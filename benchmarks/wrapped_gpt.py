"""A GPT under `multigpu.wrap` beside plain PyTorch's, on the GPUs that torchrun starts it on.

torchrun --nproc-per-node 2 benchmarks/wrapped_gpt.py --points 774m:8,774m:1,124m:2 --out gpt.csv

A row a way and point: ms a step in several windows, peak memory, tokens a second, MFU, the host's
cost of a launch. `--equal` compares captured with eager training first. Needs torch alone.
"""

import argparse
import csv
import gc
import os
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from multigpu import wrap

WORDS, LENGTH, HEAD = 50304, 1024, 64
SIZES = {
    "tiny": (2, 128),
    "124m": (12, 768),
    "350m": (24, 1024),
    "774m": (36, 1280),
}  # layers, width
PEAK_FLOPS = 989e12  # of an H100 or H200 in bf16
RANK = int(os.environ.get("RANK", "0"))
RANKS = int(os.environ.get("WORLD_SIZE", "1"))
DEVICE = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


class Block(nn.Module):
    """Attention and two layers, each after its norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        parts = self.qkv(self.norm1(x)).split(width, -1)
        heads = [part.view(rows, length, -1, HEAD).transpose(1, 2) for part in parts]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """GPT-2 with its head tied to its embedding; returns the mean loss."""

    def __init__(self, layers: int, width: int, words: int = WORDS, length: int = LENGTH) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        for part in self.modules():
            if isinstance(part, nn.Linear | nn.Embedding):
                nn.init.normal_(part.weight, std=0.02)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        state = self.words(x) + self.places.weight[: x.shape[1]]
        for block in self.blocks:
            state = block(state)
        logits = self.head(self.norm(state))
        return F.cross_entropy(logits.flatten(0, 1).float(), target.flatten())


Batch = tuple[Tensor, Tensor]
Way = Callable[[nn.Module], tuple[Callable[[Batch], Any], Callable[[], list[str]]]]


def optimizer(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=3e-4, fused=True)


def wrapped(placement: str, execution: str, **settings: Any) -> Way:
    def make(model: nn.Module) -> Any:
        trainer = wrap(model, None, optimizer, placement, execution, precision="bf16", **settings)
        return trainer.step, lambda: [f"ran {trainer.ran}", *trainer.notes]

    return make


def plain(kind: str) -> Way:
    """As users write it: DistributedDataParallel, torch.compile around it, fully_shard."""

    def make(model: nn.Module) -> Any:
        torch.backends.cuda.matmul.allow_tf32 = True
        if RANKS > 1 and not dist.is_initialized():
            dist.init_process_group("cpu:gloo,cuda:nccl", device_id=DEVICE)
        called: nn.Module = model
        if kind == "fsdp2":
            policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
            for block in model.blocks:
                fully_shard(block, mp_policy=policy)
            fully_shard(model, mp_policy=policy)
        elif RANKS > 1:
            called = DistributedDataParallel(
                model, device_ids=[DEVICE.index], gradient_as_bucket_view=True
            )
        if kind == "ddp_compile":
            called = torch.compile(called)
        update = optimizer(model.parameters())

        def step(batch: Batch) -> Tensor:
            update.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16, enabled=kind != "fsdp2"):
                loss = called(*batch)
            loss.backward()
            update.step()
            return loss.detach()

        return step, list

    return make


WAYS: dict[str, Way] = {
    "fsdp2 captured": wrapped("fsdp2", "captured"),
    "plain ddp": plain("ddp"),
    "fsdp2 eager": wrapped("fsdp2", "eager"),
    "ddp compiled_captured": wrapped("ddp", "compiled_captured", check=False),
    "plain ddp + compile": plain("ddp_compile"),
    "ddp captured": wrapped("ddp", "captured", check=False),
    "fsdp2 compiled_captured": wrapped("fsdp2", "compiled_captured", check=False),
    "plain fsdp2": plain("fsdp2"),
}


def launch_cost_us() -> float:
    """Host time of one kernel launch, us: of 2,000 small ones, the median of five rounds."""
    value = torch.zeros(8, device=DEVICE)
    rounds = []
    for _ in range(5):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(400):
            value.add_(1.0)
        rounds.append((time.perf_counter() - began) / 400 * 1e6)
    torch.cuda.synchronize()
    return statistics.median(rounds)


def windows(step: Callable[[Batch], Any], batch: Batch, seconds: float, number: int) -> list[float]:
    """Ms a step in each of some windows of at least `seconds`."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(3):
        step(batch)
    torch.cuda.synchronize()
    guess = torch.tensor((time.perf_counter() - began) / 3, device=DEVICE)
    if RANKS > 1:
        dist.all_reduce(guess, op=dist.ReduceOp.MAX)
    count = max(3, int(1.1 * seconds / guess.item()))
    measured = []
    for _ in range(number):
        if RANKS > 1:
            dist.barrier(device_ids=[DEVICE.index])
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(count):
            step(batch)
        torch.cuda.synchronize()
        measured.append((time.perf_counter() - began) / count * 1e3)
    return measured


def measure(size: str, rows: int, name: str, seconds: float, number: int) -> dict[str, Any]:
    """One way at one point."""
    layers, width = SIZES[size]
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    torch.manual_seed(0)
    with DEVICE:
        model = GPT(layers, width)
    held = sum(each.numel() for each in model.parameters())
    flops = 6 * held + 12 * layers * width * LENGTH
    words = torch.randint(0, WORDS, (rows, LENGTH + 1), device=DEVICE)
    batch = (words[:, :-1].contiguous(), words[:, 1:].contiguous())
    began = time.perf_counter()
    step, notes = WAYS[name](model)
    for done in range(16 if "captured" in name else 5):
        step(batch)
        if done == 2:  # DDP has held first buckets beside rebuilt ones; the capture comes later
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
    torch.cuda.synchronize()
    ready = time.perf_counter() - began
    measured = windows(step, batch, seconds, number)
    middle = statistics.median(measured)
    rate = rows * LENGTH / middle * 1e3
    row = {
        "size": size,
        "batch": rows,
        "gpus": RANKS,
        "way": name,
        "ms": round(middle, 3),
        "windows_ms": " ".join(f"{each:.3f}" for each in measured),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
        "reserved_gib": round(torch.cuda.max_memory_reserved() / 2**30, 2),
        "tokens_s_gpu": round(rate),
        "mfu": round(rate * flops / PEAK_FLOPS, 3),
        "loss": round(float(step(batch)), 5),
        "ready_s": round(ready, 1),
        "launch_us": round(launch_cost_us(), 2),
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
        "notes": " | ".join(notes()),
    }
    return row


def equal(placement: str, steps: int = 20) -> str:
    """Captured against eager training and eager again: SGD, fp64, kernels that give the same bits
    each time; the greatest difference of any parameter after all steps.
    """
    torch.use_deterministic_algorithms(True, warn_only=True)
    trained = []
    forms = []
    for execution in ("eager", "captured", "eager"):
        torch.manual_seed(0)
        with DEVICE:
            model = GPT(2, 128, 512, 64).double()
        trainer = wrap(
            model, None, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), placement, execution
        )
        generator = torch.Generator().manual_seed(RANK)
        for _ in range(steps):
            words = torch.randint(0, 512, (4, 65), generator=generator)
            trainer.step((words[:, :-1], words[:, 1:]))
        forms.append(trainer.form)
        trained.append(trainer.state_dict()["model"])
    torch.use_deterministic_algorithms(False)
    first, captured, again = trained
    apart = max((first[name] - captured[name]).abs().max().item() for name in first)
    noise = max((first[name] - again[name]).abs().max().item() for name in first)
    return (
        f"{placement}, {steps} steps, ran as {forms}: captured from eager {apart:.3g},"
        f" eager from eager {noise:.3g}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=sorted(SIZES), help="with --batch, one point")
    parser.add_argument("--batch", type=int, help="samples a GPU")
    parser.add_argument("--points", default="", help="SIZE:BATCH or SIZE:BATCH:FIRST_N_WAYS, ...")
    parser.add_argument("--ways", default="", help="names, separated by commas; default: all")
    parser.add_argument("--seconds", type=float, default=2.0, help="least length of a window")
    parser.add_argument("--windows", type=int, default=3)
    parser.add_argument("--limit", type=float, default=1e9, help="s by which it shall end")
    parser.add_argument("--equal", action="store_true", help="compare captured with eager first")
    parser.add_argument("--out", type=Path, help="a CSV file")
    told = parser.parse_args()
    began = time.perf_counter()
    warnings.simplefilter("ignore")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.cuda.set_device(DEVICE)
    points = [each.split(":") for each in told.points.split(",") if each]
    if told.size and told.batch:
        points.append([told.size, str(told.batch)])
    names = [each.strip() for each in told.ways.split(",") if each.strip()] or list(WAYS)
    if told.equal:
        for placement in ("ddp", "fsdp2") if RANKS > 1 else ("one",):
            said = equal(placement)
            if RANK == 0:
                print(said, flush=True)
    rows: list[dict[str, Any]] = []
    longest = 0.0
    for size, count, *first in points:
        for name in names[: int(first[0]) if first else None]:
            at = time.perf_counter() - began
            late = torch.tensor(float(at + longest > told.limit), device=DEVICE)
            if dist.is_initialized():
                dist.all_reduce(late)
            if late.item():
                continue
            try:
                row = measure(size, int(count), name, told.seconds, told.windows)
            except torch.OutOfMemoryError as error:
                row = {"size": size, "batch": count, "way": name, "notes": str(error)[:200]}
            longest = max(longest, time.perf_counter() - began - at)
            rows.append(row)
            if RANK == 0:
                print({key: value for key, value in row.items() if value != ""}, flush=True)
                if told.out:
                    write(told.out, rows)
    gc.collect()  # graphs, before the communicator whose kernels they hold
    if dist.is_initialized():
        dist.destroy_process_group()


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, names)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
