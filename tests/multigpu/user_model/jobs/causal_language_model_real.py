"""Hugging Face's GPT-2, made from a config."""

import torch
import transformers
from torch import Tensor, nn

import multigpu as mg

EXPECTED = {"equal": True, "needs": "transformers"}


def model() -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=12, n_embd=16, n_layer=2, n_head=2, use_cache=False
    )
    return transformers.GPT2LMHeadModel(config)


def batch(n: int, generator: torch.Generator) -> dict[str, Tensor]:
    ids = torch.randint(1, 50, (n, 12), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


job = mg.Job(model, batch, None, mg.AdamW(1e-3), batch_size=8)
