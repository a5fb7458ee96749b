"""Predict the time of a step under any placement of a model's stages, from the measured cost of
each stage and of copies, and which costs least.

The model. Devices work side by side. A device runs what it is asked in order; so does the link from
one device to another, beside what both compute. A host's thread starts work in order and goes on at
once, so nothing begins before it has been started: with slow starting (small stages, one thread) a
second device cannot help, which is what document 003's own times look like. A stage's backward pass
waits for the gradient of what it handed on; updates come after the whole backward pass.

hand_over_s: where a gradient crosses, the next stage's backward pass is another thread's work
    (PyTorch's engine has one a device), which has to be woken: time of the host beyond starting the
    copy.
call_s: before anything is started: calling a TensorFlow graph.
threads: "one" starts everything from one thread (TensorFlow op by op; any CPU, whose host does the
    work itself). "forward": so are forward passes and updates, while backward passes are started
    from a thread for each device (PyTorch). "per_device": each device's work is started from a
    thread of its own (a TensorFlow graph's executors).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal

from multigpu.placements.traffic import HOST
from multigpu.spec.stage_graph import Places, StageGraph
from multigpu_study.stages.costs import Costs, HostModel, StageCost, StagePass

HOST_MODELS: tuple[HostModel, ...] = ("one", "forward", "per_device")
NOTHING = StagePass(device_s=0.0, host_s=0.0)


def slower_s(part: StagePass) -> float:
    """Return what the slower of device and host needs for a pass."""
    return max(part.device_s, part.host_s)


def gradient_cost(costs: Costs, size: int) -> StagePass:
    """Of copying a gradient of `size` bytes, handing it on included."""
    copy = copy_cost(costs, size)
    return StagePass(device_s=copy.device_s, host_s=copy.host_s + costs.hand_over_s)


def copy_cost(costs: Costs, size: int) -> StagePass:
    """Of copying `size` bytes: interpolated between those measured, by bandwidth beyond."""
    known = sorted(costs.copies, key=lambda one: one.bytes)
    host_s = sum(one.host_s for one in known) / len(known)
    if size <= known[0].bytes or len(known) == 1:
        first = known[0].device_s
        return StagePass(
            device_s=first if size <= known[0].bytes else first * size / known[0].bytes,
            host_s=host_s,
        )
    low, high = next(
        ((a, b) for a, b in pairwise(known) if size <= b.bytes), (known[-2], known[-1])
    )
    slope = max(0.0, (high.device_s - low.device_s) / (high.bytes - low.bytes))
    return StagePass(
        device_s=max(low.device_s, low.device_s + slope * (size - low.bytes)), host_s=host_s
    )


@dataclass
class _Clock:
    """Who is busy until when. begin_s: when the host's threads begin."""

    threads: HostModel
    begin_s: float
    host: dict[object, float] = field(default_factory=dict)
    busy: dict[object, float] = field(default_factory=dict)

    def _thread(self, what: str, place: int) -> object:
        own = self.threads == "per_device" or (
            self.threads == "forward" and what in ("backward", "gradient")
        )
        return ("device", place) if own else "one"

    def free_s(self, what: str, place: int) -> float:
        """From when on the thread that starts such a task may start another."""
        return self.host.get(self._thread(what, place), self.begin_s)

    def run(
        self,
        what: str,
        place: int,
        cost: StagePass,
        ready: float,
        asked: float,
        end: int | None = None,
    ) -> tuple[float, float]:
        """Start a task (a copy to `end`, if there is one) once the host may ask for it; when it was
        asked for and when it is done.
        """
        begin = max(self.free_s(what, place), asked)
        issued = self.host[self._thread(what, place)] = begin + cost.host_s
        where: object = place if end is None else (place, end)
        start = max(self.busy.get(where, 0.0), ready, begin)
        done = self.busy[where] = max(start + cost.device_s, issued)
        return issued, done


