"""Placements inside one model: document 003's three, and any other by one digit a stage."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from multigpu.placements.row import Engine, Home, Look, Placement
from multigpu.spec.run import Run
from multigpu.spec.stage_graph import StageGraph, parse_places
from multigpu.spec.tables import table

_WHY_NOT = (
    "a CUDA graph of one process holds one device's memory, and a compiled program runs on one"
    " device: on one GPU take placement 'ddp'"
)


class SplitPlacement(Placement):
    """A row that splits one model instead of its batch. split: by which rule ("digits": the Run's
    `stage_devices`). at_most: devices.
    """

    variables: Home = "stage"
    compute: Literal["replica", "stage"] = "stage"
    engines: tuple[Engine, ...] = (
        Engine(framework="torch", processes="one", executions=("eager",)),
        Engine(framework="tensorflow", processes="one", executions=("graph", "eager")),
    )
    refusals: dict[str, str] = dict.fromkeys(
        ("captured", "compiled", "compiled_captured", "xla"), _WHY_NOT
    )
    split: Literal["one", "towers", "alternating", "digits"]
    at_most: int


def by_tower(graph: StageGraph) -> dict[str, int]:
    """One tower a device, in order; what joins or is shared by towers, on the first."""
    places = {name: number for number, tower in enumerate(_towers(graph)) for name in tower}
    return _as_colocated(graph, places)


def alternating(graph: StageGraph) -> dict[str, int]:
    """Change devices from stage to stage, each other tower the other way round."""
    return _as_colocated(
        graph,
        {
            name: (one + at) % 2
            for one, tower in enumerate(_towers(graph))
            for at, name in enumerate(tower)
        },
    )


def _towers(graph: StageGraph) -> list[list[str]]:
    names = dict.fromkeys(stage.tower for stage in graph.placed if stage.tower)
    return [[stage.name for stage in graph.placed if stage.tower == tower] for tower in names]


def _as_colocated(graph: StageGraph, places: dict[str, int]) -> dict[str, int]:
    """`places`, others on the first device, stages that share a variable together."""
    return {name: places.get(group[0], 0) for group in graph.together for name in group}


RULES: dict[str, Callable[[StageGraph], dict[str, int]]] = {
    "one": lambda graph: {stage.name: 0 for stage in graph.placed},
    "towers": by_tower,
    "alternating": alternating,
}


def places_in(graph: StageGraph, run: Run, placement: SplitPlacement) -> dict[str, int]:
    """Where every stage of the graph runs; a ValueError for impossible `stage_devices`."""
    if placement.split == "digits":
        return graph.check(parse_places(graph, run.stage_devices or ""), run.devices)
    return graph.check(RULES[placement.split](graph), max(run.devices, placement.at_most))


def _placement(row: dict[str, str]) -> SplitPlacement:
    """A row of `stage_split.csv`, whose last columns are a `Look`."""
    look = Look(int(row["order"]), row["label"], row["colour"], row["marker"])
    fields = {name: text for name, text in row.items() if name not in Look._fields}
    return SplitPlacement.model_validate(fields | {"look": look}, strict=False)


SPLIT = MappingProxyType(
    {row["name"]: _placement(row) for row in table(Path(__file__).with_name("stage_split.csv"))}
)
"""By name. A model's graph, and no row alone, says how to draw or to predict these."""

HAND_WRITTEN: Sequence[str] = ("single", "tower_per_gpu", "alternating")
