"""Plan points of a grid, of any kind of experiment: what they may cost, and what a budget
allows of them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Self, TypeVar

from pydantic import Field, model_validator

from multigpu.runner.point import START_S, Point, launch_of
from multigpu.spec.run import Run
from multigpu.spec.schema import Data, Spec

Built = TypeVar("Built")
Entry = TypeVar("Entry", bound="Planned[Any]")
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


class Override(Data):
    """Other settings for the points that have these fields (a list: any of its values): seconds
    more, or other launches.
    """

    where: dict[str, Any]
    more_s: float = 0.0
    launches: tuple[int, ...] | None = None


class EntrySettings(Data):
    """The settings of an entry beside the fields of its points.

    question, reason: what the points are to answer, and why these; for readers.
    cost_s: what one measurement may cost, and what every device, variable of the model, and hundred
        million of its parameters add to it; cost: what else does, by the name of an estimate of its
        kind.
    when: names of conditions of its kind that points must meet.
    whatever_devices: points stay in a grid that is measured on other numbers of devices.
    repeats: how often each point is measured, over launches as headline points are; or launches:
        which launch measures each repeat.
    first_repeat: the number of the first (`Planned`).
    only, without: combinations that are kept, and left out: those that have all fields of one of
        these.
    trace: so many further steps of a twin of the point are traced (true: three). compare: whether a
        batch sets committed Records beside it.
    """

    question: str = ""
    reason: str = ""
    cost_s: float = Field(default=10.0, ge=0)
    cost_per_device_s: float = Field(default=0.0, ge=0)
    cost_per_variable_s: float = Field(default=0.0, ge=0)
    cost_per_100m_parameters_s: float = Field(default=0.0, ge=0)
    cost: str = ""
    when: tuple[str, ...] = ()
    whatever_devices: bool = False
    repeats: int = Field(default=1, ge=1, le=100, strict=True)
    launches: tuple[int, ...] = ()
    first_repeat: int = Field(default=0, ge=0, strict=True)
    only: tuple[dict[str, Any], ...] = ()
    without: tuple[dict[str, Any], ...] = ()
    cases: tuple[Override, ...] = ()
    trace: int = Field(default=0, ge=0, le=20, strict=True)
    compare: bool = True

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, values: Any) -> Any:
        """`trace: true` is three steps, and one condition needs no list."""
        if isinstance(values.get("trace"), bool):
            values = {**values, "trace": 3 if values["trace"] else 0}
        return (
            {**values, "when": [values["when"]]} if isinstance(values.get("when"), str) else values
        )


@dataclass(frozen=True)
class Planned(Generic[Built]):
    """A point of a grid: what is measured, of any kind of experiment, the seconds that one
    measurement of it may cost, and which launch measures each repeat.
    first_repeat: the number of the first: beyond those of other grids where a point is measured
        again beside what is compared with it. settings: of its entry in a file. where: that entry,
        for messages.
    """

    run: Built
    cost_s: float
    launches: tuple[int, ...] = (0,)
    first_repeat: int = 0
    settings: EntrySettings = field(default=EntrySettings(), compare=False)
    where: str = field(default="", compare=False)

    def trial(self, repeat: int, launch: int) -> Any:
        """The Trial that is one measurement of it."""
        return Point(self.run, repeat, launch)  # type: ignore[arg-type]

    def points(self) -> list[Any]:
        """The measurements this entry stands for."""
        return [
            self.trial(repeat, launch)
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


def each_once(planned: Iterable[Entry]) -> list[Entry]:
    """The entries, a Run that several declare where it first stands, and repeated if any of them
    repeats it.
    """
    found: dict[tuple[Any, int], Entry] = {}
    for entry in planned:
        at = (entry.run, entry.first_repeat)
        if (known := found.get(at)) is None or len(known.launches) < len(entry.launches):
            found[at] = entry
    return list(found.values())


def points(planned: Sequence[Planned]) -> list[Any]:
    """All measurements that these entries stand for."""
    return [point for entry in planned for point in entry.points()]


def cost_s(planned: Sequence[Planned]) -> float:
    """Return the seconds that measuring these entries may cost."""
    return sum(entry.cost_s * len(entry.launches) for entry in planned)


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
    if len(known) >= KNOWN_AT_LEAST:
        return sum(took for took, _ in known) / sum(said for _, said in known)
    return None


def affordable(
    planned: Sequence[Planned],
    known: Iterable[tuple[Spec, int]],
    budget_s: float,
    pace: float | None = None,
    lanes: Callable[[Run], int] = lambda run: 1,
) -> list[Any]:
    """The measurements that a budget allows: first repeats in the grid's order, then second ones,
    and so on.
    known: (what was asked for, repeat) of what was measured before, which costs nothing. pace:
        estimates are scaled by it and every launch costs its start; None: the grid's estimates,
        which include starts. lanes: how many such Runs share the time.
    """
    done = {(run.digest, repeat) for run, repeat in known}
    every = [
        (number, point, entry.cost_s)
        for entry in planned
        for number, point in enumerate(entry.points())
    ]
    chosen, left, launches = [], budget_s, set()
    for _, point, cost in sorted(every, key=lambda one: one[0]):
        if (point.spec.digest, point.repeat) in done:
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
