"""The study's own table: each cell of one and two GPUs is measured, has a reason, or is planned."""

import pandas as pd
import pytest

from multigpu import paths
from multigpu.analysis.matrix import NOT_MEASURED, TableJob, matrix
from multigpu.analysis.read import frames
from multigpu.grids import find_grid

JOBS = {
    "nmt000": TableJob("nmt", "nmt000", 128, "tf32", 100),
    "resnet50_v1.5": TableJob("cnn", "resnet50_v1.5", 64, "tf32", layout="channels_last"),
}
HOSTS = {1: "1x-nvidia-h200", 2: "2x-nvidia-h200"}
GRIDS = ("table", "table_one_gpu", "table_pytorch", "table_strategies")
LAUNCHES = 5


@pytest.fixture(scope="module")
def planned() -> set[tuple[str, str, str, int]]:
    """Framework, model, placement and devices of what the table's grids measure often enough."""
    entries = [entry for name in GRIDS for entry in find_grid(name, [1, 2])]
    return {
        (entry.run.framework, entry.run.model, entry.run.placement, entry.run.devices)
        for entry in entries
        if len({point.launch for point in entry.points()}) >= LAUNCHES
    }


@pytest.mark.parametrize("model", JOBS)
def test_a_cell_without_five_launches_is_one_that_a_grid_measures(
    model: str, planned: set[tuple[str, str, str, int]]
) -> None:
    cells = matrix(frames(paths.RUNS)[1], JOBS[model], HOSTS)
    few = cells["rate"].notna() & cells["launches"].lt(LAUNCHES)
    open_cells: pd.DataFrame = cells[few | cells["reason"].eq(NOT_MEASURED)]
    unplanned = [
        (row.framework, row.placement, row.devices)
        for row in open_cells.itertuples()
        if (row.framework, model, row.placement, row.devices) not in planned
    ]
    assert not unplanned, "no grid of the table measures these"
