"""Train the largest GPT that `fits` forecasts for this GPU's memory, and one a tenth larger.

torchrun --nproc-per-node 2 benchmarks/largest_gpt.py --out data/benchmarks/largest_gpt.csv

What a step adds is linear in the number of blocks, so two small depths are followed as `fits` does;
what is held and made beside it follows from the placement's row. The depth at which all reach the
memory that the device reports is the largest one. Three steps of it shall give finite losses, and
one with a tenth more blocks shall run out of memory. A row a depth: the forecast, the peak, what
came of it; where it is not as forecast, a line says so, and the script ends with 1.
"""

import argparse
import csv
import math
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
from multigpu.placements.memory import StepNeeds, needed
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


def followed(layers: int, width: int, rows: int, made: int) -> tuple[float, float]:
    """Bytes that a step of so many blocks adds at most: beside no gradient, when backward begins,
    and beside all that it makes, when it ends.
    """
    job = multigpu.Job(
        partial(Logits, layers, width),
        batch,
        loss,
        multigpu.AdamW(3e-4),
        batch_size=max(rows, 4),  # two and four sequences are followed
        precision="bf16",
    )
    found = activations_of(job, "bf16", False)
    assert found is not None
    beside = found.fixed + found.each * rows + found.made * made
    late = found.made > found.made.max() / 2
    return float(beside[~late].max()), float(beside[late].max()) - made


def needs(layers: int, width: int, placement: str, ranks: int) -> StepNeeds:
    """What the fullest device needs whatever the batch."""
    model = describe(
        "largest", GptConfig(layers, width, width // HEAD), MODELS["gpt2_124m"].optimizer
    )
    job = {"workload": "gpt", "model": "gpt2_124m", "precision": "bf16", "batch_size": 1}
    return needed(build_run(**job, placement=placement, devices=ranks), model)


def forecast(width: int, rows: int, placement: str, ranks: int) -> Callable[[int], float]:
    """Return the function from a number of blocks to the bytes that its step needs."""
    shallow, deeper = (
        followed(layers, width, rows, needs(layers, width, placement, ranks).made)
        for layers in SHALLOW
    )

    def needed_by(layers: int) -> float:
        blocks = (layers - SHALLOW[0]) / (SHALLOW[1] - SHALLOW[0])
        begin, end = (
            low + blocks * (high - low) for low, high in zip(shallow, deeper, strict=True)
        )
        found = needs(layers, width, placement, ranks)
        return max(found.held + max(begin, found.made + end), found.least)

    return needed_by


def largest_depth(needed: Callable[[int], float], room: float) -> int:
    """Return the most blocks of which a step needs at most `room` bytes."""
    layers = 0
    while needed(layers + 1) <= room:
        layers += 1
    return layers


def train(layers: int, width: int, rows: int, placement: str) -> str:
    """Three steps; "trained" where each loss is finite, or what was in the way."""
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
    return outcome_of(losses)


def outcome_of(losses: list[float]) -> str:
    """Say what three steps came to; a loss may rise in so few."""
    return "trained" if all(map(math.isfinite, losses)) else f"losses {losses}"


def against_forecast(larger: bool, outcome: str) -> str:
    """Say where an outcome is not what the forecast says; "" where it is."""
    if larger and outcome != "out of memory":
        return f"The one a tenth larger should not fit, and ended so: {outcome}."
    if not larger and outcome != "trained":
        return f"The one that should fit did not train: {outcome}."
    return ""


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
    # alone, `wrap` keeps no bucket: its gradients are those of an independent replica
    row_of = "fsdp2" if ranks > 1 else "independent"
    needed_by = forecast(told.width, told.rows, row_of, ranks)
    layers = largest_depth(needed_by, has - CONTEXT_BYTES)
    layers = -(-11 * layers // 10) if told.larger else layers
    row = {"gpus": ranks, "placement": placement, "width": told.width, "sequences": told.rows}
    row |= {"blocks": layers, "of": "a tenth larger" if told.larger else "forecast to fit"}
    row |= {"forecast_gib": round(needed_by(layers) / GIB, 1), "has_gib": round(has / GIB, 1)}
    row["parameters"] = layers * 12 * told.width**2 + (WORDS + LENGTH) * told.width
    if not told.forecast:
        row["outcome"] = train(layers, told.width, told.rows, placement)
        row["peak_gib"] = round(torch.cuda.max_memory_allocated(DEVICE) / GIB, 1)
        row |= {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    wrong = "" if told.forecast else against_forecast(told.larger, str(row["outcome"]))
    if RANK == 0:
        print(row, wrong, sep="\n", flush=True)
        if told.out:
            with told.out.open("a", newline="", encoding="utf8") as file:
                writer = csv.DictWriter(file, list(row))
                if not file.tell():
                    writer.writeheader()
                writer.writerow(row)
    os._exit(bool(wrong))  # a rank without memory may not wait for others


if __name__ == "__main__":
    main()
