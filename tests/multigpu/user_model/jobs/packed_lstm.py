"""An LSTM over sentences of different lengths, packed."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

import multigpu as mg

EXPECTED = {"equal": True, "tables": ["words.weight"]}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(40, 8)
        self.lstm = nn.LSTM(8, 12, batch_first=True)
        self.out = nn.Linear(12, 3)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(
            self.words(words), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        _, (hidden, _) = self.lstm(packed)
        return self.out(hidden[-1])


def batch(n: int, generator: torch.Generator) -> tuple[tuple[Tensor, Tensor], Tensor]:
    words = torch.randint(40, (n, 7), generator=generator)
    lengths = torch.randint(1, 8, (n,), generator=generator)
    return (words, lengths), torch.randint(3, (n,), generator=generator)


job = mg.Job(Net, batch, F.cross_entropy, mg.SGD(0.1), batch_size=16)
