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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Self, TypeVar

from multigpu.build import build_run
from multigpu.grids.expand import FOLDER, Expanded, Kind, expand
from multigpu.grids.named import CONDITIONS, COSTS, LISTS
from multigpu.machine.machine import gpu_count, this_machine
from multigpu.plugins import PluginRegistry
from multigpu.runner.point import START_S, Point, launch_of
from multigpu.spec.run import Run

Entry = TypeVar("Entry")
RUNS = Kind(Run.model_fields, build_run, LISTS, CONDITIONS, COSTS)
Row = Expanded[Run]  # one point of a file
LAUNCH_OF_REPEAT = (0, 0, 0, 1, 1, 2, 3, 4)
"""Which launch measures which repeat of a headline point. Eager steps differ more between launches
than within one (the host), so the later repeats get launches of their own; the first five alone are
what the tier needs at least.
"""
FEWEST = (0, 0, 1, 2, 3)
"""Where eight repeats cost too much. Four launches, since where launches differ an interval has a
degree of freedom less than launches: with two it is 12.7 standard errors to each side, with four
    3.2; and a start costs seconds.
"""
KNOWN_AT_LEAST = 5  # points, before a pace is told


def launches_of(repeats: int, first: Sequence[int] = LAUNCH_OF_REPEAT) -> tuple[int, ...]:
    """The launch of each of so many repeats, as headline points have them; those beyond the first
    ones have a launch each.
    """
    return (*first, *range(max(first) + 1, max(first) + 1 + repeats))[:repeats]


@dataclass(frozen=True)
class Planned:
    """A Run, the seconds one measurement of it may cost, and which launch measures each repeat.
    first_repeat: the number of the first: beyond those of other grids where a point is measured
        again beside what is compared with it.
    """

    run: Run
    cost_s: float
    launches: tuple[int, ...] = (0,)
    first_repeat: int = 0

    def points(self) -> list[Point]:
        """The measurements this entry stands for."""
        return [
            Point(self.run, repeat, launch)
            for repeat, launch in enumerate(self.launches, self.first_repeat)
        ]

    def repeated(self, times: int) -> Self:
        """The entry with so many repeats: the first of a headline point, or those that a screening
        point would have as one.
        """
        return replace(
            self,
            launches=launches_of(times, self.launches if len(self.launches) > 1 else FEWEST),
            first_repeat=0,
        )


def each_once(planned: Iterable[Planned]) -> list[Planned]:
    """The entries, a Run that several declare where it first stands, and repeated if any of them
    repeats it.
    """
    found: dict[tuple[str, int], Planned] = {}
    for entry in planned:
        at = (entry.run.digest, entry.first_repeat)
        if (known := found.get(at)) is None or len(known.points()) < len(entry.points()):
            found[at] = entry
    return list(found.values())


def points(planned: Sequence[Planned]) -> list[Point]:
    """All measurements that these entries stand for."""
    return [point for entry in planned for point in entry.points()]


def cost_s(planned: Sequence[Planned]) -> float:
    """Return the seconds that measuring these entries may cost."""
    return sum(entry.cost_s * len(entry.points()) for entry in planned)


def pace(planned: Sequence[Planned], spent_s: Mapping[tuple[Run, int], float]) -> float | None:
    """Seconds that the grid's measured points took, by (Run, repeat) without their launch's start,
    over what it says; None of too few.
    """
    every = [
        (spent_s.get((point.run, point.repeat)), entry.cost_s)
        for entry in planned
        for point in entry.points()
    ]
    known = [(took, said) for took, said in every if took is not None]
    return (
        sum(took for took, _ in known) / sum(said for _, said in known)
        if len(known) >= KNOWN_AT_LEAST
        else None
    )


def affordable(
    planned: Sequence[Planned],
    known: Iterable[tuple[Run, int]],
    budget_s: float,
    pace: float | None = None,
    lanes: Callable[[Run], int] = lambda run: 1,
) -> list[Point]:
    """The measurements that a budget allows: first repeats in the grid's order, then second ones,
    and so on.
    known: (Run, repeat) of what has been measured before, which costs nothing. pace: estimates are
        scaled by it and every launch costs its
    start; None: the grid's estimates, which include starts. lanes: how many such Runs share the
    time.
    """
    done = {(run.digest, repeat) for run, repeat in known}
    every = [
        (number, point, entry.cost_s)
        for entry in planned
        for number, point in enumerate(entry.points())
    ]
    chosen, left, launches = [], budget_s, set()
    for _, point, cost in sorted(every, key=lambda one: one[0]):
        if (point.run.digest, point.repeat) in done:
            continue
        cost, launch = cost / lanes(point.run), launch_of(point)
        if pace is not None:
            cost = cost * pace + (START_S if launch not in launches else 0.0)
        if cost <= left:
            left -= cost
            launches.add(launch)
            chosen.append(point)
    return chosen


def having(
    planned: Sequence[Entry],
    fields: Mapping[str, object],
    value: Callable[[Any, str], object] = lambda entry, name: getattr(entry.run, name),
) -> list[Entry]:
    """The entries that have these values (`value` gives an entry's) in their fields; a ValueError
    if none has.
    """
    chosen = [
        entry
        for entry in planned
        if all(value(entry, name) == wanted for name, wanted in fields.items())
    ]
    if planned and not chosen:
        words = " ".join(f"{name}={wanted}" for name, wanted in fields.items())
        raise ValueError(f"no Run of the grid has {words}: `--dry-run` lists them")
    return chosen


def planned(row: Row) -> list[Planned]:
    """The entries of a grid that a point stands for: itself, and its traced twin where one is asked
    for.
    """
    entries = [Planned(row.built, row.cost_s, launches_for(row), row.settings.first_repeat)]
    return entries + (
        [Planned(traced(row.built, row.settings.trace), row.cost_s)] if row.settings.trace else []
    )


def traced(run: Run, steps: int) -> Run:
    """The twin of a Run whose last steps are traced."""
    return build_run(**run.model_dump(exclude_defaults=True) | {"traced_steps": steps})


def launches_for(row: Row) -> tuple[int, ...]:
    """The launch of each repeat: what its file says, or as many as it asks for."""
    return row.launches or launches_of(row.settings.repeats)


def read_rows(path: Path, counts: Sequence[int], asked_only: bool = False) -> list[Row]:
    """Every point of a file, as `expand`. asked_only: leave out those on other numbers of devices
    than `counts`.
    """
    rows = expand(path, RUNS, counts)
    return [
        row
        for row in rows
        if not asked_only or row.built.devices in counts or row.settings.whatever_devices
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
        for entry in planned(row)
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


def find_grid(name: str, devices: Sequence[int]) -> list[Planned]:
    """The grid of this name, or of several joined by commas as one whose launches are shared; a
    ValueError names the known ones.
    """
    chosen = [one.strip() for one in name.split(",")]
    for one in chosen:
        if one not in GRIDS:
            raise ValueError(
                f"unknown grid {one!r}: choose one of {', '.join(GRIDS)}, or several joined by"
                " commas"
            )
    return each_once(entry for one in chosen for entry in GRIDS[one](devices))
