"""Projection and cross entropy in one piece: the gradient is left where the logits were, the widest
array, which is then read once more.
"""

import importlib.util
from typing import Any

import torch
from torch import Tensor

from multigpu.kernels.lstm import stand_in
from multigpu.lazy import lazy

IGNORED = -100
"""The target that a padded position has: cross entropy passes over it."""

_launch = lazy("multigpu.workloads.nmt.softmax_kernel:launch")
"""The kernel: its compiler is there on a GPU alone."""


def softmax_gradient_(logits: Tensor, targets: Tensor) -> Tensor:
    """Overwrite logits (N, V) with the gradient of their rows' cross entropies: softmax minus one
    at the target, zeros where `IGNORED`.
    targets: (N,) int64. Gives (N,) cross entropies, 0 where ignored, in float32 (float64 for
        float64), as all sums run.
    """
    if logits.is_cuda and logits.dtype != torch.float64 and importlib.util.find_spec("triton"):
        return _launch(logits, targets, IGNORED)
    exact = torch.float64 if logits.dtype == torch.float64 else torch.float32
    kept = targets != IGNORED
    index = targets.clamp(min=0)[:, None]
    losses = logits.new_empty(len(logits), dtype=exact)
    for start in range(0, len(logits), 1024):  # the float32 copy stays small
        rows = slice(start, start + 1024)
        values = logits[rows].to(exact)
        logs = torch.log_softmax(values, 1)
        losses[rows] = -logs.gather(1, index[rows]).squeeze(1) * kept[rows]
        gradient = logs.exp_().scatter_add_(1, index[rows], torch.full_like(values[:, :1], -1.0))
        logits[rows] = (gradient * kept[rows, None]).to(logits.dtype)
    return losses


class WeightApart(torch.autograd.Function):
    """Makes the logits that `ProjectedCrossEntropy` differentiates; backward the weight's gradient,
    on the stream where it was made.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, uses: list[Tensor]) -> Tensor:
        """uses: holds x, and once backward has come to the logits the gradient of the loss."""
        ctx.uses, ctx.dtype = uses, weight.dtype
        return stand_in(uses[0], (len(uses[0]), weight.shape[1]))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        x, scale = ctx.uses
        # memory that this stream works on is not to be given away meanwhile
        for use in (*gradients, *ctx.uses):
            use.record_stream(torch.cuda.current_stream(use.device))
        factor, rows = (x * scale).t(), gradients[0]
        return factor @ rows if ctx.dtype == x.dtype else torch.mm(
            factor, rows, out_dtype=ctx.dtype
        ), None


class ProjectedCrossEntropy(torch.autograd.Function):
    """Sum of cross entropies of x (N, D) @ weight (D, V), of one type, against targets (N,) int64.
    apart: made by `WeightApart`, which then gets the gradient of the logits, and `weight` none;
        uses: what that takes to make the weight's gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        targets: Tensor,
        apart: Tensor | None = None,
        uses: list[Tensor] | None = None,
    ) -> Tensor:
        logits = x @ weight  # (N, V)
        losses = softmax_gradient_(logits, targets)
        ctx.save_for_backward(x, weight, logits)
        ctx.uses = uses
        return losses.sum()

    @staticmethod
    def backward(
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor, Tensor | None, None, Tensor | None, None]:
        x, weight, rows = ctx.saved_tensors
        scale = gradients[0].to(x.dtype)
        # the scale goes onto the small factors, never onto the (N, V) array
        dx = (rows @ weight.t()) * scale
        if ctx.uses is None:
            return dx, (x * scale).t() @ rows, None, None, None
        ctx.uses[1:] = [scale]
        return dx, None, None, rows, None


def projected_cross_entropy(
    x: Tensor, weight: Tensor, targets: Tensor, side: torch.cuda.Stream | None = None
) -> Tensor:
    """The sum over kept positions of the cross entropy of x (N, D) @ weight (D, V), in autocast's
    type where it is on.
    targets: (N,) int64, `IGNORED` where padded. side: a stream for the weight's gradient in
        backward; None: in its turn.
    """
    kind = x.device.type
    with_type = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
    with torch.autocast(kind, enabled=False):
        if side is None or not weight.requires_grad:
            return ProjectedCrossEntropy.apply(x.to(with_type), weight.to(with_type), targets)
        x = x.to(with_type)
        uses = [x.detach()]
        with torch.cuda.stream(side):
            apart = WeightApart.apply(weight, uses)
        return ProjectedCrossEntropy.apply(x, weight.detach().to(with_type), targets, apart, uses)
