"""Variables in bfloat16 that compute, beside float32 ones that are updated."""

from typing import Any

import torch
from torch import Tensor, nn

from multigpu.engines.torch.variables import make_optimizer
from multigpu.spec.model import Optimizer


class Masters:
    """The masters of some parameters, whose values become bfloat16; `named`: as these are."""

    def __init__(self, parameters: dict[str, nn.Parameter]) -> None:
        self.parameters = parameters
        self.named = {name: nn.Parameter(each.detach()) for name, each in parameters.items()}
        for parameter in parameters.values():
            parameter.data = parameter.data.to(torch.bfloat16)

    @torch.no_grad()
    def refresh(self) -> None:
        """Bring the masters' values to what computes."""
        low: list[Tensor] = list(self.parameters.values())
        torch._foreach_copy_(low, list(self.named.values()))

    def optimizer(
        self, rule: Optimizer, parameters: list[nn.Parameter], capturable: bool
    ) -> torch.optim.Optimizer:
        """Make the rule over these parameters' masters, and exchange both around each step."""
        names = {id(parameter): name for name, parameter in self.parameters.items()}
        masters = [self.named[names[id(parameter)]] for parameter in parameters]
        optimizer = make_optimizer(rule, masters, capturable)

        @torch.no_grad()
        def take(*_: Any) -> None:
            gradients = [each.grad for each in parameters if each.grad is not None]
            wide = [torch.empty_like(master) for master in masters]
            torch._foreach_copy_(wide, gradients)
            for master, gradient in zip(masters, wide, strict=True):
                master.grad = gradient

        @torch.no_grad()
        def give(*_: Any) -> None:
            torch._foreach_copy_(list[Tensor](parameters), list[Tensor](masters))
            for master in masters:
                master.grad = None

        optimizer.register_step_pre_hook(take)
        optimizer.register_step_post_hook(give)
        return optimizer
