"""Measure what cuDNN's search for kernels costs where the threads of a step are new in each step.

python benchmarks/data_parallel_search.py --launch 0 --out data/benchmarks/data_parallel_search.csv

torchvision's ResNet-50 in TF32, channels first, synthetic images: on one GPU and under
nn.DataParallel, with `torch.backends.cudnn.benchmark` off and on. What a thread found is forgotten
with it, and nn.DataParallel starts threads in each step. Rows are appended; needs torch,
torchvision and two GPUs.
"""

import argparse
import csv
import time
from datetime import UTC, datetime
from pathlib import Path

import torch
import torchvision
from torch import nn

BATCH, WARMUPS = 128, 2
STEPS = {False: 20, True: 6}
COLUMNS = ("way", "gpus", "search", "batch", "steps", "step_ms", "launch", "torch", "measured_on")


def step_ms(net: nn.Module, steps: int) -> float:
    """Return the mean milliseconds of a training step."""
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    images = torch.randn(BATCH, 3, 224, 224, device="cuda")
    targets = torch.randint(0, 1000, (BATCH,), device="cuda")

    def train(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(net(images), targets).backward()
            optimizer.step()
        torch.cuda.synchronize()

    train(WARMUPS)
    began = time.perf_counter()
    train(steps)
    return 1e3 * (time.perf_counter() - began) / steps


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launch", type=int, default=0, help="number of this call, of several")
    parser.add_argument("--out", type=Path, required=True, help="a CSV file, appended to")
    asked = parser.parse_args()
    if torch.cuda.device_count() < 2:
        parser.error(f"{torch.cuda.device_count()} GPUs are here: nn.DataParallel needs two")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    module = torchvision.models.resnet50().cuda()
    ways: dict[str, tuple[nn.Module, int]] = {
        "one GPU": (module, 1),
        "nn.DataParallel": (nn.DataParallel(module, [0, 1]), 2),
    }
    is_new = not asked.out.exists()
    with asked.out.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if is_new:
            writer.writerow(COLUMNS)
        for way, (net, gpus) in ways.items():
            for search in (False, True):
                torch.backends.cudnn.benchmark = search
                steps = STEPS[search and gpus > 1]
                took = f"{step_ms(net, steps):.1f}"
                day = datetime.now(UTC).date()
                writer.writerow(
                    (way, gpus, search, BATCH, steps, took, asked.launch, torch.__version__, day)
                )
                file.flush()


if __name__ == "__main__":
    main()
