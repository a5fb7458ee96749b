"""Compare three jobs that are not the study's on all GPUs, 180 seconds each: a GPT of 12 x 768,
torchvision's ResNet-50 with images made on the host, a recommender of 2 M rows; and, with
`transformers`, GPT-2 from its config.

    python benchmarks/compare_jobs.py --out build/jobs [--jobs gpt,vision] [--budget-s 180]

Each comparison's folder holds its Records and page; said.json holds its first lines, and what
`batch()` takes by itself beside what the first line says of it.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg
from multigpu.user_model.parts import input_of
from multigpu.user_model.verdict import answer

VOCABULARY, LENGTH, WIDTH, LAYERS = 50_304, 512, 768, 12
USERS, ITEMS = 1_500_000, 500_000


class Block(nn.Module):
    """Attention and two layers, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        parts = self.qkv(self.first(x)).split(WIDTH, -1)
        q, k, v = (part.view(rows, length, 12, 64).transpose(1, 2) for part in parts)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.mlp(self.second(x))


class Gpt(nn.Module):
    """A language model whose head is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.words(words) + self.places.weight)))


class Recommender(nn.Module):
    """Two tables that hold nearly all bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, 64), nn.Embedding(ITEMS, 64)
        self.top = nn.Sequential(
            nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return self.top(torch.cat([self.users(user), self.items(item)], 1)).squeeze(1)


def words(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    drawn = torch.randint(0, VOCABULARY, (n, LENGTH + 1), generator=generator)
    return drawn[:, :-1], drawn[:, 1:]


def images(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    drawn = torch.randn(n, 3, 224, 224, generator=generator)
    return drawn, torch.randint(0, 1000, (n,), generator=generator)


def ratings(n: int, generator: torch.Generator) -> tuple[tuple[Tensor, Tensor], Tensor]:
    user = torch.randint(0, USERS, (n,), generator=generator)
    item = torch.randint(0, ITEMS, (n,), generator=generator)
    return (user, item), torch.rand(n, generator=generator)


def named(n: int, generator: torch.Generator) -> dict[str, Tensor]:
    ids = torch.randint(1, VOCABULARY, (n, LENGTH), generator=generator)
    return {"input_ids": ids, "labels": ids}


def of_words(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def resnet() -> nn.Module:
    from torchvision.models import resnet50

    return resnet50()


def gpt2() -> nn.Module:
    import transformers

    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_positions=LENGTH))


rule = mg.SGD(0.1, momentum=0.9, weight_decay=1e-4)
gpt = mg.Job(Gpt, words, of_words, mg.AdamW(3e-4), batch_size=16, precision="bf16")
vision = mg.Job(resnet, images, F.cross_entropy, rule, batch_size=64, precision="bf16")
recommender = mg.Job(Recommender, ratings, F.mse_loss, mg.SGD(0.01), batch_size=8192)
transformers = mg.Job(gpt2, named, None, mg.AdamW(3e-4), batch_size=8, precision="bf16")
JOBS = {"gpt": gpt, "vision": vision, "recommender": recommender, "transformers": transformers}


def making_s(job: mg.Job) -> float:
    """Return the median seconds that a batch takes by itself, of ten after a first one."""
    took = []
    for seed in range(11):
        began = time.perf_counter()
        job.batch(job.batch_size, torch.Generator().manual_seed(seed))
        took.append(time.perf_counter() - began)
    return median(took[1:])


def told(name: str, folder: Path, budget_s: float, device_type: Any) -> dict[str, Any]:
    """Compare one job; return what it says and what stands behind it."""
    began = time.monotonic()
    try:
        result = mg.compare(
            f"{__file__}:{name}", budget_s=budget_s, out=folder, device_type=device_type
        )
    except ValueError as error:
        return {"error": str(error), "took_s": time.monotonic() - began}
    ahead = result.chosen(None)
    waited = input_of(result, ahead.name)
    return {
        "answer": answer(result),
        "took_s": time.monotonic() - began,
        "ahead": ahead.name,
        "launches": {name: int(result[name].row["launches"]) for name in result.names},
        "fed_step_s": float(ahead.row["fed_step_s"]),
        "input_s": waited.value if waited else 0.0,
        "batch_alone_s": making_s(JOBS[name]),
        "rates": result.frame.set_index("name")["rate"].to_dict(),
        "failed": result.failed,
    }


def main() -> None:
    """Entry point."""
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("--out", type=Path, default=Path("build/jobs"))
    asked.add_argument("--jobs", default=",".join(JOBS))
    asked.add_argument("--budget-s", type=float, default=180.0)
    asked.add_argument("--device-type", default="auto", choices=("auto", "cuda", "cpu"))
    options = asked.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    found = {}
    for name in options.jobs.split(","):
        found[name] = told(name, options.out / name, options.budget_s, options.device_type)
        print(name, json.dumps(found[name], indent=1), flush=True)
        (options.out / "said.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
