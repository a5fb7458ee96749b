"""The study's design: what is measured, in which tier, and what it may cost.

Tiers: *headline* points have at least five repeats over two launches (eight over five where steps
    wander; single GPUs and one pair,
which no claim compares, three over three); *screening* points n = 1 and are marked so wherever they
are shown; everything else a Run can describe is *not planned*. Within a grid what matters most
comes first, so that a budget that ends early leaves out the rest.

A grid, and a batch of Runs, is a file in YAML (`grids/*.yaml`), or its list of `points` alone;
other names of an entry are a Run's fields.

    question: Which placement is fastest on two devices?
    common: {workload: nmt, model: nmt_small, sequence_length: 20, device_type: cpu}
    points:
      - placement: [ddp, exp4]          # a list is crossed with every other list; what is written
          first changes last
        job: [{batch_size: 16}, {batch_size: 64, precision: bf16}]  # a list of fields that belong
            together
        devices: [1, 2]
        repeats: 3
        reason: The smallest case that has a merge.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from multigpu.build import build_run
from multigpu.grids.expand import FOLDER, Kind, expand
from multigpu.grids.named import CONDITIONS, COSTS, LISTS
from multigpu.grids.planned import Planned, each_once
from multigpu.machine.machine import gpu_count, this_machine
from multigpu.plugins import PluginRegistry
from multigpu.spec.run import Run

RUNS = Kind(Run.model_fields, build_run, LISTS, CONDITIONS, COSTS)
Row = Planned[Run]  # one point of a file


def entries_of(row: Row) -> list[Planned]:
    """The entries of a grid that a point stands for: itself, and its traced twin where one is asked
    for.
    """
    steps = row.settings.trace
    return [row, Planned(traced(row.run, steps), row.cost_s)] if steps else [row]


def traced(run: Run, steps: int) -> Run:
    """The twin of a Run whose last steps are traced."""
    return build_run(**run.model_dump(exclude_defaults=True) | {"traced_steps": steps})


def read_rows(path: Path, counts: Sequence[int], asked_only: bool = False) -> list[Row]:
    """Every point of a file, as `expand`. asked_only: leave out those on other numbers of devices
    than `counts`.
    """
    rows = expand(path, RUNS, counts)
    return [
        row
        for row in rows
        if not asked_only or row.run.devices in counts or row.settings.whatever_devices
    ]


ADDED: PluginRegistry[Path] = PluginRegistry(
    "grids", ModuleType, use=lambda package, _: Path(package.__path__[0])
)
"""Folders whose *.yaml are grids, each a package that another distribution adds."""


def grid_file(name: str) -> Path | None:
    """The file of the grid of this name: `grids/<name>.yaml`, or one that another package adds."""
    files = (folder / f"{name}.yaml" for folder in (FOLDER, *ADDED.values()))
    return next((file for file in files if file.is_file()), None)


def grid(name: str, counts: Sequence[int]) -> list[Planned]:
    """The entries of the grid of this name (`grid_file`) at these numbers of devices, each once
    (`each_once`).
    """
    return each_once(
        entry
        for row in read_rows(grid_file(name) or Path(name), counts, asked_only=True)
        for entry in entries_of(row)
    )


def gpu_study(devices: Sequence[int]) -> list[Planned]:
    """The headline once: what `study` measures where there are GPUs."""
    return [replace(entry, launches=entry.launches[:1]) for entry in grid("headline", devices)]


GRIDS: dict[str, Callable[[Sequence[int]], list[Planned]]] = {
    "gpu_study": gpu_study,
    **{
        name: partial(grid, name)
        for name in sorted(
            file.stem for folder in (FOLDER, *ADDED.values()) for file in folder.glob("*.yaml")
        )
    },
}
"""By name, a function of the device counts to measure: the files of `grids/`, those of other
packages, and the default of a machine with GPUs.
"""


def device_counts(available: int) -> list[int]:
    """1, 2, 4, 8 ... up to what there is."""
    return [count for count in (1, 2, 4, 8) if count <= available]


def default_grid() -> str:
    """The grid that the study measures on this machine."""
    return "gpu_study" if gpu_count() else "cpu_study"


def devices_here() -> list[int]:
    """Device counts that this machine can measure: 1, 2, 4, 8 up to its GPUs; without any, up to
    two CPU processes.
    """
    return device_counts(gpu_count() or min(2, this_machine().cores))


def find_grid(
    name: str, *asked: Any, grids: Mapping[str, Callable[..., Iterable[Planned]]] = GRIDS
) -> list[Any]:
    """The grid of this name among those of a kind of experiment, of Runs also a file of one's own
    (FILE.yaml), or several joined by commas as one whose launches are shared; a ValueError names
    the known ones. asked: what makes a grid of the kind; of Runs the numbers of devices.
    """
    chosen = [one.strip() for one in name.split(",")]
    own = {one: partial(grid, one) for one in chosen if one.endswith((".yaml", ".yml"))}
    known = {**grids, **own} if grids is GRIDS else grids
    for one in chosen:
        if one not in known:
            files = ", a file FILE.yaml of points" if grids is GRIDS else ""
            raise ValueError(
                f"unknown grid {one!r}: choose one of {', '.join(grids)}{files}, or several joined"
                " by commas"
            )
    return each_once(entry for one in chosen for entry in known[one](*asked))
