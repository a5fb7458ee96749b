"""Loss scaling for fp16 (Micikevicius et al. 2018): the loss is multiplied by a scale S, merged
gradients are divided by it, and where any of these is infinite or no number the update is left out
and counted. One replica's infinity makes the sum infinite on all.

S, if found, starts at 2^16, is halved by every overflow and doubled by 2,000 steps without, as in
PyTorch's GradScaler. Unlike there, the host reads nothing, so that a step can be one CUDA graph,
and an overflow in the first step leaves momentum at zero, not unwritten.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

FIRST_SCALE = 2.0**16
GROWTH, BACKOFF, GROWTH_STEPS = 2.0, 0.5, 2000


class LossScale:
    """One replica's scale and steps left out, on the device. fixed: the scale; None: found."""

    def __init__(self, device: torch.device, fixed: int | None) -> None:
        self.fixed = fixed
        self.scale = torch.full((), float(fixed or FIRST_SCALE), device=device)
        self.tracker = torch.zeros((), dtype=torch.int32, device=device)
        self.overflow = torch.zeros((), device=device)
        self.left_out = torch.zeros((), dtype=torch.int64, device=device)

    def watch(self, optimizer: torch.optim.Optimizer) -> None:
        """From now on the optimizer's (fused) step changes nothing while `overflow` is 1."""
        # GradScaler sets this attribute too
        optimizer.found_inf = self.overflow  # type: ignore[attr-defined]
        for group in optimizer.param_groups:
            if group.get("momentum"):
                for parameter in group["params"]:
                    optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)

    def start(self) -> None:
        self.overflow.zero_()

    def take_off(self, gradients: Sequence[Tensor]) -> None:
        """Divide merged gradients by the scale, in place, and note any overflow."""
        torch._amp_foreach_non_finite_check_and_unscale_(
            list(gradients), self.overflow, self.scale.reciprocal()
        )

    def end(self) -> None:
        """After the update: count what was left out, and find the next step's scale."""
        self.left_out += self.overflow.to(torch.int64)
        if self.fixed is None:
            torch._amp_update_scale_(
                self.scale, self.tracker, self.overflow, GROWTH, BACKOFF, GROWTH_STEPS
            )
