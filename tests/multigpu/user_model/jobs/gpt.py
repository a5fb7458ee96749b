"""A GPT with a tied head, as one would write it today."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

WORDS = 300
LENGTH = 16
WIDTH = 32

EXPECTED = {"equal": True, "tables": [], "trained": ["tokens.weight", "positions.weight"]}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        parts = self.qkv(self.norms[0](x)).split(WIDTH, -1)
        q, k, v = (part.view(b, t, 4, 8).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.mlp(self.norms[1](x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(WORDS, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(2)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x = torch.randint(0, WORDS, (n, LENGTH + 1), generator=generator)
    return x[:, :-1], x[:, 1:]


def loss(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


job = mg.Job(GPT, batch, loss, mg.AdamW(3e-4), batch_size=8, precision="bf16")
