"""Where variables begin in flat memory, which code that torch.compile generated depends on.

Such code may read a parameter in vectors of 16 bytes if the one that it was generated for began at a multiple of them. Inputs are then
checked at every call and copied where they begin elsewhere, but for those that are static, as every `nn.Parameter` is, and were aligned
when the code was generated (`torch._inductor.compile_fx.get_input_idxs_to_check`). Code is used again for any parameter of that shape: by
another layer or another Run of the process, since no guard asks where a parameter begins, and by other processes, since the key of
AOTAutograd's cache on disk leaves that out too (seen in PyTorch 2.13). A GPU then ends with "misaligned address". So all parameters of a
compiled step begin at such multiples (`torch._inductor.utils.GPU_ALIGN_BYTES`).
"""

from __future__ import annotations

from torch import Tensor

from multigpu.placements.traffic import BOUNDARY, Assigned


def arranged(dense: list[Assigned], item_bytes: int) -> list[Assigned]:
    """The order of variables in a flat stretch without gaps (those would travel) in which the most of them begin aligned.

    What one place updates stays together, since it is one message. There, variables of a multiple of 16 bytes stand before all others,
    and places whose part is such a multiple before those whose part is not; else the order is that of declaration and of places. So with
    one odd variable, all begin aligned; behind a second one, some do not.

    Args:
        item_bytes: of one element.
    """

    def odd(members: list[Assigned]) -> bool:
        return sum(m.variable.elements for m in members) * item_bytes % BOUNDARY != 0

    parts = [[m for m in dense if m.update == place] for place in sorted({m.update for m in dense})]
    return [member for part in sorted(parts, key=odd) for member in sorted(part, key=lambda m: odd([m]))]


def parts_by_place(dense: list[Assigned], places: int) -> list[slice]:
    """Of each device, the elements of the flat stretch that it updates; `dense` has them together. Empty where it updates none."""
    parts = [slice(0, 0) for _ in range(places)]
    end = 0
    for member in dense:
        start, end = end, end + member.variable.elements
        before = parts[member.update]
        parts[member.update] = slice(start if before.start == before.stop else before.start, end)
    return parts


def begins_aligned(tensor: Tensor) -> bool:
    """Whether its first element's address is a multiple of 16 bytes."""
    return tensor.data_ptr() % BOUNDARY == 0
