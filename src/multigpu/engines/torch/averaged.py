"""Replicas that train by themselves and take the mean of their variables every so many steps."""

import torch
from torch import Tensor

from multigpu.engines.common.context import Carries
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.replicated import ReplicatedTrainer
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context
from multigpu.engines.torch.variables import views_of
from multigpu.placements.resolve import semantics_of

# kept among the optimizer's own settings, so that a checkpoint of these holds it
TRAINED = "steps_since_average"


class AveragedTrainer(ReplicatedTrainer):
    """Independent replicas, but for the mean of variables; states stay each one's own."""

    carries = Carries({"average": (False,)})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.every = semantics_of(context.run).every
        self.optimizer.param_groups[0][TRAINED] = 0

    def step(self, shards: list[Shard]) -> list[Tensor]:
        losses = super().step(shards)
        settings = self.optimizer.param_groups[0]
        settings[TRAINED] = (settings[TRAINED] + 1) % self.every
        if settings[TRAINED] == 0 and self.replicas > 1:
            with phase("merge"):
                self._average()
        return losses

    @torch.no_grad()
    def _average(self) -> None:
        variables: list[Tensor] = list(self.parameters.values())
        flat = variables[0].new_empty(sum(variable.numel() for variable in variables))
        stretches = views_of(flat, variables)
        torch._foreach_copy_(stretches, variables)
        self.wire.all_reduce(flat)
        torch._foreach_copy_(variables, stretches)
        torch._foreach_div_(variables, self.replicas)
