"""The race of a comparison, without a clock: given the windows measured so far, which ways are
measured in the next launch, and what may be said of the leader.

In the first round one way of each family has a short window; in the second those nearest to the
leader have further launches, until it has as many as a verdict takes; in the third all other ways
have a window beside the leader; in the fourth the leader and its rival, until they are told apart.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from multigpu.analysis.statistics import chance_above

LAUNCHES = 3
"""Of each side, before a difference counts as a verdict: a launch's repeats are alike."""

OWN = 0.1  # of a window: by so little is what the ways of a launch share held to be nothing

LATER = 4
"""So many times as many ways as the first launch does one of the third round try for the first
time.
"""

MOST_DISTURBED = 3  # launches of a way of which every window was disturbed, before it is left so

CHANCE = 0.01
"""That the leader is called faster than another way and is not: at each look, shared out over the
ways that are left. One of two equal ways is so called faster in 4% of races.
"""

UNKNOWN, LEAST, FREEDOM = 0.1, 0.01, 4.0
"""By how much (in logarithms of rates) launches differ as long as there is one of each way; by how
much at least, whatever few launches say; and the weight, in launches, of what all ways together say
of that beside one way's own.
"""


class RaceWindow(NamedTuple):
    """Timed steps: their way, launch, samples/s, and whether something else worked beside them."""

    way: str
    launch: str
    rate: float
    disturbed: bool = False


class RaceStanding(NamedTuple):
    """A race so far. near: ways that are not told apart from the leader; behind: those that are;
    each with the fastest first. launches: of each way, those with an undisturbed window. upstarts:
    those near that look faster than the leader, over too few launches to lead.
    """

    leader: str
    near: list[str]
    behind: list[str]
    launches: dict[str, int]
    upstarts: Sequence[str] = ()

    @property
    def rival(self) -> str | None:
        """The way that the leader is most likely to be mistaken for; None: it is alone."""
        return next(iter([*self.near, *self.behind]), None)

    @property
    def is_decided(self) -> bool:
        """Whether the leader is the fastest: nothing is near, over enough launches of both."""
        sides = [self.leader, *([self.rival] if self.rival else [])]
        return not self.near and all(self.launches[side] >= LAUNCHES for side in sides)


def by_launch(windows: Iterable[RaceWindow]) -> dict[str, dict[str, float]]:
    """Return the mean logarithm of each launch's undisturbed rates, by way and in their order."""
    found: dict[str, dict[str, list[float]]] = {}
    for window in windows:
        if not window.disturbed:
            launches = found.setdefault(window.way, {})
            launches.setdefault(window.launch, []).append(float(np.log(window.rate)))
    return {
        way: {launch: fmean(own) for launch, own in each.items()} for way, each in found.items()
    }


def gaps_of(leader: Mapping[str, float], other: Mapping[str, float]) -> list[float]:
    """Return by how much the leader is ahead in each launch that measured both, and in pairs of
    those that measured one of them, first with first.
    """
    both = [launch for launch in leader if launch in other]
    alone = [[own[launch] for launch in own if launch not in both] for own in (leader, other)]
    pairs = [*((leader[launch], other[launch]) for launch in both), *zip(*alone, strict=False)]
    return [ahead - behind for ahead, behind in pairs]


