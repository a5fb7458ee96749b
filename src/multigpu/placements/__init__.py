"""Placements, discovered by file: a module here that defines `PLACEMENT` is one, of the file's
name. Other packages may add some.
"""

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
    """Every placement by name: those of a file here or of another package, and those inside one
    model (`stage_split`).
    """
    return {**placements(), **SPLIT}


def row_of(name: str) -> Placement | None:
    """The row called `name`, None where there is none, no other read; a ValueError where another
    package adds one that cannot be used.
    """
    return SPLIT.get(name) or (_row(name) if name in FILES else ADDED.get(name))


def find_placement(name: str) -> Placement:
    """The row called `name` (`every_placement`); a ValueError where there is no such placement, or
    as `row_of`.
    """
    if (row := row_of(name)) is None:
        raise ValueError(
            f"unknown placement {name!r}: choose one of {', '.join(every_placement())}, or install"
            " the package that adds it"
        )
    return row
