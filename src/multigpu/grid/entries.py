"""What an entry of a grid is: a Run, which launches repeat it, and what measuring it may cost."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from multigpu.measure.point import START_S, Point, launch_of
from multigpu.run import Run

LAUNCH_OF_REPEAT = (0, 0, 0, 1, 1, 2, 3, 4)
"""Which launch measures which repeat of a headline point. Eager steps differ more between launches than within one (the host),
so the later repeats get launches of their own; the first five alone are what the tier needs at least."""

FEWEST = (0, 0, 1, 2, 3)
"""Where eight repeats cost too much. Four launches, since where launches differ an interval has a degree of freedom less than launches:
with two it is 12.7 standard errors to each side, with four 3.2; and a start costs seconds."""

ENDS = (1, 4, 8)
"""Device counts whose points are repeated: one, a whole host of eight, and half of it. Others are screening."""


def ends_of(devices: Sequence[int]) -> list[int]:
    """One device and the most, where points are repeated if there is no time for more; the most first."""
    return sorted({1, max(devices, default=1)} & {*devices}, reverse=True)


@dataclass(frozen=True)
class Planned:
    """A Run and the seconds one measurement of it may cost.

    launches: which launch measures each repeat: several of a headline point, one of a screening point.
    first_repeat: the number of the first: beyond those of other grids where a point is measured again beside what is compared with it.
    """

    run: Run
    cost_s: float
    launches: tuple[int, ...] = (0,)
    first_repeat: int = 0

    def points(self) -> list[Point]:
        """The measurements this entry stands for."""
        return [Point(self.run, repeat, launch) for repeat, launch in enumerate(self.launches, self.first_repeat)]

    def repeated(self, times: int) -> Self:
        """The entry with so many repeats: the first of a headline point, or those that a screening point would have as one."""
        launches = self.launches if len(self.launches) > 1 else FEWEST
        more = range(max(launches) + 1, max(launches) + 1 + max(0, times - len(launches)))
        return replace(self, launches=(*launches, *more)[:times], first_repeat=0)


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


KNOWN_AT_LEAST = 5


def pace(planned: Sequence[Planned], spent_s: Mapping[tuple[Run, int], float]) -> float | None:
    """Seconds that the grid's measured points took over what it says of them; None where fewer than five are known.

    Args:
        spent_s: (Run, repeat) -> seconds of every measurement on this machine, its launch's start left out.
    """
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

    Args:
        known: (Run, repeat) of what has been measured before, which costs nothing.
        budget_s: the seconds that may be spent.
        pace: of `pace`: estimates are scaled by it and every launch costs its start; None: the grid's estimates, which include starts.
        lanes: how many such Runs are measured at a time; each then costs its share of the time.
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


def of_run(entry: Any, name: str) -> object:
    """This field of an entry's Run."""
    return getattr(entry.run, name)


def having(planned: Iterable[Entry], fields: Mapping[str, object], value: Callable[[Entry, str], object] = of_run) -> list[Entry]:
    """The entries that have these values in their fields.

    Args:
        value: an entry's value of a field.

    Raises:
        ValueError: none has; the sentence says what was asked for.
    """
    every = list(planned)
    chosen = [entry for entry in every if all(value(entry, name) == wanted for name, wanted in fields.items())]
    if every and not chosen:
        words = " ".join(f"{name}={wanted}" for name, wanted in fields.items())
        raise ValueError(f"no Run of the grid has {words}: `--dry-run` lists them")
    return chosen
