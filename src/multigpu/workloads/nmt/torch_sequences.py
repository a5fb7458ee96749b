"""Order and measure sequences of a batch, and the library's loss over them."""

import torch
import torch.nn.functional as F
from torch import Tensor

from multigpu.workloads.nmt.projection_loss import IGNORED
from multigpu.workloads.nmt.recurrence import Packing, State


def host_lengths(batch: dict[str, Tensor], name: str) -> Tensor:
    """The array `name` of a batch; a ValueError where it is not on the host."""
    lengths = batch[name]
    if lengths.device.type != "cpu":
        raise ValueError(f"{name} is on {lengths.device}: lengths must stay on the host")
    return lengths


def ends_of(lengths: Tensor) -> tuple[int, int]:
    """The shortest and the longest; a ValueError where a sentence is empty."""
    shortest, longest = (int(end) for end in lengths.aminmax())
    if shortest < 1:
        raise ValueError(
            "source_length has a 0: an empty sentence leaves the decoder no state to start from"
        )
    return shortest, longest


def library_loss(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """The sum of cross entropies of x (N, D) @ weight (D, V) over targets (N,) int64 that are not
    ignored, in float32 or better.
    """
    logits = x @ weight
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    return F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")


def unsorted(state: State, places: Tensor) -> State:
    """The sentences of a state, (layers, B, D), in another order."""
    hidden, cell = state
    return hidden.index_select(1, places), cell.index_select(1, places)


def interleaved(forwards: State, backwards: State) -> State:
    """Both stacks' states for the decoder's cells: forward 0, backward 0, forward 1, ..."""
    hidden, cell = (
        torch.stack(pair, 1).flatten(0, 1) for pair in zip(forwards, backwards, strict=True)
    )
    return hidden, cell


def padded(words: Tensor, packing: Packing, shape: torch.Size) -> Tensor:
    """Packed words in a batch (S, B, D), in the order of reading, padded with zeros."""
    return words.new_zeros(shape).flatten(0, 1).index_copy(0, packing.forwards, words).view(shape)
