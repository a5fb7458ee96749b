"""What a grid in YAML says is what the function says that it replaces."""

from __future__ import annotations

import pytest

from multigpu.grid import GRIDS, Planned
from multigpu.grid.from_yaml import FOLDER, grid


def shown(planned: list[Planned]) -> list[object]:
    return [(e.run, e.tier, [(p.repeat, p.launch) for p in e.points()], e.cost_s, e.first_repeat) for e in planned]


@pytest.mark.parametrize("counts", [[1], [2], [1, 2], [1, 2, 4], [1, 2, 3, 4, 8]])
@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.yaml")))
def test_the_yaml_says_what_the_function_says(name: str, counts: list[int]) -> None:
    assert shown(grid(name, counts)) == shown(GRIDS[name](counts))
