"""Six parts of a traced step, which add up to it: each moment of a device's timeline belongs to
one.

computing: a compute kernel runs. waiting, merging: none does, and a collective lasts: the first
until its last rank has arrived, the second from then on. Where the device idles otherwise, the host
tells why: input (it waits for a batch, or copies one), launch (it launches kernels one by one),
rest.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from multigpu.records.intervals import Span, intersection, length, without
from multigpu.records.trace import Part
from multigpu.spec.schema import Data


class Timeline(Data):
    """One replica's doings in a traced step; stretches (start, end) in ns, all ranks' on one clock.

    calling: a CPU's own thread calls one operation after another, whatever else lasts meanwhile.
    collectives: name -> its stretches in their order, from this rank's arrival to the end. input:
    the host waited for a batch, or one was copied. host: the host launched, small gaps included.
    """

    window: Span
    computing: list[Span] = Field(default_factory=list)
    calling: list[Span] = Field(default_factory=list)
    collectives: dict[str, list[Span]] = Field(default_factory=dict)
    input: list[Span] = Field(default_factory=list)
    host: list[Span] = Field(default_factory=list)


def six_parts(ranks: Sequence[Timeline]) -> list[dict[Part, float]]:
    """Return the parts of a step as each of its ranks had it, in seconds."""
    arrived = last_arrivals(ranks)
    return [_parts_of(rank, arrived) for rank in ranks]


def last_arrivals(ranks: Sequence[Timeline]) -> dict[str, list[float]]:
    """Return when the last rank came to each collective that all count alike, by name."""
    found = {}
    for name, own in ranks[0].collectives.items():
        every = [rank.collectives.get(name, []) for rank in ranks]
        if len({len(each) for each in every}) == 1:
            starts = zip(*([start for start, _ in each] for each in every), strict=True)
            found[name] = [max(together) for together in starts] if own else []
    return found


def _parts_of(rank: Timeline, arrived: dict[str, list[float]]) -> dict[Part, float]:
    waiting: list[Span] = []
    lasting: list[Span] = []
    for name, spans in rank.collectives.items():
        lasting += spans
        for (start, end), last in zip(spans, arrived.get(name, []), strict=False):
            waiting.append((start, min(end, last)))
    left: list[Span] = [rank.window]
    found: dict[Part, float] = defaultdict(float)
    claims: tuple[tuple[Part, list[Span]], ...] = (
        ("computing", rank.computing),
        ("launch", rank.calling),
        ("waiting", waiting),
        ("merging", lasting),
        ("input", rank.input),
        ("launch", rank.host),
    )
    for part, spans in claims:
        found[part] += length(intersection(left, spans)) * 1e-9
        left = without(left, spans)
    found["rest"] = length(left) * 1e-9
    return dict(found)


def with_parts(parts: Sequence[dict[str, Any]], replicas: list[Any]) -> list[Any]:
    """Return a trace's replicas, each step with its six parts if all ranks have timelines."""
    timelines = [[Timeline(**one) for one in part.get("timelines", [])] for part in parts]
    if not timelines or not all(timelines) or len({len(own) for own in timelines}) > 1:
        return replicas
    told: dict[int, list[dict[Part, float]]] = defaultdict(list)
    for together in zip(*timelines, strict=True):
        for place, found in enumerate(six_parts(together)):
            told[place].append({part: round(value, 8) for part, value in found.items()})
    return [
        replica.model_copy(
            update={
                "steps": [
                    step.model_copy(update={"parts": own})
                    for step, own in zip(replica.steps, told[place], strict=True)
                ]
            }
        )
        for place, replica in enumerate(replicas)
    ]
