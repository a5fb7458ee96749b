"""Jobs whose update is more than a rule: clipped, scheduled, with an optimizer of their own, over
parts of a batch, with blocks named.
"""

from typing import Any

import torch
from torch.nn import functional as F

import multigpu as mg
from tests.multigpu.user_model.causes import Net, samples

CLIP = 0.05  # below the norm of every step


def falling(step: int) -> float:
    return 0.5**step  # the same in 32 bits, in which a captured step reads its rate


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.5, momentum=0.9)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=2.0**-7, weight_decay=0.1)


def counting_on_the_host(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(parameters, lr=0.01)


def rms(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(parameters, lr=0.01)


whole = {"loss": F.cross_entropy, "batch_size": 32, "micro_steps": 2, "shard": "Sequential"}
clipped = mg.Job(Net, samples, optimizer=mg.SGD(0.5), gradient_clip=CLIP, schedule=falling, **whole)
own = mg.Job(Net, samples, optimizer=momentum, gradient_clip=CLIP, **whole)
other = mg.Job(Net, samples, optimizer=rms, **whole)
scheduled = mg.Job(Net, samples, optimizer=adam, schedule=falling, **whole)
uncapturable = mg.Job(Net, samples, optimizer=counting_on_the_host, **whole)
