"""torchvision's ResNet as one has it."""

import torch
import torchvision
from torch import Tensor
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True, "needs": "torchvision"}


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    images = torch.randn(n, 3, 64, 64, generator=generator)
    return images, torch.randint(0, 1000, (n,), generator=generator)


job = mg.Job(
    torchvision.models.resnet18,
    batch,
    F.cross_entropy,
    mg.SGD(0.1, momentum=0.9, weight_decay=1e-4),
    batch_size=4,
)
