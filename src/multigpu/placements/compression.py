"""How many bytes of compressed gradients travel: by rank-limited factors or the largest numbers."""

import math
from collections.abc import Sequence

from multigpu.spec.model import Variable
from multigpu.spec.run import Run

WHOLE_STEPS = 2
"""Steps that PyTorch's PowerSGD sends as they are before it compresses (at least two)."""
LEAST_RATE = 2
"""PowerSGD leaves matrices alone that would not become as many times smaller (PyTorch's choice)."""
PLACE_BYTES = 4
"""Of a number's place in a bucket, which travels beside it."""


def kept_of(elements: int, share: float) -> int:
    """Return how many numbers of a gradient travel, the largest ones: at least one."""
    return max(1, math.ceil(share * elements))


def factors_of(shape: Sequence[int], rank: int) -> int:
    """Return how many numbers of a gradient travel under PowerSGD: both factors of the matrix of
    its first axis by all others, or all of them where that saves too little.
    """
    rows, elements = shape[0], math.prod(shape)
    columns = elements // rows
    factors = (rows + columns) * min(rows, columns, rank)
    return factors if factors * LEAST_RATE < elements else elements


def compressed_bytes(
    run: Run, variables: Sequence[Variable], replicas: int, item_bytes: int
) -> dict[str, int] | None:
    """Return bytes by kind that a step of all replicas moves; None: none is compressed."""
    if run.powersgd_rank is not None:
        numbers = sum(factors_of(variable.shape, run.powersgd_rank) for variable in variables)
        return {"all_reduce": replicas * numbers * item_bytes}
    if run.top_k is not None:
        numbers = sum(kept_of(variable.elements, run.top_k) for variable in variables)
        return {"all_gather": replicas * numbers * (item_bytes + PLACE_BYTES)}
    return None
