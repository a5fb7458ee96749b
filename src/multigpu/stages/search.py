"""The best placement of a model's stages on some devices, by what `cost` says of each.

Small graphs are searched completely. Larger ones start from one device and from the placements written by hand and move one group of
stages, or swap two, as long as that helps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from multigpu.stages.cost import Costs, serial_s, step_time_s
from multigpu.stages.graph import StageGraph, places_text
from multigpu.stages.record import Predicted

MOST_COMPLETE = 1 << 15
"""Placements up to which all are tried."""


@dataclass(frozen=True)
class Found:
    """The best placement. tried: how many were priced; complete: whether these were all there are."""

    places: dict[str, int]
    step_time_s: float
    tried: int
    complete: bool


class Search:
    """A search over placements of one graph on `devices` equal devices, for a batch of `rows`.

    starts: placements of the placed stages, written by hand; what is found is never dearer than any of them.
    measured: placements of the placed stages, and seconds that a step took there: their price, whatever the costs say.
    """

    def __init__(
        self,
        graph: StageGraph,
        costs: Costs,
        rows: int,
        devices: int = 2,
        item_bytes: int = 4,
        starts: Iterable[Mapping[str, int]] = (),
        measured: Iterable[tuple[Mapping[str, int], float]] = (),
    ) -> None:
        self.graph, self.costs, self.rows, self.devices = graph, costs, rows, devices
        self.item_bytes = item_bytes
        self.groups = graph.together
        self.starts = [self._of_groups(start) for start in starts]
        self.known: dict[tuple[int, ...], float] = {self._of_groups(places): seconds for places, seconds in measured}

    def run(self) -> Found:
        """The cheapest placement; of equally cheap ones the one on fewest devices, then with the fewest copies."""
        complete = self.devices ** (len(self.groups) - 1) <= MOST_COMPLETE
        if complete:
            for rest in product(range(self.devices), repeat=len(self.groups) - 1):
                self.price((0, *rest))  # devices are equal: the first group may stay on the first
            for start in self.starts:
                self.price(start)
        else:
            for start in [*self.starts, (0,) * len(self.groups)]:
                self._improve(start)
        best = min(self.known, key=self._order)
        return Found(self._named(best), self.known[best], len(self.known), complete)

    def price(self, places: tuple[int, ...]) -> float:
        """Seconds of a step with group i on device places[i]."""
        if places not in self.known:
            named = self.graph.check(self._named(places), self.devices)
            self.known[places] = step_time_s(self.graph, self.costs, named, self.rows, self.item_bytes)
        return self.known[places]

    def _order(self, places: tuple[int, ...]) -> tuple[float, int, int, tuple[int, ...]]:
        named = self.graph.check(self._named(places), self.devices)
        # times that agree to a millionth are equal
        return float(f"{self.known[places]:.6g}"), len(set(places)), len(self.graph.crossings(named, self.rows)), places

    def _improve(self, places: tuple[int, ...]) -> None:
        """Take the best single move or swap until none helps."""
        while True:
            best = min(self._neighbours(places), key=self.price, default=places)
            if self.price(best) >= self.price(places):
                return
            places = best

    def _neighbours(self, places: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        for index, device in product(range(len(places)), range(self.devices)):
            if device != places[index]:
                yield (*places[:index], device, *places[index + 1 :])
        for a, b in combinations(range(len(places)), 2):
            if places[a] != places[b]:
                moved = list(places)
                moved[a], moved[b] = moved[b], moved[a]
                yield tuple(moved)

    def _of_groups(self, start: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(start[group[0]] for group in self.groups)

    def _named(self, places: Sequence[int]) -> dict[str, int]:
        return {name: device for group, device in zip(self.groups, places, strict=True) for name in group}


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
