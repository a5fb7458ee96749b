"""The rows of a batch: which Run each asks for, where its files lie, and what became of it; and
those whose Run cannot be.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from multigpu.build import build_run
from multigpu.grids import RUNS, grid_file
from multigpu.grids.expand import Kind, expand
from multigpu.grids.planned import Planned, launches_of
from multigpu.spec.run import Run

# of the names of files of rows that were executed to the end, and of others
ENDINGS = ("", ".failed")


class Impossible(NamedTuple):
    """A row whose Run the rules refuse: its fields in words, why, and why it was asked for."""

    words: str
    why: str
    reason: str = ""


def _run_or_why(**fields: Any) -> Run | Impossible:
    """The Run of these fields, or what refuses it, which stops no other row of its file."""
    try:
        return build_run(**fields)
    except ValueError as error:
        return Impossible(" ".join(f"{name}={value}" for name, value in fields.items()), str(error))


class Outcome(BaseModel):
    """The outcome of a row; "": nothing yet. not_here: this machine lacks its devices."""

    model_config = ConfigDict(frozen=True)
    status: Literal["", "done", "failed", "not_here"] = ""
    reason: str = ""


class BatchRow(Planned[Run]):
    """A row to be done. run: without traced steps, which are its settings' `trace`."""

    @property
    def name(self) -> str:
        """Of its files: another one where anything differs that is measured or shown, so that rows
        may be added, moved or left out.
        """
        run, trace, compare = self.run, self.settings.trace, self.settings.compare
        said = f"{run.digest} {self.launches} {trace} {compare}"
        words = (run.model, run.placement, f"x{run.devices}", f"b{run.batch_size}")
        readable = re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(words))[:80]
        return f"{readable}-{hashlib.sha256(said.encode()).hexdigest()[:8]}"

    def parameters(self, out: Path, names: Sequence[str]) -> dict[str, Any]:
        """The notebook's parameters; fields of the Run that it has no name for go into `more`."""
        fields = self.run.model_dump() | {"data": self.run.data and list(self.run.data)}
        more = {
            name: value
            for name, value in fields.items()
            if name not in names and value != Run.model_fields[name].default
        }
        plain = self.launches == launches_of(len(self.launches))
        return {name: value for name, value in fields.items() if name in names} | {
            "repeats": len(self.launches) if plain else list(self.launches),
            "trace": self.settings.trace,
            "records": str(out.resolve() / "records"),
            "compare": self.settings.compare,
            "more": more,
        }

    def file(self, out: Path, ending: str) -> Path:
        return out / "rows" / f"{self.name}{ending}"

    def outcome(self, out: Path) -> Outcome:
        """Return the row's outcome so far, as far as it can be read."""
        try:
            found = Outcome.model_validate_json(self.file(out, ".json").read_bytes())
        except (OSError, ValidationError):
            return Outcome()
        return found if found.status != "done" or self.file(out, ".ipynb").is_file() else Outcome()


ROWS: Kind[Any] = replace(RUNS, build=_run_or_why, planned=BatchRow)  # type: ignore[arg-type]


def find_points(name: str) -> Path:
    """The file of that path, or else the study's grid of that name ("headline",
    "grids/headline.yaml").
    """
    path = Path(name)
    grid = grid_file(path.name.removesuffix(".yaml"))
    return grid if grid is not None and not path.exists() else path


def read_tasks(
    points: Path, counts: Sequence[int]
) -> tuple[list[BatchRow], list[Impossible], list[str]]:
    """The rows of a file (or a ValueError), each once; those that cannot be; and in words which
    stand there several times.
    """
    found, refused, said = dict[str, BatchRow](), list[Impossible](), []
    row: Any
    for row in expand(points, ROWS, counts):
        if isinstance(row.run, Impossible):
            refused.append(row.run._replace(reason=row.settings.reason))
            continue
        run = build_run(
            **row.run.model_dump(exclude_defaults=True) | {"traced_steps": 0, "traced_from": None}
        )
        row = _traced(replace(row, run=run), max(row.settings.trace, row.run.traced_steps))
        if known := found.get(run.digest):
            said.append(
                f"{row.where} is {known.where.rpartition(', ')[2]} again, {run.label()}:"
                " measured once"
            )
            longest = max(known.launches, row.launches, key=len)
            compare = known.settings.compare or row.settings.compare
            row = _traced(
                replace(known, launches=longest),
                max(known.settings.trace, row.settings.trace),
                compare=compare,
            )
        found[run.digest] = row
    if refused and not found:
        raise ValueError(f"no point of {points} can be measured: {refused[0].why}")
    if not found:
        raise ValueError(
            f"{points} leaves no point: its filters `only` and `without` leave out every one"
        )
    return list(found.values()), list(dict.fromkeys(refused)), said


def _traced(row: BatchRow, steps: int, **more: Any) -> BatchRow:
    """The row with so many traced steps, and other settings."""
    return replace(row, settings=row.settings.model_copy(update={"trace": steps, **more}))
