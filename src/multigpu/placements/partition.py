"""A model that is parallel in itself: which device has which part, and the bytes one step then
moves. Framework-free arithmetic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from math import inf
from typing import TYPE_CHECKING

from multigpu.placements import find_placement
from multigpu.placements.resolve import dims_of, shard_sizes
from multigpu.spec.model import Model, Section, Variable
from multigpu.spec.rules.partition import ACTIVATION_BYTES

if TYPE_CHECKING:
    from multigpu.spec.run import Run

EXACT_BYTES = {"fp64": 8}
"""Of one element of a loss's statistics; 4 in other precisions."""


def bounds(size: int, parts: int, index: int) -> tuple[int, int]:
    """Begin and end of part `index` of `size` elements in `parts` parts that differ by at most one;
    the first take the remainder.
    """
    share, rest = divmod(size, parts)
    begin = index * share + min(index, rest)
    return begin, begin + share + (index < rest)


def stages_of(work: Sequence[float], devices: int) -> list[int]:
    """The device of each section, consecutive ones together (a ValueError: too few): the largest
    sum of work least, then their squares.
    """
    if len(work) < devices:
        raise ValueError(
            f"{len(work)} sections cannot be spread over {devices} devices: choose at most"
            f" {len(work)}"
        )
    sums = [0.0, *accumulate(work)]

    def cut(join: Callable[[float, float], float], limit: float) -> tuple[float, list[int]]:
        """The least `join` of the loads of all stretches, none above `limit`, and where each
        ends.
        """

        @cache
        def best(parts: int, end: int) -> tuple[float, list[int]]:
            if parts == 0:
                return (inf if end else 0.0), []
            found: tuple[float, list[int]] = inf, []
            for begin in range(parts - 1, end):
                load, (rest, ends) = sums[end] - sums[begin], best(parts - 1, begin)
                value = join(load, rest) if load <= limit and rest < inf else inf
                if value < found[0]:
                    found = value, [*ends, end]
            return found

        return best(devices, len(work))

    largest, _ = cut(max, inf)
    _, ends = cut(lambda load, rest: load * load + rest, largest * (1 + 1e-12))
    return [
        device
        for device, (begin, end) in enumerate(pairwise([0, *ends]))
        for _ in range(begin, end)
    ]


@dataclass(frozen=True)
class SectionCrossing:
    """A tensor that one section gives and sections on other devices take: from device `start` to
    each of `ends`, and gradients back.
    """

    name: str
    start: int
    ends: tuple[int, ...]
    size: Mapping[str, int]


def crossings(sections: Sequence[Section], places: Sequence[int]) -> list[SectionCrossing]:
    """Return the tensors that travel between devices when section i runs on device `places[i]`;
    once to each device, however many sections take it there.
    """
    found = []
    for section, start in zip(sections, places, strict=True):
        for name, size in section.gives.items():
            takers = dict.fromkeys(
                p for s, p in zip(sections, places, strict=True) if name in s.takes and p != start
            )
            if takers:
                found.append(SectionCrossing(name, start, tuple(takers), size))
    return found


def amount(multiples: Mapping[str, float], extents: Mapping[str, int]) -> float:
    """Elements of a tensor, or operations of a section, for a batch of these extents (rows, passes
    as `once`, and look-ups by table).
    """
    return sum(count * extents.get(extent, 0) for extent, count in multiples.items())


def section_places(model: Model, devices: int) -> list[int]:
    """The device of each of the model's sections, balanced for one row with one look-up in each
    table (sides of equal lengths).
    """
    return stages_of([sum(section.work.values()) for section in model.sections], devices)


def part_shape(variable: Variable, axis: int | None, parts: int, index: int) -> tuple[int, ...]:
    """The shape of one device's part of a variable; the whole one's without an axis."""
    if axis is None:
        return variable.shape
    begin, end = bounds(variable.shape[axis], parts, index)
    return (*variable.shape[:axis], end - begin, *variable.shape[axis + 1 :])


def partition_bytes(run: Run, model: Model, lookups: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Bytes one step of a Run of a model that is parallel in itself moves, over all devices, by
    kind.
    Stages: every tensor that crosses goes once to each device that takes it, and as large a
        gradient comes back. Parts: every device of a
    copy hands each exchange's elements to its collective. Each device hands the gradients that it
    holds to an all-reduce of all copies.
    """
    # of each copy of the model
    passes = run.micro_batches or 1
    extents = [
        {"rows": rows, "once": passes, **found}
        for rows, found in zip(shard_sizes(run), lookups, strict=True)
    ]
    item = ACTIVATION_BYTES[run.precision]
    moved: Counter[str] = Counter()
    dims = dims_of(run)
    degree = dims.degree
    copies = dims.copies
    held = model.parameters
    if find_placement(run.placement).compute == "sections":
        for crossing in crossings(model.sections, section_places(model, degree)):
            elements = int(sum(amount(crossing.size, own) for own in extents))
            moved["device_to_device"] += 2 * len(crossing.ends) * elements * item
    elif degree > 1:
        assert model.splitting
        for exchange in model.splitting.exchanges:
            size = EXACT_BYTES.get(run.precision, 4) if exchange.exact else item
            # each hands over its own part of what is gathered
            devices = 1 if exchange.kind == "all_gather" else degree
            moved[exchange.kind] += (
                devices * exchange.elements * sum(own["rows"] for own in extents) * size
            )
        held = sum(
            v.elements * (1 if v.name in model.splitting.axes else degree) for v in model.variables
        )
    if copies > 1:
        moved["all_reduce"] += copies * held * (8 if run.precision == "fp64" else 4)
    return {kind: count for kind, count in moved.items() if count}
