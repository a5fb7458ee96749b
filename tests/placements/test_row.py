"""What a placement's row says of itself: every row that there is, those of one model split over devices too."""

from __future__ import annotations

import pytest

from multigpu.analysis.causes import host_phases
from multigpu.placements import placements
from multigpu.placements.row import Placement
from multigpu.placements.stage_split import SPLIT
from multigpu.placements.traffic import HOST, assign
from multigpu.workloads import find_model

EVERY: list[Placement] = [*placements().values(), *SPLIT.values()]
WITH_HOST = {"central_storage", "exp1", "exp2", "exp3", "make_parallel_cpu", "parameter_server_async", "staged_cpu"}


def test_which_placements_use_the_host() -> None:
    assert {row.name for row in EVERY if row.uses_host} == WITH_HOST


@pytest.mark.parametrize("row", EVERY, ids=lambda row: row.name)
def test_no_part_of_a_row_is_on_the_host_unseen(row: Placement) -> None:
    """By every field there is, so that a new one which may say "host" is not forgotten; by where variables go; by what the host does."""
    assert row.uses_host is ("host" in row.model_dump().values()) is bool(host_phases(row))
    if row.compute == "replica":  # parts of one model have no places of this kind
        assigned = assign(row, find_model("nmt", "nmt_tiny").variables, 2)
        assert row.uses_host is any(HOST in (each.home, each.lookup, each.update) for each in assigned)


@pytest.mark.parametrize("part", ["variables", "embeddings", "lookup", "merge", "slots", "update"])
def test_one_part_on_the_host_is_enough(part: str) -> None:
    row = placements()["ddp"]
    assert not row.uses_host and row.model_copy(update={part: "host"}).uses_host
