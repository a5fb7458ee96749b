"""Placements: modules here that define `PLACEMENT`, by file, and those that others add."""

import importlib
import pkgutil
from functools import cache

from multigpu.placements.row import Placement
from multigpu.placements.stage_split import SPLIT
from multigpu.plugins import PluginRegistry

FILES = {info.name for info in pkgutil.iter_modules(__path__)}
ADDED: PluginRegistry[Placement] = PluginRegistry("placements", Placement, FILES | SPLIT.keys())
FOREIGN = ADDED.foreign
"""Names of those that no part of this repository adds."""


@cache
def _row(file: str) -> Placement | None:
    return getattr(importlib.import_module(f"{__name__}.{file}"), "PLACEMENT", None)


@cache
def placements() -> dict[str, Placement]:
    """Every placement by name, in alphabetical order."""
    own = {name: row for name in FILES if (row := _row(name))}
    return dict(sorted({**own, **ADDED}.items()))


def every_placement() -> dict[str, Placement]:
    """Every placement by name, those inside one model (`stage_split`) among them."""
    return {**placements(), **SPLIT}


def row_of(name: str) -> Placement | None:
    """The row called `name`, or None; a ValueError where another package's cannot be used."""
    return SPLIT.get(name) or (_row(name) if name in FILES else ADDED.get(name))


def find_placement(name: str) -> Placement:
    """The row called `name`; a ValueError where there is none, or as `row_of`."""
    if (row := row_of(name)) is None:
        raise ValueError(
            f"unknown placement {name!r}: choose one of {', '.join(every_placement())}, or install"
            " the package that adds it"
        )
    return row
