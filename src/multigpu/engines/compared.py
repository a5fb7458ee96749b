"""How a Run whose model no test compares is compared with one process on the joined batch. Imports no framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from multigpu.record import Equivalence
from multigpu.run import Run

STEPS = 3
SAMPLES = 4
"""Of a shard of the compared steps, where the model takes batches of any size."""

TOLERANCE = {("fp64", "sgd"): 1e-8, ("fp64", "adam"): 1e-5, ("fp32", "sgd"): 1e-3, ("fp32", "adam"): 5e-2}
"""How far variables may be from the reference's, over how far the reference moved, by precision and rule. Sums of another order differ in
the last bits, which a deep model multiplies from step to step, and Adam where a gradient is next to nothing.
"""


_known: dict[Run, Equivalence | None] = {}


def told_once(run: Run, compare: Callable[[], Equivalence | None]) -> dict[str, Any]:
    """What a Run's comparison found, as parts of a Record say it. A process compares a Run once: repeats would only say it again."""
    if run not in _known:
        _known[run] = compare()
    found = _known[run]
    return {"equivalence": found.model_dump() if found else None}


def compared(run: Run, precision: str, any_rows: bool) -> Run:
    """The Run whose steps are compared: as `run`, in a precision that shows what is computed, on few samples."""
    size = min(run.batch_size, SAMPLES) if any_rows else run.batch_size
    form = "eager" if run.framework == "torch" else run.execution
    return run.model_copy(update={"precision": precision, "batch_size": size, "execution": form})


def tolerance_of(run: Run, precision: str) -> float:
    """How far variables may be apart when the Run was compared in this precision."""
    return max(run.semantics.tolerance, TOLERANCE[precision, "sgd" if run.rule.name == "sgd" else "adam"])
