"""Projection and cross entropy a stretch of tokens at a time: all logits together, the widest array
by far (B T V numbers), never exist, nor does their gradient.
"""

from typing import Any

import torch
from torch import Tensor

from multigpu.workloads.nmt.projection_loss import softmax_gradient_
from multigpu.workloads.tensors import arithmetic_type

CHUNK = 4096
"""Tokens at a time: at GPT-2's vocabulary 393 MiB of logits in 16 bits."""


class ChunkedCrossEntropy(torch.autograd.Function):
    """Sum of cross entropies of x (N, C) @ table (V, C) transposed against targets (N,) int64. The
    gradients are made with the loss, and only scaled backward.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, table: Tensor, targets: Tensor, kind: torch.dtype, chunk: int
    ) -> Tensor:
        wanted = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        exact = torch.float64 if kind == torch.float64 else torch.float32
        total = torch.zeros((), dtype=exact, device=x.device)
        weights = table.to(kind)
        dx = torch.empty_like(x) if wanted else None
        dtable = torch.zeros_like(table, dtype=exact) if wanted else None  # a sum over stretches
        for start in range(0, len(x), chunk):
            rows = slice(start, start + chunk)
            own = x[rows].to(kind)
            logits = own @ weights.t()  # (chunk, V)
            total += softmax_gradient_(logits, targets[rows]).sum()  # and logits: its gradient
            if dx is not None and dtable is not None:
                dx[rows] = logits @ weights
                dtable += logits.t() @ own
        if dx is not None and dtable is not None:
            ctx.save_for_backward(dx, dtable.to(table.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        dx, dtable = ctx.saved_tensors
        scale = gradients[0]
        return dx * scale.to(dx.dtype), dtable * scale.to(dtable.dtype), None, None, None


def chunked_cross_entropy(x: Tensor, table: Tensor, targets: Tensor, chunk: int = CHUNK) -> Tensor:
    """Return the sum over tokens of the cross entropy of x (N, C) @ table (V, C) transposed, in
    autocast's type where it is on; targets: (N,) int64.
    """
    kind = arithmetic_type(x)
    with torch.autocast(x.device.type, enabled=False):
        return ChunkedCrossEntropy.apply(x, table, targets, kind, chunk)
