"""The picture of the table of placements."""

import pandas as pd

from multigpu.analysis.picture import svg_text
from multigpu_study.analysis.matrix_plot import heat
from tests.multigpu.analysis.test_matrix import cells, table

__all__ = ["cells", "table"]  # fixtures


def test_the_picture_says_on_hover_why_a_cell_is_empty(cells: pd.DataFrame) -> None:
    rows = cells.reset_index().assign(panel="one")
    rows = rows[rows["framework"].eq("torch")]
    drawn = svg_text(heat(rows, "title", "caption", "panel", 2.0), "matrix")
    assert "<title>out_of_memory: planted: 3 GiB too few</title>" in drawn
    assert "1.55 (3)" in drawn
