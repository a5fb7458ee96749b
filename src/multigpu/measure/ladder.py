"""Ladders: Runs that differ in their batch alone. Above a batch that did not fit none is tried, since it cannot fit either."""

from __future__ import annotations

from collections.abc import Sequence

from multigpu.measure.plan import Item, Plan, find_record

PASSED_OVER = "passed_over"
"""What a launch says of a Run that it did not start because a smaller batch did not fit; no Record is written."""


def ladder_of(item: Item) -> str:
    """A name that Runs have in common when they differ in their batch alone; each repeat climbs by itself."""
    return f"{item.run.model_copy(update={'batch_size': 0}).digest}|{item.repeat}"


def with_smaller(items: Sequence[Item]) -> list[Item]:
    """The items, each knowing the smaller batches on its ladder."""
    batches: dict[str, set[int]] = {}
    for item in items:
        batches.setdefault(ladder_of(item), set()).add(item.run.batch_size)
    return [
        item.model_copy(update={"smaller": tuple(sorted(b for b in batches[ladder_of(item)] if b < item.run.batch_size))}) for item in items
    ]


def ascending(items: Sequence[Item]) -> list[Item]:
    """The items in their order, but where several stand on one ladder the smaller batch takes the earlier place."""
    rungs: dict[str, list[Item]] = {}
    for item in items:
        rungs.setdefault(ladder_of(item), []).append(item)
    for own in rungs.values():
        own.sort(key=lambda item: item.run.batch_size, reverse=True)
    return [rungs[ladder_of(item)].pop() for item in items]


def full_at(plan: Plan, item: Item) -> int | None:
    """The smallest batch below the item's own that a Record says did not fit; None: none is known."""
    for batch in item.smaller:
        record = find_record(plan, item.model_copy(update={"run": item.run.model_copy(update={"batch_size": batch}), "attempt": 0}))
        if record is not None and record.status == "out_of_memory":
            return batch
    return None
