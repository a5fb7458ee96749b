"""Placements, discovered by file: a module here that defines `PLACEMENT` is one, of the file's name."""

import importlib
import pkgutil
from functools import cache

from multigpu.placements.refusals import refusal
from multigpu.placements.row import Placement
from multigpu.placements.stage_split import SPLIT

FILES = {info.name for info in pkgutil.iter_modules(__path__)}


@cache
def _row(file: str) -> Placement | None:
    """The row of a file here; None of one that holds none."""
    return getattr(importlib.import_module(f"{__name__}.{file}"), "PLACEMENT", None)


@cache
def placements() -> dict[str, Placement]:
    """Every placement by name, in alphabetical order."""
    return {name: row for name in sorted(FILES) if (row := _row(name))}


def every_placement() -> dict[str, Placement]:
    """Every placement by name: those of a file here, and those inside one model (`stage_split`)."""
    return {**placements(), **SPLIT}


def row_of(name: str) -> Placement | None:
    """The row called `name`, None where there is none; no other one is read."""
    return SPLIT.get(name) or (_row(name) if name in FILES else None)


def find_placement(name: str) -> Placement:
    """The row called `name` (`every_placement`).

    Raises:
        ValueError: no such placement; the sentence names the known ones.
    """
    if (row := row_of(name)) is None:
        raise ValueError(f"unknown placement {name!r}: choose one of {', '.join(every_placement())}")
    return row


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
