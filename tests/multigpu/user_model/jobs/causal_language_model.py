"""A causal language model as Hugging Face's: made from a config, called with a dict of ids, mask
and labels, of which padding counts nothing; its output is an ordered dict with attributes. Stands
in for the library's own, which `causal_language_model_real.py` takes.
"""

from collections import OrderedDict
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {
    "equal": True,
    "note": "mean over what samples have unequally much of",
    "trained": ["transformer.wte.weight", "transformer.h.1.attn.weight"],
    "tables": [],
}


class ModelOutput(OrderedDict):
    """As the library's: fields that are not None are keys, items and attributes."""

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value is not None:
                self[field.name] = value

    def __getitem__(self, key: Any) -> Any:
        return dict(self.items())[key] if isinstance(key, str) else tuple(self.values())[key]


@dataclass
class CausalOutput(ModelOutput):
    loss: Tensor | None = None
    logits: Tensor | None = None
    past_key_values: Any = None


@dataclass
class Config:
    vocab_size: int = 50
    n_positions: int = 12
    n_embd: int = 16
    n_layer: int = 2


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.n_embd
        self.ln = nn.LayerNorm(width)
        self.attn = nn.Linear(width, 3 * width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.register_buffer(
            "bias",
            torch.ones(config.n_positions, config.n_positions).tril().bool(),
            persistent=False,
        )

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor]:
        q, k, v = self.attn(self.ln(x)).chunk(3, -1)
        length = x.shape[1]
        seen = self.bias[:length, :length] & mask[:, None, :].bool()
        x = x + F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return (x + self.mlp(x),)


class CausalModel(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocab_size, config.n_embd),
                "wpe": nn.Embedding(config.n_positions, config.n_embd),
                "h": nn.ModuleList(Block(config) for _ in range(config.n_layer)),
                "ln_f": nn.LayerNorm(config.n_embd),
            }
        )
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
    ) -> CausalOutput:
        assert input_ids is not None and attention_mask is not None
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.transformer["wte"](input_ids) + self.transformer["wpe"](places)
        for block in self.transformer["h"]:
            (x,) = block(x, attention_mask)
        logits = self.lm_head(self.transformer["ln_f"](x))
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        return CausalOutput(loss, logits)


def batch(n: int, generator: torch.Generator) -> dict[str, Tensor]:
    ids = torch.randint(1, 50, (n, 12), generator=generator)
    lengths = torch.randint(4, 13, (n, 1), generator=generator)
    mask = (torch.arange(12) < lengths).long()
    return {"input_ids": ids * mask, "attention_mask": mask, "labels": ids.where(mask > 0, -100)}


job = mg.Job(lambda: CausalModel(Config()), batch, None, mg.AdamW(1e-3), batch_size=8, name="gpt")
