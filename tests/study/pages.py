"""Pages run in this process, cell by cell, drawing nothing: what a kernel does, in a hundredth of the time."""

import ast
import contextlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pandas as pd
import pytest

from multigpu import pages, paths
from multigpu.analysis import picture, prose, read
from multigpu.analysis.estimate import Estimate
from multigpu.analysis.picture import Picture
from multigpu.analysis.show import Shown

NOTEBOOKS = sorted(path for path in (paths.REPOSITORY / "notebooks").glob("[0-9]*.ipynb"))
NUMBERS = ("rate", "rate_low", "rate_high")


def code_of(path: Path) -> list[tuple[str, bool]]:
    """(source, whether it is the parameters' cell) of each code cell."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    return [(cell.source, "parameters" in cell.metadata.get("tags", [])) for cell in cells]


def names_of(cell: ast.Module) -> tuple[set[str], set[str]]:
    """(names that a cell binds, names that it reads and has not bound in a line above)."""
    bound: set[str] = set()
    free: set[str] = set()
    for line in cell.body:
        targets = [part.target for part in ast.walk(line) if isinstance(part, ast.comprehension)]
        inner = {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
        names = [part for part in ast.walk(line) if isinstance(part, ast.Name) and part.id not in inner]
        free |= {name.id for name in names if isinstance(name.ctx, ast.Load)} - bound
        bound |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return bound, free


class Page:
    """One page: `run` executes its cells; `facts` and `required` keep what each cell wrote and required."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch, strict: bool = True, **parameters: str) -> None:
        self.cells, self.parameters = code_of(path), parameters
        self.facts: dict[int, list[Any]] = {}
        self.required: dict[int, list[tuple[str, bool]]] = {}
        self.space: dict[str, Any] = {"__name__": "__main__"}
        self.at = 0
        write, require = Estimate.__format__, prose.require

        def note_fact(fact: Estimate, form: str) -> str:
            self.facts.setdefault(self.at, []).append(fact)
            return write(fact, form)

        def note_required(condition: Any, why: str) -> None:
            self.required.setdefault(self.at, []).append((why, bool(condition)))
            if strict:
                require(condition, why)

        patch.setattr(Estimate, "__format__", note_fact)
        patch.setattr(pages, "require", note_required)
        patch.setattr(picture, "save", lambda *_, **__: Shown(""))
        for name in ("dots", "lines", "bars", "timeline"):
            patch.setattr(pages, name, lambda rows, *_, **__: Picture(1, 1))
        if not strict:
            patch.setattr(pages, "table", lambda *_, **__: Shown(""))
            patch.setattr(read.Study, "header", lambda study: "")

    def run(self, last: int | None = None, kept: Mapping[str, Any] | None = None) -> None:
        """Execute the cells, all or this one and those that it rests on, the parameters as given.

        Args:
            kept: what the study has read already, by its attribute.
        """
        for number in range(len(self.cells)) if last is None else self.below(last):
            source, parameters = self.cells[number]
            self.at, cell = number, ast.parse(source)
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(prose.EachCell().visit(cell) if "study" in self.space else cell, f"cell {number}", "exec"), self.space)
            if parameters:
                self.space.update(self.parameters)
            elif number == 1:
                self.space["study"].__dict__.update(kept or {})

    def below(self, last: int) -> list[int]:
        """The first two cells, this one, and those between that bind a name which these read."""
        names = [names_of(ast.parse(source)) for source, _ in self.cells]
        needed, spoken = [last], names[last][1]
        for number in reversed(range(last)):
            bound, free = names[number]
            if number < 2 or bound & spoken:
                needed.append(number)
                spoken = spoken - bound | free
        return needed[::-1]


def keys_of(facts: list[Any]) -> frozenset[str]:
    """The Records that these facts follow."""
    return frozenset(key for fact in facts if isinstance(fact, Estimate) for key in fact.keys)


def scaled(table: pd.DataFrame, keys: frozenset[str], times: float) -> pd.DataFrame:
    """The points with the rates of these Records' points multiplied."""
    hit = np.array([bool(keys & set(str(own).split(", "))) for own in table["keys"]])
    table = table.copy()
    table.loc[hit, list(NUMBERS)] *= times
    table.loc[hit, ["step_time_s", "median_step_s"]] /= times
    table.loc[hit, "log_mean"] += np.log(times)
    return table


@contextlib.contextmanager
def points_scaled(patch: pytest.MonkeyPatch, keys: frozenset[str], times: float) -> Iterator[None]:
    """Pages read points whose rates are these times as high."""
    frame, table = read.frames(paths.RUNS)
    found = frame, scaled(table, keys, times)
    with patch.context() as inner:
        inner.setattr(read, "frames", lambda runs: found)
        yield
