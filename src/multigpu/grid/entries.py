"""What an entry of a grid is: a Run, which launches repeat it, and what measuring it may cost."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from multigpu.measure.point import START_S, Point, launch_of
from multigpu.run import Run

LAUNCH_OF_REPEAT = (0, 0, 0, 1, 1, 2, 3, 4)
"""Which launch measures which repeat of a headline point. Eager steps differ more between launches than within one (the host),
so the later repeats get launches of their own; the first five alone are what the tier needs at least."""
FEWEST = (0, 0, 1, 2, 3)
"""Where eight repeats cost too much. Four launches, since where launches differ an interval has a degree of freedom less than launches:
with two it is 12.7 standard errors to each side, with four 3.2; and a start costs seconds."""
ENDS = (1, 4, 8)  # device counts whose points are repeated: one, a whole host of eight, and half of it; others are screening
KNOWN_AT_LEAST = 5  # points, before a pace is told


def ends_of(devices: Sequence[int]) -> list[int]:
    """One device and the most, where points are repeated if there is no time for more; the most first."""
    return sorted({1, max(devices, default=1)} & {*devices}, reverse=True)


@dataclass(frozen=True)
class Planned:
    """A Run, the seconds one measurement of it may cost, and which launch measures each repeat.

    first_repeat: the number of the first: beyond those of other grids where a point is measured again beside what is compared with it.
    """

    run: Run
    cost_s: float
    launches: tuple[int, ...] = (0,)
    first_repeat: int = 0

    def points(self) -> list[Point]:
        """The measurements this entry stands for."""
        return [Point(self.run, repeat, launch) for repeat, launch in enumerate(self.launches, self.first_repeat)]


def each_once(planned: Iterable[Planned]) -> list[Planned]:
    """The entries, a Run that several declare where it first stands, and repeated if any of them repeats it."""
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
    """What measuring these entries may cost in seconds."""
    return sum(entry.cost_s * len(entry.points()) for entry in planned)


def pace(planned: Sequence[Planned], spent_s: Mapping[tuple[Run, int], float]) -> float | None:
    """Seconds that the grid's measured points took, by (Run, repeat) without their launch's start, over what it says; None of too few."""
    every = [(spent_s.get((point.run, point.repeat)), entry.cost_s) for entry in planned for point in entry.points()]
    known = [(took, said) for took, said in every if took is not None]
    return sum(took for took, _ in known) / sum(said for _, said in known) if len(known) >= KNOWN_AT_LEAST else None


def affordable(
    planned: Sequence[Planned],
    known: Iterable[tuple[Run, int]],
    budget_s: float,
    pace: float | None = None,
    lanes: Callable[[Run], int] = lambda run: 1,
) -> list[Point]:
    """The measurements that a budget allows: first repeats in the grid's order, then second ones, and so on.

    known: (Run, repeat) of what has been measured before, which costs nothing. pace: estimates are scaled by it and every launch costs its
    start; None: the grid's estimates, which include starts. lanes: how many such Runs share the time.
    """
    done = {(run.digest, repeat) for run, repeat in known}
    rounds = max((len(entry.points()) for entry in planned), default=0)
    chosen, left, launches = [], budget_s, set()
    for number in range(rounds):
        for entry in planned:
            own = entry.points()
            if number >= len(own) or (entry.run.digest, own[number].repeat) in done:
                continue
            launch = launch_of(own[number])
            cost = entry.cost_s / lanes(entry.run)
            if pace is not None:
                cost = cost * pace + (START_S if launch not in launches else 0.0)
            if cost <= left:
                left -= cost
                launches.add(launch)
                chosen.append(own[number])
    return chosen


Entry = TypeVar("Entry")


def having(
    planned: Sequence[Entry],
    fields: Mapping[str, object],
    value: Callable[[Any, str], object] = lambda entry, name: getattr(entry.run, name),
) -> list[Entry]:
    """The entries that have these values (`value` gives an entry's) in their fields; a ValueError if none has."""
    chosen = [entry for entry in planned if all(value(entry, name) == wanted for name, wanted in fields.items())]
    if planned and not chosen:
        words = " ".join(f"{name}={wanted}" for name, wanted in fields.items())
        raise ValueError(f"no Run of the grid has {words}: `--dry-run` lists them")
    return chosen
