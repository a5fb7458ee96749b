"""A GPT of one's own as a job, small on a CPU: which placement trains it fastest here?

python -m multigpu fits examples/my_gpt.py:job --memory 80
python -m multigpu compare examples/my_gpt.py:job --budget-s 150
"""

import torch
from torch import nn

import multigpu

GPU = torch.cuda.is_available()
WORDS, WIDTH, LAYERS, TOKENS = (32_000, 768, 12, 512) if GPU else (2_000, 128, 2, 64)


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, WIDTH // 64, 4 * WIDTH, 0.0, batch_first=True)
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(TOKENS, device=tokens.device)
        found = self.blocks(self.words(tokens) + self.places.weight, mask, is_causal=True)
        return self.head(found)


def batch(n: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(WORDS, (n, TOKENS + 1), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]


def loss(found: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(found.flatten(0, 1).float(), target.flatten())


job = multigpu.Job(
    GPT, batch, loss, multigpu.AdamW(3e-4), batch_size=16, precision="bf16" if GPU else "fp32"
)
