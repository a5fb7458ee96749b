"""Four jobs of models that are not this study's, as a user would write them."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

WORDS = 60


class Block(nn.Module):
    """Two convolutions with batch norm beside a shortcut."""

    def __init__(self, inside: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, out, 3, stride, 1)  # its bias is flat: batch norm takes it away
        self.second = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(out), nn.BatchNorm2d(out)])
        self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(inside, out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.shortcut(x))


class SmallResNet(nn.Module):
    """A ResNet of three blocks whose first convolution is frozen, as in fine-tuning."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1).requires_grad_(False)
        self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2), Block(16, 16, 1))
        self.head = nn.Linear(16, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


def images(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 3, 12, 12, generator=generator), torch.randint(10, (n,), generator=generator)


resnet = mg.Job(SmallResNet, images, F.cross_entropy, mg.SGD(0.05, momentum=0.9, weight_decay=1e-4), batch_size=8)


class TiedTransformer(nn.Module):
    """A language model whose output layer is its embedding, with dropout and positions kept in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 16)
        self.register_buffer("positions", torch.sin(torch.arange(8.0)[:, None] * torch.arange(1, 17)), persistent=False)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.out = nn.Linear(16, WORDS, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, words: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1])
        return self.out(self.layer(self.embedding(words) + self.positions, src_mask=mask))


def sentences(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    words = torch.randint(WORDS, (n, 9), generator=generator)
    return words[:, :-1].clone(), words[:, 1:].clone()


def by_word(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


transformer = mg.Job(TiedTransformer, sentences, by_word, mg.AdamW(1e-3), batch_size=6)


class LstmLanguageModel(nn.Module):
    """An LSTM that reads all but the last word of what it is given, and gives its own loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 12, padding_idx=0)
        self.lstm = nn.LSTM(12, 16, num_layers=2, batch_first=True, dropout=0.2)
        self.head = nn.Linear(16, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        hidden = torch.zeros(2, len(words), 16)
        out, _ = self.lstm(self.embedding(words[:, :-1]), (hidden, hidden.clone()))
        return by_word(self.head(out), words[:, 1:])


lstm = mg.Job(LstmLanguageModel, lambda n, generator: [sentences(n, generator)[0]], None, mg.Adam(2e-3), batch_size=6)


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


recommender = mg.Job(Recommender, torch.utils.data.DataLoader(Ratings(), batch_size=8), F.mse_loss, mg.SGD(0.1), batch_size=8)
