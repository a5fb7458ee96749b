"""Read what both engines of stages need of a Run."""

from typing import Any

from multigpu.spec.run import Run
from multigpu.workloads import description_of, import_part, workloads
from multigpu.workloads.stages import graph_of, places_of


def functions_of(run: Run) -> dict[str, Any]:
    """Stage -> what it computes, of the Run's model."""
    return import_part(run.workload, run.framework).stage_functions(description_of(run))


def stage_arrays(run: Run) -> tuple[Any, dict[str, int]]:
    """Return the maker of the stages' arrays, and array -> the device that reads it."""
    staged, graph, places = workloads()[run.workload].stages, graph_of(run), places_of(run)
    assert staged
    return staged.arrays, {
        array: places[stage.name] for stage in graph.stages for array in stage.arrays
    }
