"""Where the stages of a Run's model run. Imports no framework."""

from multigpu.placements import find_placement
from multigpu.placements.stage_split import SplitPlacement, places_in
from multigpu.spec.run import Run
from multigpu.spec.stage_graph import StageGraph
from multigpu.workloads import description_of, workloads


def graph_of(run: Run) -> StageGraph:
    """The stages of the Run's model."""
    staged = workloads()[run.workload].stages
    assert staged is not None
    return staged.graph(description_of(run), run.feed == "strings")


def places_of(run: Run) -> dict[str, int]:
    """Where every stage of the Run runs, with the host's; a ValueError as `places_in`."""
    placement = find_placement(run.placement)
    assert isinstance(placement, SplitPlacement)
    return places_in(graph_of(run), run, placement)
