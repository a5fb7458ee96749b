"""Sentences of another length in each batch and on each device."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"cheap": True, "equal": True, "note": "differ in length", "tables": ["words.weight"]}


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(40, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.out = nn.Linear(8, 5)

    def forward(self, words: Tensor) -> Tensor:
        return self.out(self.lstm(self.words(words))[0])


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    length = int(torch.randint(4, 25, (), generator=generator))
    words = torch.randint(40, (n, length), generator=generator)
    return words, torch.randint(5, (n, length), generator=generator)


def loss(output: Tensor, tags: Tensor) -> Tensor:
    return F.cross_entropy(output.flatten(0, 1), tags.flatten())


job = mg.Job(Tagger, batch, loss, mg.SGD(0.5), batch_size=6)
