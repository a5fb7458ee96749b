"""The study's design: what is measured, in which tier, and what it may cost.

Tiers: *headline* points have at least five repeats over two launches (eight over five where steps wander; single GPUs and one pair,
which no claim compares, three over three); *screening* points n = 1 and are marked so wherever they are shown; everything else a Run
can describe is *not planned*. Within a grid what matters most comes first, so that a budget that ends early leaves out the rest.

A grid, and a batch of Runs, is a file in YAML (`grids/*.yaml`), or its list of `points` alone; other names of an entry are a Run's fields.

    question: Which placement is fastest on two devices?
    common: {workload: nmt, model: nmt_small, sequence_length: 20, device_type: cpu}
    points:
      - placement: [ddp, exp4]          # a list is crossed with every other list; what is written first changes last
        job: [{batch_size: 16}, {batch_size: 64, precision: bf16}]  # a list of fields that belong together
        devices: [1, 2]
        repeats: 3
        reason: The smallest case that has a merge.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from multigpu.grid.entries import LAUNCH_OF_REPEAT, Planned, each_once
from multigpu.grid.expand import FOLDER, Expanded, Kind, expand
from multigpu.grid.named import CONDITIONS, COSTS, LISTS
from multigpu.measure.machine import gpu_count, this_machine
from multigpu.run import Run, build_run

RUNS = Kind(Run.model_fields, build_run, LISTS, CONDITIONS, COSTS)
Row = Expanded[Run]  # one point of a file


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
    """Every point of a file, as `expand`. asked_only: leave out those on other numbers of devices than `counts`."""
    rows = expand(path, RUNS, counts)
    return [row for row in rows if not asked_only or row.built.devices in counts or row.settings.whatever_devices]


def grid(name: str, counts: Sequence[int]) -> list[Planned]:
    """The entries of the grid `grids/<name>.yaml` at these numbers of devices, each once (`each_once`)."""
    return each_once(entry for row in read_rows(FOLDER / f"{name}.yaml", counts, asked_only=True) for entry in planned(row))


def gpu_study(devices: Sequence[int]) -> list[Planned]:
    """The headline once: what `study` measures where there are GPUs."""
    return [replace(entry, launches=entry.launches[:1]) for entry in grid("headline", devices)]


GRIDS: dict[str, Callable[[Sequence[int]], list[Planned]]] = {
    "gpu_study": gpu_study,
    **{file.stem: partial(grid, file.stem) for file in sorted(FOLDER.glob("*.yaml"))},
}
"""By name, a function of the device counts to measure: the files of `grids/`, and the default of a machine with GPUs."""


def every_grid() -> str:
    """The names of all grids but those for any computer (`*_small`, the study of CPUs) and of the checks of how it is measured."""
    return ",".join(name for name in GRIDS if not name.endswith("_small") and name not in ("cpu_study", "interference", "same_gpus"))


def device_counts(available: int) -> list[int]:
    """1, 2, 4, 8 ... up to what there is."""
    return [count for count in (1, 2, 4, 8) if count <= available]


def default_grid() -> str:
    """The grid that the study measures on this machine."""
    return "gpu_study" if gpu_count() else "cpu_study"


def devices_here() -> list[int]:
    """Device counts that this machine can measure: 1, 2, 4, 8 up to its GPUs; without any, up to two CPU processes."""
    return device_counts(gpu_count() or min(2, this_machine().cores))


def find_grid(name: str, devices: Sequence[int]) -> list[Planned]:
    """The grid called `name` at these device counts, or several, their names joined by commas, as one (`each_once`); their launches are
    then shared. A ValueError names the known ones.
    """
    chosen = [one.strip() for one in name.split(",")]
    for one in chosen:
        if one not in GRIDS:
            raise ValueError(f"unknown grid {one!r}: choose one of {', '.join(GRIDS)}, or several joined by commas")
    return each_once(entry for one in chosen for entry in GRIDS[one](devices))