def levels(logs: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return each way's rate, in logarithms, without what its launches have in common: one that
    joins while the machine is fast is no faster by that.
    """
    launches = sorted({launch for own in logs.values() for launch in own})
    seen = [
        (place, launch, log)
        for place, own in enumerate(logs.values())
        for launch, log in own.items()
    ]
    rows = np.zeros((len(seen) + len(launches), len(logs) + len(launches)))
    values = np.zeros(len(rows))
    for row, (place, launch, log) in enumerate(seen):
        rows[row, [place, len(logs) + launches.index(launch)]] = 1.0
        values[row] = log
    # what one way alone tells is its own, and not its launch's
    rows[len(seen) :, len(logs) :] = np.eye(len(launches)) * OWN**0.5
    found = np.linalg.lstsq(rows, values, rcond=None)[0]
    return dict(zip(logs, map(float, found), strict=False))


def standing(
    windows: Iterable[RaceWindow], among: Iterable[str] | None = None
) -> RaceStanding | None:
    """Return who leads and which ways are not told apart from it; None: no window was undisturbed.
    A way of few launches leads one that has as many as a verdict takes only where it is surely
    faster: of many that are met once, one looks fast by chance.

    among: the ways that may lead (None: all).
    """
    every = by_launch(windows)
    logs = {way: every[way] for way in (every if among is None else among) if way in every}
    if not logs:
        return None
    level = levels(logs)
    ordered = sorted(logs, key=lambda way: -level[way])
    leader = next((way for way in ordered if len(logs[way]) >= LAUNCHES), ordered[0])
    gaps = gaps_from(leader, ordered, logs)
    usual = usual_variance(gaps.values())
    sooner = ordered[: ordered.index(leader)]
    if surely := [way for way in sooner if chance_of([-gap for gap in gaps[way]], usual) < CHANCE]:
        leader = surely[0]
        gaps = gaps_from(leader, ordered, logs)
        usual = usual_variance(gaps.values())
    limit = CHANCE / max(1, len(gaps))
    behind = [way for way in gaps if chance_of(gaps[way], usual) < limit]
    near = [way for way in gaps if way not in behind]
    launches = {way: len(own) for way, own in logs.items()}
    upstarts = [way for way in near if level[way] > level[leader] and launches[way] < LAUNCHES]
    return RaceStanding(leader, near, behind, launches, upstarts)


def gaps_from(
    leader: str, ordered: Sequence[str], logs: Mapping[str, Mapping[str, float]]
) -> dict[str, list[float]]:
    """Return by how much one way is ahead of each other, in this order."""
    return {way: gaps_of(logs[leader], logs[way]) for way in ordered if way != leader}


def usual_variance(gaps: Iterable[Sequence[float]]) -> float:
    """Return the variance of a gap from launch to launch, of all ways together."""
    several = [np.asarray(own) for own in gaps if len(own) > 1]
    if not several:
        return UNKNOWN**2
    squares = sum(float(((own - own.mean()) ** 2).sum()) for own in several)
    return max(LEAST**2, squares / sum(len(own) - 1 for own in several))


def chance_of(gaps: Sequence[float], usual: float) -> float:
    """Return how likely gaps as large are of a leader that is no faster: Student's t of their mean,
    whose variance is their own and the usual one, weighted by launches (a moderated t).
    """
    count, mean = len(gaps), fmean(gaps)
    freedom = FREEDOM + count - 1
    squares = sum((gap - mean) ** 2 for gap in gaps)
    variance = (FREEDOM * usual + squares) / freedom
    return float(chance_above(mean, variance / count, freedom))


def next_launch(
    ways: Sequence[str],
    windows: Sequence[RaceWindow],
    may_lead: Sequence[str],
    base: str,
    most: int,
    first: Collection[str] | None = None,
    at_once: int | None = None,
) -> list[str]:
    """Return the ways that the next launch measures, a launch's own first; none: the race is over.

    Args:
        ways: all that can run, in the order in which they are tried; may_lead: those of them among
            which a leader is looked for.
        base: the way that rates are compared with, which has as many launches as a verdict needs.
        most: launches of a way, at most.
        first: the ways of the first round (None: all). at_once: so many of them does the first
            launch measure beside the base, and the second measures those again, so that intervals
            come early (None: the first launch measures all).
    """
    met = {way: {w.launch for w in windows if w.way == way} for way in ways}
    early = ways if first is None else [way for way in ways if way in first]
    for chosen in _rounds(ways, early, windows, may_lead, base, at_once):
        if found := [way for way in ways if way in chosen and len(met[way]) < most]:
            return sorted(found, key=lambda way: not met[way])
    return []


def _rounds(
    ways: Sequence[str],
    early: Sequence[str],
    windows: Sequence[RaceWindow],
    may_lead: Sequence[str],
    base: str,
    at_once: int | None,
) -> Iterator[set[str]]:
    """Give what each round that is not over wants measured, the first round first."""
    met = {way: {w.launch for w in windows if w.way == way} for way in ways}
    found, quiet = standing(windows, may_lead), by_launch(windows)
    again = {
        way for way in ways if met[way] and way not in quiet and len(met[way]) < MOST_DISTURBED
    }
    more = again & {*early} | ({base} if len(quiet.get(base, {})) < LAUNCHES else set())
    near = nearest(found) if found else set()
    if unseen := [way for way in early if not met[way] and way != base]:
        ahead = [found.leader] if found and found.launches[found.leader] < LAUNCHES else []
        begun = len({window.launch for window in windows})
        if at_once is not None and begun < 2:
            rival = [found.rival] if found and found.rival else []
            yield {*unseen[:at_once], *more} if not begun else {*ahead, *rival, *more}
        yield {*unseen, *more, *ahead}
    if found and found.launches[found.leader] < LAUNCHES:
        yield near | more
    if found and found.upstarts:
        yield near | more | {found.leader}
    if unseen := [way for way in ways if not met[way]]:
        some = None if at_once is None else LATER * at_once
        yield {*unseen[:some], *more, *([found.leader] if found else [])}
    more |= again
    if found and not found.is_decided:
        yield near | more | {found.leader, *([found.rival] if found.rival else [])}
    yield more


def nearest(found: RaceStanding) -> set[str]:
    """Return of the leader and those not told apart from it, if they have fewer launches than a
    verdict takes, the faster half: two at least, the leader with its rival.
    """
    few = [way for way in (found.leader, *found.near) if found.launches[way] < LAUNCHES]
    half = {*few[: max(2, (len(few) + 1) // 2)]}
    rival = [found.rival] if found.rival else []
    if found.launches[found.leader] < LAUNCHES:
        half |= {found.leader, *(way for way in rival if found.launches[way] < LAUNCHES)}
    return half
