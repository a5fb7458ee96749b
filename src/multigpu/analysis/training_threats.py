"""What limits the page on training, as far as Records and placements tell it: seeds, and placements without a curve."""

from __future__ import annotations

import pandas as pd

from multigpu.analysis.figure_training_rates import batch_points, rule_points, schedule_points
from multigpu.analysis.picture import Shown, paragraphs
from multigpu.analysis.style import in_order, look
from multigpu.analysis.training_page import Seen
from multigpu.analysis.wording import joined
from multigpu.placements import find_placement
from multigpu.training.joined import joined_placements

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


def without_curve(seen: Seen, device_type: str) -> list[str]:
    """Placements that train one model in PyTorch and have no curve of any job on these devices."""
    own = seen.frame[seen.frame["key"].isin(seen.same["key"]) & (seen.frame["device_type"] == device_type)]
    return in_order(set(joined_placements()) - set(own["placement"]))


def in_both_shapes() -> list[str]:
    """Placements that train one model in PyTorch with a process a device and with one process for all devices."""
    shapes = {name: {e.processes for e in find_placement(name).engines if e.framework == "torch"} for name in joined_placements()}
    return in_order(name for name, found in shapes.items() if len(found) > 1)


def threats(seen: Seen) -> Shown:
    """All of it in words."""
    compared = seen.frame[seen.frame["key"].isin(seen.same["key"])]
    return paragraphs(seeds_sentence(seen), *_missing(seen, compared), _shapes(compared), kind="said")


def _missing(seen: Seen, compared: pd.DataFrame) -> list[str]:
    """Of each kind of devices with curves: which placements have none there."""
    said = []
    for device_type, where in (("cuda", "GPUs"), ("cpu", "CPUs")):
        names = without_curve(seen, device_type) if compared["device_type"].eq(device_type).any() else []
        if names:
            verb = "has" if len(names) == 1 else "have"
            said.append(f"On {where} {joined([look(name).label for name in names])} {verb} no curve: no Record of such a run is there yet.")
    return said


def _shapes(compared: pd.DataFrame) -> str:
    """Which curves one process has that works on all devices, and what stands in for the others."""
    both = in_both_shapes()
    one = compared[compared["processes"] == "one"]
    if one.empty or one["placement"].isin(both).any():
        return ""
    names = in_order(one["placement"])
    trained = f"{joined([look(name).label for name in names])} {'was' if len(names) == 1 else 'were'}"
    return (
        f"With one process for all devices {trained} trained to the end, and no other placement: of the {len(both)} that have both shapes "
        f"({joined([look(name).label for name in both])}) a test trains both for six steps in float64, and the joined ones reach equal "
        "variables, to 1e-13 (tests/training/test_one_process.py)."
    )
