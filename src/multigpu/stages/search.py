"""The best placement of a model's stages on some equal devices, by what `cost` says of each: all that there are are tried."""

from collections.abc import Mapping
from typing import NamedTuple

from multigpu.stages.cost import Costs, serial_s, step_time_s
from multigpu.stages.graph import StageGraph, places_text
from multigpu.stages.record import Predicted

MOST = 100_000
"""Placements that are tried: of ten groups of stages there are 512 on two devices, and 43,947 on four."""


class Found(NamedTuple):
    """The best placement, and how many were priced."""

    places: dict[str, int]
    step_time_s: float
    tried: int


def dealt_out(count: int, devices: int) -> list[tuple[int, ...]]:
    """Every way to place so many groups of stages: devices are equal, so each is first used after the one before it.

    Raises:
        ValueError: there are more than `MOST`.
    """
    found: list[tuple[int, ...]] = [(0,)]
    for _ in range(count - 1):
        found = [(*places, device) for places in found for device in range(min(max(places) + 2, devices))]
        if len(found) > MOST:
            raise ValueError(f"{count} groups of stages have more than {MOST} placements on {devices} devices: choose fewer devices")
    return found


def search(graph: StageGraph, costs: Costs, rows: int, devices: int = 2, item_bytes: int = 4) -> Found:
    """The cheapest placement for a batch of `rows`; of equally cheap ones the one on fewest devices, then with the fewest copies.

    Raises:
        ValueError: there are too many to try.
    """
    priced = []
    for places in dealt_out(len(graph.together), devices):
        named = {name: device for group, device in zip(graph.together, places, strict=True) for name in group}
        full = graph.check(named, devices)
        step_s = step_time_s(graph, costs, full, rows, item_bytes)
        # times that agree to a millionth are equal
        order = float(f"{step_s:.6g}"), len(set(places)), len(graph.crossings(full, rows)), places
        priced.append((order, named, step_s))
    _, best, step_s = min(priced, key=lambda one: one[0])
    return Found(best, step_s, len(priced))


def predicted(name: str, graph: StageGraph, costs: Costs, places: Mapping[str, int], rows: int, item_bytes: int = 4) -> Predicted:
    """What the costs say of one placement of the placed stages."""
    full = graph.check(places, max(places.values()) + 1)
    return Predicted(
        name=name,
        stage_devices=places_text(graph, places),
        devices=len(set(places.values())),
        step_time_s=step_time_s(graph, costs, full, rows, item_bytes),
        serial_s=serial_s(graph, costs, full, rows, item_bytes),
        cut_bytes=graph.moved(full, rows, item_bytes).get("device_to_device", 0),
    )
