"""The GPU kernel of `softmax_gradient_`: a program a row, read twice and written once. Triton comes
with PyTorch's GPU builds only.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _softmax_gradient(  # type: ignore[no-untyped-def]
    logits, targets, losses, width, IGNORED: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * width
    target = tl.load(targets + row)
    columns = tl.arange(0, BLOCK)
    if target == IGNORED:
        tl.store(losses + row, 0.0)
        for first in range(0, width, BLOCK):
            inside = first + columns < width
            tl.store(
                start + first + columns, tl.zeros((BLOCK,), logits.dtype.element_ty), mask=inside
            )
        return
    # before anything is overwritten: the sums below are a barrier
    chosen = tl.load(start + target).to(tl.float32)
    # each lane keeps a running maximum and a sum scaled to it; lanes are joined once, at the end
    peak = tl.full((BLOCK,), -1e30, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, width, BLOCK):
        inside = first + columns < width
        value = tl.load(start + first + columns, mask=inside, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(peak, value)
        total = total * tl.exp(peak - higher) + tl.exp(value - higher)
        peak = higher
    top = tl.max(peak, 0)
    log_sum = top + tl.log(tl.sum(total * tl.exp(peak - top), 0))
    tl.store(losses + row, log_sum - chosen)
    for first in range(0, width, BLOCK):
        inside = first + columns < width
        value = tl.load(start + first + columns, mask=inside, other=float("-inf")).to(tl.float32)
        share = tl.exp(value - log_sum)
        share = tl.where(first + columns == target, share - 1.0, share)
        tl.store(start + first + columns, share.to(logits.dtype.element_ty), mask=inside)


def launch(logits: Tensor, targets: Tensor, ignored: int) -> Tensor:
    """See `softmax_gradient_`. logits must be contiguous (N, V) on a GPU."""
    losses = torch.empty(len(logits), device=logits.device, dtype=torch.float32)
    _softmax_gradient[(len(logits),)](
        logits, targets, losses, logits.shape[1], IGNORED=ignored, BLOCK=4096, num_warps=8
    )
    return losses