@dataclass(frozen=True)
class Pricing:
    """Prices placements of a graph's stages for a batch of `rows`. places: of all stages, the
    host's too.
    """

    graph: StageGraph
    costs: Costs
    rows: int
    item_bytes: int = 4

    @cached_property
    def _prices(self) -> dict[str, StageCost]:
        return {one.name: one for one in self.costs.stages}

    def _price(self, name: str, part: Literal["forward", "backward", "update"]) -> StagePass:
        return getattr(self._prices[name], part) if name in self._prices else NOTHING

    def _bytes(self, name: str) -> int:
        return self.graph.bytes_of(name, {"rows": self.rows}, self.item_bytes)

    def step_time_s(self, places: Places) -> float:
        clock = _Clock(self.costs.threads, self.costs.call_s)
        done: dict[tuple[str, int], float] = {}  # of an output at a place
        for stage in self.graph.stages:
            place = places[stage.name]
            for name in stage.inputs:
                if (name, place) not in done:
                    start, copy = places[name], copy_cost(self.costs, self._bytes(name))
                    _, done[name, place] = clock.run(
                        "forward", start, copy, done[name, start], 0.0, place
                    )
            ready = max((done[name, place] for name in stage.inputs), default=0.0)
            _, done[stage.name, place] = clock.run(
                "forward", place, self._price(stage.name, "forward"), ready, 0.0
            )
        issued = self._backward(places, clock, done[stage.name, place])
        for stage in self.graph.placed:
            update = self._price(stage.name, "update")
            if slower_s(update):
                clock.run("update", places[stage.name], update, 0.0, issued)
        return max(clock.busy.values())

    def _backward(self, places: Places, clock: _Clock, lost_s: float) -> float:
        """Run every backward pass; when the last was asked for. lost_s: when the last stage's
        output is there. Each thread takes the first pass whose gradients have all been handed on;
        of equal ones the latest stage, as PyTorch's engine does.
        """
        graph, last = self.graph, self.graph.stages[-1].name
        order = {stage.name: index for index, stage in enumerate(graph.stages)}
        reached = {last}
        for stage in reversed(graph.stages):
            reached |= {*stage.inputs} if stage.name in reached else set()
        trained = {name for name in reached if not graph.by_name[name].integers}
        readers = {
            name: sum(reader in trained for reader in graph.readers.get(name, ()))
            for name in trained
        }
        issued = asked_s = clock.host.get("one", clock.begin_s)
        arrived: dict[str, list[tuple[float, float]]] = {last: [(asked_s, lost_s)]}
        waiting = {last}
        while waiting:
            begins = {
                name: max(
                    clock.free_s("backward", places[name]), *(asked for asked, _ in arrived[name])
                )
                for name in waiting
            }
            chosen = min(waiting, key=lambda name: (begins[name], -order[name]))
            waiting.remove(chosen)
            place, there_s = places[chosen], max(there for _, there in arrived[chosen])
            said, end = clock.run(
                "backward", place, self._price(chosen, "backward"), there_s, begins[chosen]
            )
            issued = max(issued, said)
            for name in (each for each in graph.by_name[chosen].inputs if each in trained):
                asked_s, there_s = said, end
                if places[name] != place:
                    copy = gradient_cost(self.costs, self._bytes(name))
                    asked_s, there_s = clock.run("gradient", place, copy, end, said, places[name])
                arrived.setdefault(name, []).append((asked_s, there_s))
                if len(arrived[name]) == readers[name]:
                    waiting.add(name)
        return issued

    def serial_s(self, places: Places) -> float:
        """Seconds of one step if nothing ran side by side: each stage and each copy takes what the
        slower of device and host needs. The model of Stone, IEEE Transactions on Software
        Engineering SE-3, 1977, whose best placement is a minimum cut.
        """
        stages = sum(
            slower_s(part)
            for one in self.costs.stages
            for part in (one.forward, one.backward, one.update)
        )
        copies = 0.0
        for crossing in self.graph.crossings(places):
            size = self._bytes(crossing.name)
            for end in crossing.ends:
                if HOST not in (crossing.start, end):
                    back_s = crossing.gradient * slower_s(gradient_cost(self.costs, size))
                    copies += slower_s(copy_cost(self.costs, size)) + back_s
        return self.costs.call_s + stages + copies

    def host_model_errors(self, measured: Sequence[tuple[Places, float]]) -> dict[HostModel, float]:
        """How far each model of the host misses measured steps: the root mean square of
        log(predicted / measured), 0.1 being about 10%.
        """
        found: dict[HostModel, float] = {}
        for model in HOST_MODELS if measured else ():
            priced = replace(self, costs=self.costs.model_copy(update={"threads": model}))
            misses = [
                math.log(priced.step_time_s(places) / seconds) for places, seconds in measured
            ]
            found[model] = math.hypot(*misses) / math.sqrt(len(misses))
        return found

    def search(self, devices: int = 2) -> tuple[dict[str, int], float, int]:
        """The cheapest placement, seconds of its step, and how many were priced; of equal ones on
        fewest devices with fewest copies.
        """
        priced = []
        for places in dealt_out(len(self.graph.together), devices):
            named = {
                name: device
                for group, device in zip(self.graph.together, places, strict=True)
                for name in group
            }
            full = self.graph.check(named, devices)
            step_s = self.step_time_s(full)
            # times that agree to a millionth are equal
            order = (
                float(f"{step_s:.6g}"),
                len(set(places)),
                sum(len(crossing.ends) for crossing in self.graph.crossings(full)),
                places,
            )
            priced.append((order, named, step_s))
        _, best, step_s = min(priced, key=lambda one: one[0])
        return best, step_s, len(priced)


MOST = 100_000
"""Placements that are tried: of ten groups of stages there are 512 on two devices, and 43,947 on
four.
"""


def dealt_out(count: int, devices: int) -> list[tuple[int, ...]]:
    """Every way to place so many groups of stages on equal devices, each first used after the one
    before it; a ValueError beyond `MOST`.
    """
    found: list[tuple[int, ...]] = [(0,)]
    for _ in range(count - 1):
        found = [
            (*places, device) for places in found for device in range(min(max(places) + 2, devices))
        ]
        if len(found) > MOST:
            raise ValueError(
                f"{count} groups of stages have more than {MOST} placements on {devices} devices:"
                " choose fewer devices"
            )
    return found
