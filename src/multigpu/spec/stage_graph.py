"""A model as a graph of stages, framework-free: what each reads, what it hands on and which
variables it uses.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

HOST = -1
"""The place of what lives in host memory; a device's place is its index."""

ID_BYTES = 8
"""Of one id that is looked up in a table."""


def direction(start: int, end: int) -> str:
    """The kind of traffic (`placements.traffic.KINDS`) of a copy between two places."""
    if start == HOST:
        return "host_to_device"
    return "device_to_host" if end == HOST else "device_to_device"


Places = Mapping[str, int]
"""Stage -> the device that runs it, forward and backward (HOST: the host's processor)."""


@dataclass(frozen=True)
class Stage:
    """One part of a model that a device runs as a whole, forward and backward.
    inputs: tensors of stages before it that it reads. arrays: what it reads of the batch, fed to
        where it runs.
    gives: tensor -> its elements, as multiples of a batch's extents ("rows", "once" for each
        micro-batch whatever its rows, and rows looked up by table, padding included). What is given
        once is a variable itself, under the name shared_NAME.
    integers: it gives ids (int64), which have no gradient.
    variables: that it uses. They live, with their slots, where it runs, and are updated there.
    work: forward operations, as multiples of extents too.
    tower: which part of a model of several it belongs to, for hand-written placements and drawings.
    host: it has no GPU kernel and stays on the host's processor.
    """

    name: str
    inputs: tuple[str, ...] = ()
    arrays: tuple[str, ...] = ()
    gives: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    integers: bool = False
    variables: tuple[str, ...] = ()
    work: Mapping[str, float] = field(default_factory=dict)
    tower: str = ""
    host: bool = False


def amount(multiples: Mapping[str, float], extents: Mapping[str, int]) -> float:
    """Count the elements of a tensor, or operations of a stage, for a batch of these extents."""
    return sum(count * extents.get(extent, 0) for extent, count in multiples.items())


class Crossing(NamedTuple):
    """A tensor that travels from the device of the stage that gives it to each of `ends` in the
    forward pass; its gradients, if it has any, travel back.
    """

    name: str
    start: int
    ends: tuple[int, ...]
    gradient: bool


@dataclass(frozen=True)
class StageGraph:
    """The stages of one model in an order in which they can run (else a ValueError); the last one
    hands on the loss.
    """

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        names: set[str] = set()
        given: set[str] = set()
        for stage in self.stages:
            missing = [name for name in stage.inputs if name not in given]
            if missing:
                raise ValueError(
                    f"stage {stage.name!r} reads {missing[0]!r}, which does not stand before it"
                )
            if stage.name in names:
                raise ValueError(f"two stages are called {stage.name!r}")
            names.add(stage.name)
            given.update(stage.gives)

    @cached_property
    def by_name(self) -> dict[str, Stage]:
        return {stage.name: stage for stage in self.stages}

    @cached_property
    def placed(self) -> tuple[Stage, ...]:
        """The stages that a placement is asked about, in order."""
        return tuple(stage for stage in self.stages if not stage.host)

    @cached_property
    def readers(self) -> dict[str, tuple[str, ...]]:
        """Tensor -> the stages that read it."""
        return {
            name: tuple(one.name for one in self.stages if name in one.inputs)
            for stage in self.stages
            for name in stage.gives
        }

    @cached_property
    def together(self) -> tuple[tuple[str, ...], ...]:
        """The placed stages in groups that must share a device, since they use one variable (a
        look-up runs where its table is).
        """
        group = {stage.name: index for index, stage in enumerate(self.placed)}
        for index, stage in enumerate(self.placed):
            for other in self.placed[:index]:
                if set(stage.variables) & set(other.variables):
                    old, new = group[stage.name], group[other.name]
                    group = {
                        name: new if number == old else number for name, number in group.items()
                    }
        return tuple(
            tuple(name for name in group if group[name] == number)
            for number in dict.fromkeys(group.values())
        )

    @cached_property
    def variables(self) -> dict[str, str]:
        """Variable -> the first stage that uses it, where it lives."""
        return {name: stage.name for stage in reversed(self.placed) for name in stage.variables}

    def check(self, places: Places, devices: int) -> dict[str, int]:
        """`places`, of all placed stages, with the host's; a ValueError where one is impossible, or
        stages of one variable stand apart.
        """
        for stage in self.placed:
            if not 0 <= places[stage.name] < devices:
                raise ValueError(
                    f"stage {stage.name!r} is placed on device {places[stage.name]}: there are"
                    f" {devices}, from 0"
                )
        for group in self.together:
            if len({places[name] for name in group}) > 1:
                shared = sorted(
                    set.intersection(*(set(self.by_name[name].variables) for name in group))
                )
                why = f"use {shared[0]!r}" if shared else "share variables"
                raise ValueError(f"stages {' and '.join(group)} {why} and must stand on one device")
        return {
            **dict.fromkeys((stage.name for stage in self.stages if stage.host), HOST),
            **places,
        }

    def bytes_of(self, name: str, extents: Mapping[str, int], item_bytes: int = 4) -> int:
        """Those of a tensor of a batch of these extents."""
        stage = next(stage for stage in self.stages if name in stage.gives)
        item = ID_BYTES if stage.integers else item_bytes
        return int(amount(stage.gives[name], extents)) * item

    def crossings(self, places: Places) -> list[Crossing]:
        """Return the tensors that travel between places (of all stages: `check` adds the host's) in
        one step, in order; once to each device that reads it.
        """
        found = []
        for stage in self.stages:
            start = places[stage.name]
            for name in stage.gives:
                ends = dict.fromkeys(places[reader] for reader in self.readers[name])
                if others := tuple(end for end in ends if end != start):
                    found.append(Crossing(name, start, others, not stage.integers))
        return found

    def moved(
        self, places: Places, extents: Mapping[str, int], item_bytes: int = 4
    ) -> dict[str, int]:
        """Bytes that one step moves, by kind (`placements.traffic.KINDS`), gradients back included;
        feeding the batch is not placement.
        """
        kinds: Counter[str] = Counter()
        for one in self.crossings(places):
            size = self.bytes_of(one.name, extents, item_bytes)
            for end in one.ends:
                kinds[direction(one.start, end)] += size
                if one.gradient:
                    kinds[direction(end, one.start)] += size
        return dict(kinds)


@dataclass(frozen=True)
class Staged:
    """How a workload offers itself to placements of its stages. arrays: a batch's, by the names
    that the stages read.
    graph: a model's stages; `strings`: whether its words arrive as strings, which the host looks up
        first.
    """

    graph: Callable[[Any, bool], StageGraph]
    arrays: Callable[[Any, Mapping[str, np.ndarray]], dict[str, np.ndarray]]


def parse_places(graph: StageGraph, text: str) -> dict[str, int]:
    """Places from one digit a placed stage, in the graph's order; anything else is a ValueError."""
    if not text.isdecimal() or len(text) != len(graph.placed):
        raise ValueError(
            f"stage_devices {text!r} must be {len(graph.placed)} digits, the device of each of"
            f" {', '.join(s.name for s in graph.placed)}"
        )
    return {stage.name: int(digit) for stage, digit in zip(graph.placed, text, strict=True)}
