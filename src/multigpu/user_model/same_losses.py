"""Whether a way whose steps are compiled or captured goes on training what launched steps train:
their losses on the same batches tell. The comparison with one process (`engines.checked`) takes
launched steps of each placement, whichever form is timed.
"""

import math
from collections.abc import Iterable, Sequence

from multigpu.placements import find_placement
from multigpu.records.record import Record
from multigpu.spec.run import Run
from multigpu.user_model.placed import called

FIRST = 16  # steps of which losses are compared: later ones differ by what rounding has become

APART = {"fp64": 1e-7, "fp32": 1e-4, "tf32": 1e-3}
"""How far losses of one step may be apart, relative to the larger, by precision."""

APART_IN_16_BITS = 3e-3

LAUNCHED = "eager"


def other_losses(name: str, run: Run, records: Iterable[Record]) -> str:
    """Say where the losses of a compiled or captured way leave those of the same placement
    launched step by step, or of another with as many devices; "": nowhere, or nothing to compare.
    """
    if run.execution == LAUNCHED or run.framework != "torch":
        return ""
    losses = [
        (record.run, record.measurement.loss)
        for record in records
        if record.measurement is not None
    ]
    launched = [
        (other, found)
        for other, found in losses
        if other.execution == LAUNCHED and _trains_alike(other, run)
    ]
    same = [(other, found) for other, found in launched if other.placement == run.placement]
    if not (same or launched):
        return ""
    beside, expected = (same or launched)[0]
    for own, found in losses:
        step = first_apart(found, expected, run.precision) if called(own) == name else None
        if step is not None:
            return (
                f"the loss of step {step + 1} is {found[step]:.6g} where {called(beside)}, launched"
                f" step by step, has {expected[step]:.6g}"
            )
    return ""


def _trains_alike(one: Run, other: Run) -> bool:
    """Whether a Run trains what one process does, and in the same numbers as another."""
    return find_placement(one.placement).semantics.facts.is_equal_training and all(
        getattr(one, field) == getattr(other, field)
        for field in ("devices", "precision", "batch_size", "micro_steps", "seed", "optimizer")
    )


def first_apart(found: Sequence[float], expected: Sequence[float], precision: str) -> int | None:
    """Return the first step, from 0, whose losses are further apart than rounding; None: none is.
    A loss that is no number is apart from any that is.
    """
    allowed = APART.get(precision, APART_IN_16_BITS)
    for step, (one, other) in enumerate(zip(found[:FIRST], expected[:FIRST], strict=False)):
        if math.isnan(one) != math.isnan(other):
            return step
        if abs(one - other) > allowed * max(abs(one), abs(other)):
            return step
    return None
