"""What limits the page on training, as far as Records and placements tell it: seeds, and placements without a curve."""

from __future__ import annotations

import pandas as pd

from multigpu.analysis.figure_training_rates import batch_points, rule_points, schedule_points
from multigpu.analysis.picture import Shown, paragraphs
from multigpu.analysis.style import look
from multigpu.analysis.training_page import Seen
from multigpu.analysis.wording import joined
from multigpu.placements import placements
from multigpu.training.grid import joined_placements
from multigpu.training.run import TRAINABLE

SETTINGS = ["machine", "model", "inputs", "devices", "joined_batch", "base_rate", "rate_scaling", "schedule", "adjusted", "precision"]
SETTINGS += ["execution", "epochs"]
"""What makes runs repeats of each other but for their seed."""


def seeds_sentence(seen: Seen) -> str:
    """From how many seeds each question of the page is answered."""
    parts = {
        "curves": seen.frame[seen.frame["key"].isin(seen.same["key"])],
        "rules for the rate": rule_points(seen.frame),
        "schedules": schedule_points(seen.frame),
        "batches": batch_points(seen.frame),
    }
    said = [f"{name} {_seeds(table)}" for name, table in parts.items() if len(table)]
    return f"Seeds of a setting: {joined(said)}; one is screening." if said else ""


def _seeds(table: pd.DataFrame) -> str:
    """Least to most."""
    counts = table.groupby(SETTINGS, dropna=False)["seed"].nunique()
    low, high = int(counts.min()), int(counts.max())
    return str(low) if low == high else f"{low} to {high}"


def without_curve() -> list[str]:
    """Placements that train one model in PyTorch, but in no process a device: training knows no other shape."""
    known = joined_placements()
    return [
        name
        for name, row in placements().items()
        if row.semantics.kind in TRAINABLE
        and row.compute == "replica"
        and name not in known
        and any(engine.framework == "torch" for engine in row.engines)
    ]


def threats(seen: Seen) -> Shown:
    """Both in words."""
    names = without_curve()
    apart = (
        f"{joined([look(name).label for name in names])} {'has' if len(names) == 1 else 'have'} no curve: one process drives all devices "
        "there, and training takes a process a device. What stands in for it is a test that three steps in float64 give the variables of "
        "averaged gradients, to 1e-13 (tests/engines/test_parallel.py)."
    )
    return paragraphs(seeds_sentence(seen), apart if names else "", kind="said")
