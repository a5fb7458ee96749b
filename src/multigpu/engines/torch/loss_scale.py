"""Loss scaling for fp16 (Micikevicius et al. 2018): gradients too small for fp16 are lifted, and a step that overflows changes nothing.

The loss is multiplied by a scale S before backward; merged gradients are divided by S. Where any of them is infinite or no number,
the update is left out and counted. Gradients are looked at after merging: a sum with one replica's infinity is infinite on all, so
one replica's overflow leaves out the step everywhere, without a message of its own.

Found while training, S starts at 2^16, is halved by every overflow and doubled by 2,000 steps without one, as PyTorch's GradScaler
does. Unlike there, nothing here is read by the host, so a step can be one CUDA graph; and an overflow in the very first step leaves
momentum at zero (GradScaler with a fused SGD leaves it in memory that nobody wrote).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

FIRST_SCALE = 2.0**16
GROWTH, BACKOFF, GROWTH_STEPS = 2.0, 0.5, 2000


class LossScale:
    """One replica's scale and its count of steps left out, all on the device. fixed: the scale; None: found while training."""

    def __init__(self, device: torch.device, fixed: int | None) -> None:
        self.fixed = fixed
        self.scale = torch.full((), float(fixed or FIRST_SCALE), device=device)
        self.tracker = torch.zeros((), dtype=torch.int32, device=device)
        self.overflow = torch.zeros((), device=device)
        self.left_out = torch.zeros((), dtype=torch.int64, device=device)

    def watch(self, optimizer: torch.optim.Optimizer) -> None:
        """From now on the optimizer's (fused) step changes nothing while `overflow` is 1."""
        optimizer.found_inf = self.overflow  # type: ignore[attr-defined]  # what GradScaler sets too
        for group in optimizer.param_groups:
            if group.get("momentum"):
                for parameter in group["params"]:
                    optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)

    def start(self) -> None:
        self.overflow.zero_()

    def take_off(self, gradients: Sequence[Tensor]) -> None:
        """Divide merged gradients by the scale, in place, and note whether any of them overflowed."""
        torch._amp_foreach_non_finite_check_and_unscale_(list(gradients), self.overflow, self.scale.reciprocal())

    def end(self) -> None:
        """After the update: count what was left out, and find the next step's scale."""
        self.left_out += self.overflow.to(torch.int64)
        if self.fixed is None:
            torch._amp_update_scale_(self.scale, self.tracker, self.overflow, GROWTH, BACKOFF, GROWTH_STEPS)
