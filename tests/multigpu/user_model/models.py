"""Three jobs of models that are not this study's, as a user would write them."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

WORDS = 60


class SmallResNet(nn.Module):
    """A block of two convolutions with batch norm beside a shortcut, behind a frozen convolution,
    as in fine-tuning.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1).requires_grad_(False)
        self.first = nn.Conv2d(8, 16, 3, 2, 1)  # its bias is flat: batch norm takes it away
        self.second = nn.Conv2d(16, 16, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(16), nn.BatchNorm2d(16)])
        self.shortcut, self.head = nn.Conv2d(8, 16, 1, 2), nn.Linear(16, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        y = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        return self.head(F.relu(y + self.shortcut(x)).mean((2, 3)))


def images(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 3, 12, 12, generator=generator), torch.randint(
        10, (n,), generator=generator
    )


resnet = mg.Job(
    SmallResNet,
    images,
    F.cross_entropy,
    mg.SGD(0.05, momentum=0.9, weight_decay=1e-4),
    batch_size=8,
)


def sentences(n: int, generator: torch.Generator) -> list[Tensor]:
    return [torch.randint(WORDS, (n, 9), generator=generator)]


class LanguageModel(nn.Module):
    """A transformer's layer and an LSTM, with dropout, a buffer, tied output layers and a loss of
    its own, of all but the last word.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 16, padding_idx=0)
        self.register_buffer(
            "positions",
            torch.sin(torch.arange(8.0)[:, None] * torch.arange(1, 17)),
            persistent=False,
        )
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.lstm = nn.LSTM(16, 16, num_layers=2, batch_first=True, dropout=0.2)
        self.early, self.late = nn.Linear(16, WORDS, bias=False), nn.Linear(16, WORDS, bias=False)
        self.late.weight = self.early.weight

    def forward(self, words: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(8)
        start = torch.zeros(2, len(words), 16)
        x = self.layer(self.embedding(words[:, :-1]) + self.positions, src_mask=mask)
        output = self.early(x) + self.late(self.lstm(x, (start, start.clone()))[0])
        return F.cross_entropy(output.flatten(0, 1), words[:, 1:].flatten())


language = mg.Job(LanguageModel, sentences, None, mg.AdamW(1e-3), batch_size=6)


class Recommender(nn.Module):
    """Two towers, one of ids and one of an item's features, with sparse embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(200, 8, sparse=True), nn.Embedding(100, 8, sparse=True)
        self.age = nn.Linear(1, 8)

    def forward(self, ids: Tensor, age: Tensor) -> Tensor:
        return ((self.user(ids[:, 0]) + self.age(age)) * self.item(ids[:, 1])).sum(1)


class Ratings(torch.utils.data.Dataset):
    """So many made-up ratings."""

    def __init__(self, count: int = 64) -> None:
        generator = torch.Generator().manual_seed(1)
        self.ids = torch.randint(100, (count, 2), generator=generator)
        self.age, self.rating = (torch.rand(count, 1, generator=generator) for _ in range(2))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
        return (self.ids[index], self.age[index]), self.rating[index, 0]


recommender = mg.Job(
    Recommender,
    torch.utils.data.DataLoader(Ratings(), batch_size=8),
    F.mse_loss,
    mg.SGD(0.1),
    batch_size=8,
)
