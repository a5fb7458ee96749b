"""Grids and batches of Runs in YAML: entries whose lists are crossed with each other. Data, no language; `grids/*.yaml` are examples.

    question: Which placement is fastest on two devices?
    common: {workload: nmt, model: nmt_small, sequence_length: 20, device_type: cpu}
    points:
      - placement: [ddp, exp4]          # a list is crossed with every other list; what is written first changes last
        job:                            # a list of fields that belong together
          - {batch_size: 16}
          - {batch_size: 64, precision: bf16}
        devices: [1, 2]
        repeats: 3
        reason: The smallest case that has a merge.

A file may also be the list of `points` alone. All other names of an entry are fields of a Run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from multigpu.grid.entries import LAUNCH_OF_REPEAT, Planned, each_once
from multigpu.grid.expand import FOLDER, Expanded, Kind, expand
from multigpu.grid.named import CONDITIONS, COSTS, LISTS
from multigpu.run import Run, build_run

RUNS = Kind(Run.model_fields, build_run, LISTS, CONDITIONS, COSTS)
Row = Expanded[Run]
"""One point of a file."""


def planned(row: Row) -> list[Planned]:
    """The entries of a grid that a point stands for: itself, and its traced twin where one is asked for."""
    entries = [Planned(row.built, row.cost_s, launches_for(row), row.settings.first_repeat)]
    return entries + ([Planned(traced(row.built, row.settings.trace), row.cost_s)] if row.settings.trace else [])


def traced(run: Run, steps: int) -> Run:
    """The twin of a Run whose last steps are traced."""
    return build_run(**run.model_dump(exclude_defaults=True) | {"traced_steps": steps})


def launches_of(repeats: int) -> tuple[int, ...]:
    """The launch of each of so many repeats, as headline points have them; further ones have a launch each."""
    more = range(LAUNCH_OF_REPEAT[-1] + 1, LAUNCH_OF_REPEAT[-1] + 1 + repeats)
    return (*LAUNCH_OF_REPEAT, *more)[:repeats]


def launches_for(row: Row) -> tuple[int, ...]:
    """The launch of each repeat: what its file says, or as many as it asks for."""
    return row.launches or launches_of(row.settings.repeats)


def read_rows(path: Path, counts: Sequence[int], asked_only: bool = False) -> list[Row]:
    """Every point of a file, in its order.

    Args:
        counts: the numbers of devices that `each`, `ends` and `most` speak of.
        asked_only: leave out points on other numbers of devices, as a grid does that is measured on some of them.

    Raises:
        ValueError: as `expand`.
    """
    rows = expand(path, RUNS, counts)
    return [row for row in rows if not asked_only or row.built.devices in counts or row.settings.whatever_devices]


def grid(name: str, counts: Sequence[int]) -> list[Planned]:
    """The entries of the grid `grids/<name>.yaml` at these numbers of devices, each once (`each_once`).

    Raises:
        ValueError: as `expand`.
    """
    return each_once(entry for row in read_rows(FOLDER / f"{name}.yaml", counts, asked_only=True) for entry in planned(row))
