"""Placements, discovered by file: a module here that defines `PLACEMENT` is one."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from multigpu.placements.row import Placement


@cache
def placements() -> dict[str, Placement]:
    """Every placement by name, in alphabetical order."""
    found = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        if hasattr(module, "PLACEMENT"):
            found[module.PLACEMENT.name] = module.PLACEMENT
    return found


def find_placement(name: str) -> Placement:
    """The row called `name`.

    Raises:
        ValueError: no such placement; the sentence names the known ones.
    """
    if name not in placements():
        raise ValueError(f"unknown placement {name!r}: choose one of {', '.join(placements())}")
    return placements()[name]


def unsupported_reason(placement: Placement, framework: str, execution: str) -> str | None:
    """Why this placement cannot run so, or None if it can."""
    if framework not in placement.frameworks:
        return f"placement {placement.name!r} does not exist in {framework!r}: it exists in {', '.join(placement.frameworks)}"
    if execution not in placement.executions:
        why = placement.refusals.get(execution)
        return f"placement {placement.name!r} does not run {execution!r}: " + (why or f"it runs {', '.join(placement.executions)}")
    return None
