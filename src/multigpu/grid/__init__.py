"""The study's design: what is measured, in which tier, and what it may cost.

Tiers: *headline* points have at least five repeats over two launches (eight over five where steps wander; single GPUs and one pair,
which no claim compares, three over three); *screening* points n = 1 and are marked so wherever they are shown; everything else a Run
can describe is *not planned*. Within a grid what matters most comes first, so that a budget that ends early leaves out the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from multigpu.grid.entries import Planned, each_once
from multigpu.grid.from_yaml import FOLDER, grid
from multigpu.measure.machine import gpu_count, this_machine


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
    """The grid called `name` at these device counts, or several, their names joined by commas: one after the other, a Run that several
    declare where it first stands, and repeated if any of them repeats it. Their launches are then shared.

    Raises:
        ValueError: no such grid; the sentence names the known ones.
    """
    chosen = [one.strip() for one in name.split(",")]
    for one in chosen:
        if one not in GRIDS:
            raise ValueError(f"unknown grid {one!r}: choose one of {', '.join(GRIDS)}, or several joined by commas")
    return each_once(entry for one in chosen for entry in GRIDS[one](devices))
