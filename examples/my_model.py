import torch
from torch import nn

import multigpu


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(10_000, 32), nn.Embedding(1_000, 32)
        self.rating = nn.Sequential(
            nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 1)
        )

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        return self.rating(torch.cat([self.users(user), self.items(item)], 1)).squeeze(1)


def batch(
    n: int, generator: torch.Generator
) -> tuple:  # (what the model is called with, what the loss compares with)
    user, item = (torch.randint(count, (n,), generator=generator) for count in (10_000, 1_000))
    return (user, item), torch.rand(n, generator=generator)


job = multigpu.Job(
    Recommender,
    batch,
    loss=nn.functional.mse_loss,
    optimizer=multigpu.SGD(0.1, momentum=0.9),
    batch_size=64,
)

if __name__ == "__main__":
    result = multigpu.compare(job, placements=["ddp", "exp2", "exp4"], budget_s=40)
    print(result.verdict)  # what is ahead, samples/s, times one device, and how sure that is
    print(result.table()[["name", "rate", "speedup", "equal"]])
    print(result.why_not_scaling()[["cause", "ms"]])
    print(f"on 8 devices: {result.forecast(devices=8):rate interval}")
