"""Compare a Run's placement with the reference of all tests, whatever the framework."""

import os
from collections.abc import Callable
from typing import Any

from multigpu.placements.resolve import semantics_of
from multigpu.records.record import Equivalence
from multigpu.spec.run import Run
from multigpu.workloads import description_of, optimizer_of

STEPS = 3
SAMPLES = 4  # of a shard of the compared steps, where the model takes batches of any size

TOLERANCE = {
    ("fp64", "sgd"): 1e-8,
    ("fp64", "adam"): 1e-5,
    ("fp32", "sgd"): 1e-3,
    ("fp32", "adam"): 5e-2,
    ("float32", "sgd"): 1e-6,
    ("float32", "adam"): 1e-3,
    ("float16", "sgd"): 1e-2,
    ("float16", "adam"): 5e-2,
    ("bfloat16", "sgd"): 2e-2,
    ("bfloat16", "adam"): 5e-2,
}
"""How far variables may be from the reference's over how far it moved, by precision and rule (Adam
errs at next to no gradient); by type of the shortest numbers that a model computes in by itself,
whatever it is compared in: a placement that scales the loss rounds them otherwise.
"""

EQUALITY_KNOWN = "MULTIGPU_EQUALITY_KNOWN"
"""In the environment of a launch: the ways (`way_of`) that an earlier one compared, by digest."""

LENGTHS = {
    name: Run.model_fields[name].default
    for name in ("warmup_steps", "timed_steps", "traced_steps", "traced_from")
}
"""Fields of a Run on which no compared step depends, as a plain Run has them."""

_known: dict[Run, Equivalence | None] = {}


def way_of(run: Run) -> Run:
    """What is compared of a Run: however long it is timed, and PyTorch's steps as the host launches
    them, whichever form is timed (`compared`).
    """
    form = {"execution": "eager"} if run.framework == "torch" else {}
    return run.model_copy(update=LENGTHS | form)


def told_once(run: Run, compare: Callable[[], Equivalence | None]) -> dict[str, Any]:
    """Return a Run's comparison as parts of a Record hold it. A process compares a way once,
    however long it is timed, and not where an earlier launch did (`EQUALITY_KNOWN`).
    """
    way, known = way_of(run), os.environ.get(EQUALITY_KNOWN, "")
    if known and way.digest in known.split(","):
        return {"equivalence": None}
    if way not in _known:
        _known[way] = compare()
    found = _known[way]
    return {"equivalence": found.model_dump() if found else None}


def compared(run: Run, precision: str, any_rows: bool) -> Run:
    """The Run whose steps are compared: on few samples, in a precision that shows errors."""
    size = min(run.batch_size, SAMPLES) if any_rows else run.batch_size
    form = "eager" if run.framework == "torch" else run.execution
    return run.model_copy(update={"precision": precision, "batch_size": size, "execution": form})


def relative(apart: float, moved: float) -> float:
    """Return a difference over the update, from squared norms; without update 0 or 1."""
    return float((apart / moved) ** 0.5) if moved else float(apart > 0)


def equivalence_of(run: Run, distance_of: Callable[[Run], tuple[float, int]]) -> Equivalence | None:
    """Return how far the placement's variables are from the reference's; None: the model cannot be
    compared.

    distance_of: from the Run whose steps are compared, `relative` after so many steps.
    """
    described = description_of(run).config.described
    precision = described.checked_in
    if precision is None:
        return None
    distance, steps = distance_of(compared(run, precision, described.any_rows))
    rule = "sgd" if optimizer_of(run).name == "sgd" else "adam"
    inside = TOLERANCE.get((described.coarse, rule), 0.0)
    tolerance = max(semantics_of(run).tolerance, TOLERANCE[precision, rule], inside)
    return Equivalence(distance=distance, tolerance=tolerance, steps=steps, precision=precision)
