"""Sets of stretches of time: unions, intersections, differences. An interval is (start, end);
numbers of any unit.
"""

from collections.abc import Iterable

Span = tuple[float, float]


def union(intervals: Iterable[Span]) -> list[Span]:
    """The same points as disjoint intervals in order; those that touch become one, and empty ones
    vanish.
    """
    merged: list[Span] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def length(intervals: Iterable[Span]) -> float:
    """How long the union is: what lies in several intervals counts once."""
    return sum(end - start for start, end in union(intervals))


def intersection(first: Iterable[Span], second: Iterable[Span]) -> list[Span]:
    """The points that lie in both unions."""
    a, b = union(first), union(second)
    found: list[Span] = []
    i = j = 0
    while i < len(a) and j < len(b):
        start, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if start < end:
            found.append((start, end))
        i, j = (i + 1, j) if a[i][1] < b[j][1] else (i, j + 1)
    return found


def without(intervals: Iterable[Span], cover: Iterable[Span]) -> list[Span]:
    """Return the points of the first union that do not lie in the second."""
    found: list[Span] = []
    covers = union(cover)
    for start, end in union(intervals):
        for low, high in covers:
            if high <= start or low >= end:
                continue
            if low > start:
                found.append((start, low))
            start = high
        if start < end:
            found.append((start, end))
    return found


def uncovered(intervals: Iterable[Span], cover: Iterable[Span]) -> float:
    """How long `intervals` are where `cover` is not. With communication and compute, what is
    exposed.
    """
    mine = union(intervals)
    return length(mine) - length(intersection(mine, cover))


def coalesced(intervals: Iterable[Span], most: int) -> list[Span]:
    """The union in at most `most` intervals: the smallest gaps are closed first."""
    merged = union(intervals)
    gaps = sorted(range(1, len(merged)), key=lambda i: merged[i][0] - merged[i - 1][1])
    closed = set(gaps[: max(0, len(merged) - most)])
    found: list[Span] = []
    for index, span in enumerate(merged):
        if index in closed:
            found[-1] = (found[-1][0], span[1])
        else:
            found.append(span)
    return found


def hull(intervals: Iterable[Span]) -> Span | None:
    """From the first start to the last end, gaps included; None of nothing."""
    spans = list(intervals)
    return (min(start for start, _ in spans), max(end for _, end in spans)) if spans else None
