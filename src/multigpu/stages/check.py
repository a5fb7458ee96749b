"""What a Run asks of a model's stages, of feeding and of a trace's window, and what of it cannot be
had. Imports no framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multigpu.placements import find_placement
from multigpu.placements.stage_split import RULES, SplitPlacement
from multigpu.stages.graph import parse_places
from multigpu.workloads import workloads

if TYPE_CHECKING:
    from multigpu.placements.row import Placement
    from multigpu.run import Run
    from multigpu.stages.graph import StageGraph

PRECISIONS = ("fp64", "fp32", "tf32")


def check_stages(run: Run, placement: Placement) -> None:
    """Refuse what cannot be had."""
    if run.feed == "strings" and not (
        isinstance(placement, SplitPlacement) and run.framework == "tensorflow"
    ):
        raise ValueError(
            "feed 'strings' looks words up in TensorFlow's table of strings: choose framework"
            " 'tensorflow' and placement single, tower_per_gpu, alternating or searched"
        )
    if run.feed is not None and "captured" in run.execution:
        raise ValueError(
            f"feed {run.feed!r} brings new arrays in every step, and a captured step reads the ones"
            " it was captured with"
        )
    if run.traced_from is not None:
        if not run.traced_steps:
            raise ValueError(
                f"traced_from {run.traced_from} begins a window of traced steps: choose"
                " traced_steps, 1 to 20"
            )
        # one step warms the profiler up
        if run.traced_from < (first := run.warmup_steps + run.timed_steps + 1):
            what = (
                f"traced_from {run.traced_from} lies among steps that are timed or warm a"
                " profiler up"
            )
            raise ValueError(f"{what}: choose at least {first}")
    if isinstance(placement, SplitPlacement):
        _check_split(run, placement)
    elif run.stage_devices is not None:
        raise ValueError(
            f"stage_devices {run.stage_devices!r} has no meaning for placement {run.placement!r}:"
            " choose 'searched'"
        )


def _check_split(run: Run, placement: SplitPlacement) -> None:
    if workloads()[run.workload].stages is None:
        offer = ", ".join(name for name, workload in workloads().items() if workload.stages)
        raise ValueError(
            f"placement {run.placement!r} places a model's stages, and workload {run.workload!r}"
            f" has none: choose {offer}"
        )
    if run.scaling != "strong":
        raise ValueError(
            f"placement {run.placement!r} gives one batch to one model on all devices: choose"
            " scaling 'strong'"
        )
    if run.precision not in PRECISIONS:
        raise ValueError(
            f"precision {run.precision!r} is not kept from stage to stage: choose"
            f" {', '.join(PRECISIONS)} for placement {run.placement!r}"
        )
    if run.devices > placement.at_most:
        raise ValueError(
            f"placement {run.placement!r} uses at most {placement.at_most} devices, not"
            f" {run.devices}"
        )
    if (placement.split == "digits") != (run.stage_devices is not None):
        verb = "needs" if placement.split == "digits" else "takes no"
        raise ValueError(
            f"placement {run.placement!r} {verb} stage_devices, which is {run.stage_devices!r}"
        )
    if (used := max(places_of(run).values()) + 1) != run.devices:
        raise ValueError(
            f"placement {run.placement!r} puts stages on {used} device{'s'[: used > 1]}, not"
            f" {run.devices}: choose devices {used}"
        )


def graph_of(run: Run) -> StageGraph:
    """The stages of the Run's model."""
    staged = workloads()[run.workload].stages
    assert staged is not None
    return staged.graph(run.description, run.feed == "strings")


def places_of(run: Run) -> dict[str, int]:
    """Where every stage of the Run runs, the host's included; a ValueError where its
    `stage_devices` cannot be carried out.
    """
    placement, graph = find_placement(run.placement), graph_of(run)
    assert isinstance(placement, SplitPlacement)
    if placement.split == "digits":
        return graph.check(parse_places(graph, run.stage_devices or ""), run.devices)
    return graph.check(RULES[placement.split](graph), max(run.devices, placement.at_most))


def predicted_moves(run: Run) -> dict[str, int]:
    """Bytes that one step of a Run of stages moves, by kind."""
    item_bytes = 8 if run.precision == "fp64" else 4
    return graph_of(run).moved(places_of(run), run.batch_size, item_bytes)
