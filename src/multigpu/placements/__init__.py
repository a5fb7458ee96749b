"""Placements, discovered by file: a module here that defines `PLACEMENT` is one."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from multigpu.placements.refusals import refusal
from multigpu.placements.row import Placement
from multigpu.placements.stage_split import SPLIT


@cache
def placements() -> dict[str, Placement]:
    """Every placement by name, in alphabetical order."""
    found = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        if hasattr(module, "PLACEMENT"):
            found[module.PLACEMENT.name] = module.PLACEMENT
    return found


def every_placement() -> dict[str, Placement]:
    """Every placement by name: those of a file here, and those inside one model (`stage_split`)."""
    return {**placements(), **SPLIT}


def find_placement(name: str) -> Placement:
    """The row called `name` (`every_placement`).

    Raises:
        ValueError: no such placement; the sentence names the known ones.
    """
    known = every_placement()
    if name not in known:
        raise ValueError(f"unknown placement {name!r}: choose one of {', '.join(known)}")
    return known[name]


def unsupported_reason(placement: Placement, framework: str, processes: str, execution: str) -> str | None:
    """Why this placement cannot run so, or None if it can."""
    found = refusal(placement, framework, processes, execution)
    if found is None:
        return None
    name, allowed = f"placement {placement.name!r}", ", ".join(found.allowed)
    if found.field == "framework":
        return f"{name} does not exist in {framework!r}: {found.why}"
    if found.field == "processes":
        return f"{name} does not run in {framework!r} with processes {processes!r}: {found.why}; it runs with {allowed}"
    return f"{name} does not run {execution!r} in {framework!r} with processes {processes!r}: {found.why}; it runs {allowed}"
