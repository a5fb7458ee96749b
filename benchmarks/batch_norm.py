"""Plans of fused batch norm's kernels on this GPU: how long all batch norms of a model take, one
plan changed at a time.

    python benchmarks/batch_norm.py --model resnet50_v1.5 --batch 64

What is fastest goes into `multigpu/kernels/batch_norm_launch.py` once
`tests/multigpu/kernels/test_batch_norm.py` has passed with it.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from multigpu.kernels import batch_norm_launch as launch
from multigpu.kernels.batch_norm import library_instead
from multigpu.kernels.batch_norm_launch import Norm, Pool
from multigpu.kernels.batch_norm_plans import TilePlan
from multigpu.workloads import find_model
from multigpu.workloads.cnn.torch import build
from multigpu.workloads.cnn.torch_fused import FusedNorm

SUMS = [
    TilePlan(tile, warps, stages, programs)
    for tile, warps, stages, programs in (
        (4096, 8, 3, 2),
        (4096, 4, 4, 4),
        (4096, 16, 4, 2),
        (2048, 4, 4, 4),
        (8192, 16, 3, 1),
        (8192, 16, 2, 2),
    )
]
MAPS = [
    TilePlan(tile, warps, tiles=tiles)
    for tile, warps, tiles in ((4096, 4, 1), (4096, 8, 1), (2048, 4, 1), (8192, 8, 1), (1024, 4, 2))
]
PLANS = {"MOMENTS": SUMS, "NORMALISE": MAPS, "SUMS": SUMS, "GRADIENTS": MAPS}
"""Kernel -> the plans that are tried beside its own."""


@dataclass
class Layer:
    """One batch norm of the model: the shape that it normalises, whether something is added, and
    what follows.
    """

    shape: tuple[int, ...]
    added: bool
    relu: bool
    pool: Pool
    twice: bool

    def images(self, device: str, pooled: bool = False) -> Tensor:
        shape = (
            self.shape
            if not pooled or not self.pool.sides
            else (*self.shape[:2], self.pool.high, self.pool.wide)
        )
        return torch.randn(shape, device=device, dtype=torch.bfloat16).contiguous(
            memory_format=torch.channels_last
        )

    def passes(self, device: str) -> tuple[Callable[[], object], Callable[[], object]]:
        """Forward and backward on tensors of its own."""
        x, after = self.images(device), self.images(device) if self.added else None
        dy, more = (
            self.images(device, pooled=True),
            self.images(device, pooled=True) if self.twice and self.added else None,
        )
        weight, bias, mean, variance = (
            torch.rand(4, self.shape[1], device=device).add_(0.5).unbind()
        )
        arrivals = torch.zeros(self.shape[1], dtype=torch.int32, device=device)

        def forward() -> tuple[Tensor, Tensor]:
            found = launch.moments(x, mean, variance, arrivals, 0.1, 1e-5)
            return launch.forward(x, Norm(weight, bias, *found), after, self.relu, self.pool)

        y, taps = forward()
        kept = (
            dy,
            more,
            x,
            y if self.added else None,
            Norm(weight, bias, mean, variance),
            taps,
            arrivals,
            self.relu,
            self.pool,
        )
        return forward, lambda: launch.backward(*kept)


def layers(model: str, batch: int, device: str) -> list[Layer]:
    """The batch norms of a model, as one pass meets them."""
    description, found = find_model("cnn", model), list[Layer]()
    module = build(description, "channels_last", "fused").to(device)
    for norm in (part for part in module.modules() if isinstance(part, FusedNorm)):
        norm.register_forward_pre_hook(
            lambda norm, given: found.append(
                Layer(
                    tuple(given[0].shape),
                    len(given) > 1,
                    norm.relu,
                    Pool(*norm.numbers),
                    norm.twice,
                )
            )
        )
    with torch.no_grad(), torch.autocast(device, dtype=torch.bfloat16):
        module.logits(torch.zeros(batch, *description.config.image_shape, device=device))
    return found


def milliseconds(calls: list[Callable[[], object]], times: int) -> float:
    """Of all calls once, as one CUDA graph where there are graphs; the least of three windows."""

    def once() -> None:
        for call in calls:
            call()

    once()
    run, wait = once, lambda: None
    if torch.cuda.is_available():
        graph, wait = torch.cuda.CUDAGraph(), torch.cuda.synchronize
        wait()
        with torch.cuda.graph(graph):
            once()
        run = graph.replay
    found = []
    for _ in range(3):
        wait()
        start = time.perf_counter()
        for _ in range(times):
            run()
        wait()
        found.append((time.perf_counter() - start) / times * 1e3)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--model", default="resnet50_v1.5", help="an image model with batch norms")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--times", type=int, default=20, help="passes of a window")
    parser.add_argument(
        "--kernels", nargs="+", choices=PLANS, default=list(PLANS), help="whose plans are tried"
    )
    options = parser.parse_args()
    if not torch.cuda.is_available() or (reason := library_instead(torch.device("cuda"))):
        parser.error(
            "plans are of a GPU's kernels:"
            f" {reason if torch.cuda.is_available() else 'there is no GPU here'}"
        )
    compare(options.model, options.batch, options.times, options.kernels, "cuda")


def compare(model: str, batch: int, times: int, kernels: list[str], device: str) -> None:
    """Print a line a plan; each kernel goes on with the fastest of its own."""
    passes = [layer.passes(device) for layer in layers(model, batch, device)]
    forward, backward = ([one[side] for one in passes] for side in (0, 1))
    for kernel in kernels:
        calls = forward if kernel in ("MOMENTS", "NORMALISE") else backward
        found: list[tuple[float, TilePlan]] = []
        for plan in (getattr(launch, kernel), *PLANS[kernel]):
            setattr(launch, kernel, plan)
            try:
                found.append((milliseconds(calls, times), plan))
                print(f"{kernel:10} {found[-1][0]:8.3f} ms  {plan}", flush=True)
            except Exception as error:  # a plan may ask for more shared memory than there is
                print(f"{kernel:10} cannot be: {plan}: {str(error).splitlines()[0]}", flush=True)
        setattr(launch, kernel, replace(min(found, key=lambda one: one[0])[1]))


if __name__ == "__main__":
    main()
