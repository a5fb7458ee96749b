"""What a placement can reach by itself: how far above 1 an efficiency may lie."""

import math
from typing import Any

from multigpu.analysis.limits import bound_units_per_s, ceilings, model_of
from multigpu.placements import find_placement
from multigpu.spec.model import PLAIN_OPTIMIZERS

BEYOND = 1.05
"""From so many times what it can reach on, an efficiency is not shown as one."""


def reach(row: Any, same: bool) -> float:
    """Return the most that a device of a point can train over one GPU at its best, whose rate is
    best_single_rate: 1, unless the devices divide what one does alone. A divided update spares each
    of them passes through memory. Of a divided batch (strong scaling) a part may fit a cache, and
    arithmetic alone bounds it.

    same: over the same placement on one device; all by which that is slower may be divided too.
    """
    best, count, found = row["best_single_rate"], row["devices"], 1.0
    update, batch = find_placement(row["placement"]).divides_update, row["scaling"] == "strong"
    model = model_of(row)
    if update:
        slots = PLAIN_OPTIMIZERS.get(row["optimizer"], model.optimizer).slots
        memory = ceilings(row["gpu"])["memory"].value if ceilings(row["gpu"]) else math.inf
        update_s = (3 + 2 * slots) * model.parameter_bytes / memory
        step_s = row["rate"] * row["step_time_s"] / count / best
        found = 1 / (1 - (1 - 1 / count) * min(update_s / step_s, 0.99))
    if batch:
        found = bound_units_per_s(model, row["gpu"], row["precision"], 1, 1.0).compute / best
    if same and (update or batch):
        found *= max(1.0, best * row["speedup_same"] / row["rate"])
    return 1.0 if math.isnan(found) else found
