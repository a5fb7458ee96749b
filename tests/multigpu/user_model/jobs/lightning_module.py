"""A module as Lightning's: it trains by `training_step`, and its forward is for inference. The base
class stands in for Lightning's own, of which it has what a step calls.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True, "trained": ["body.0.weight", "body.2.bias"], "tables": []}


class LightningModule(nn.Module):
    def log(self, name: str, value: Any, **more: Any) -> None:
        pass

    def configure_optimizers(self) -> Any:
        raise NotImplementedError


class Classifier(LightningModule):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x).argmax(1)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> dict[str, Tensor]:
        x, y = batch
        logits = self.body(x)
        loss = F.cross_entropy(logits, y)
        self.log("train_loss", loss.detach(), prog_bar=True)
        return {"loss": loss, "logits": logits.detach()}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randint(3, (n,), generator=generator)


job = mg.Job(Classifier, batch, None, mg.AdamW(1e-3), batch_size=8)
