"""Train the largest GPT that `fits` forecasts for this GPU's memory, and one a tenth larger.

torchrun --nproc-per-node 2 benchmarks/largest_gpt.py --out data/benchmarks/largest_gpt.csv

What a step adds is linear in the number of blocks, so two small depths are followed as `fits` does;
what is kept follows from the placement's row. The depth at which both reach the memory that the
device reports is the largest one. Three steps of it shall
train, and of a tenth more blocks none. A row a depth: the forecast, the peak, what came of it.
"""

import argparse
import csv
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import torch
import torch.nn.functional as F
from torch import Tensor
from wrapped_gpt import DEVICE, GPT, HEAD, LENGTH, RANK, RANKS, WORDS, optimizer

import multigpu
from multigpu import wrap
from multigpu.build import build_run
from multigpu.placements.memory import most_kept
from multigpu.user_model.activations import activations_of
from multigpu.user_model.fits import CONTEXT_BYTES, GIB
from multigpu.workloads.gpt.description import MODELS, GptConfig, describe

SHALLOW = (2, 4)
"""Blocks of the two models whose steps are followed."""


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    words = torch.randint(0, WORDS, (n, LENGTH + 1), generator=generator)
    return words[:, :-1].contiguous(), words[:, 1:].contiguous()


class Logits(GPT):
    """The GPT as a job writes it: logits, and the loss apart."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        state = self.words(x) + self.places.weight[: x.shape[1]]
        for block in self.blocks:
            state = block(state)
        return self.head(self.norm(state))


def loss(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), target.flatten())


def activations(width: int, rows: int) -> tuple[float, float]:
    """Bytes that a step adds without any block, and with each block more."""
    found = []
    for layers in SHALLOW:
        job = multigpu.Job(
            partial(Logits, layers, width),
            batch,
            loss,
            multigpu.AdamW(3e-4),
            batch_size=max(rows, 4),  # two and four sequences are followed
            precision="bf16",
        )
        followed = activations_of(job, "bf16", False)
        assert followed is not None
        found.append(followed.of(rows))
    each = (found[1] - found[0]) / (SHALLOW[1] - SHALLOW[0])
    return found[0] - SHALLOW[0] * each, each


def kept(layers: int, width: int, placement: str, ranks: int) -> int:
    """Bytes of variables, gradients and states that the fullest device keeps."""
    model = describe(
        "largest", GptConfig(layers, width, width // HEAD), MODELS["gpt2_124m"].optimizer
    )
    job = {"workload": "gpt", "model": "gpt2_124m", "precision": "bf16", "batch_size": 1}
    return most_kept(build_run(**job, placement=placement, devices=ranks), model)


def largest_depth(needed: Callable[[int], float], room: float) -> int:
    """Return the most blocks of which a step needs at most `room` bytes."""
    layers = 0
    while needed(layers + 1) <= room:
        layers += 1
    return layers


def train(layers: int, width: int, rows: int, placement: str) -> str:
    """Three steps; "trained", or what was in the way."""
    try:
        torch.manual_seed(0)
        with DEVICE:
            model = GPT(layers, width)
        trainer = wrap(model, None, optimizer, placement, "eager", precision="bf16", check=False)
        given = batch(rows, torch.Generator().manual_seed(RANK))
        losses = [float(trainer.step(given)) for _ in range(3)]
        torch.cuda.synchronize()
    except torch.OutOfMemoryError:
        return "out of memory"
    return "trained" if losses[-1] < losses[0] else f"loss {losses[0]:.3f} to {losses[-1]:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=2048, help=f"a multiple of {HEAD}")
    parser.add_argument("--rows", type=int, default=1, help="sequences a GPU")
    parser.add_argument("--larger", action="store_true", help="train the one a tenth larger")
    parser.add_argument("--forecast", action="store_true", help="on a CPU: of 2 GPUs of 141 GB")
    parser.add_argument("--out", type=Path, help="a CSV file, to which a row is added")
    told = parser.parse_args()
    if not torch.cuda.is_available() and not told.forecast:
        print("no GPU is here: --forecast says what should fit one", file=sys.stderr)
        sys.exit(2)
    ranks = 2 if told.forecast else RANKS
    placement = "fsdp2" if ranks > 1 else "one"
    has = 141e9 if told.forecast else torch.cuda.mem_get_info(DEVICE)[1]
    base, each = activations(told.width, told.rows)
    row_of = "fsdp2" if ranks > 1 else "ddp"

    def needed(layers: int) -> float:
        return base + each * layers + kept(layers, told.width, row_of, ranks)

    layers = largest_depth(needed, has - CONTEXT_BYTES)
    layers = -(-11 * layers // 10) if told.larger else layers
    row = {"gpus": ranks, "placement": placement, "width": told.width, "sequences": told.rows}
    row |= {"blocks": layers, "of": "a tenth larger" if told.larger else "forecast to fit"}
    row |= {"forecast_gib": round(needed(layers) / GIB, 1), "has_gib": round(has / GIB, 1)}
    row["parameters"] = layers * 12 * told.width**2 + (WORDS + LENGTH) * told.width
    if not told.forecast:
        row["outcome"] = train(layers, told.width, told.rows, placement)
        row["peak_gib"] = round(torch.cuda.max_memory_allocated(DEVICE) / GIB, 1)
        row |= {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    if RANK == 0:
        print(row, flush=True)
        if told.out:
            with told.out.open("a", newline="", encoding="utf8") as file:
                writer = csv.DictWriter(file, list(row))
                if not file.tell():
                    writer.writeheader()
                writer.writerow(row)
    os._exit(0)  # a rank without memory may not wait for others


if __name__ == "__main__":
    main()
