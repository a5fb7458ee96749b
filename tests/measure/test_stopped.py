"""A rank or a launcher that somebody stops is ended within seconds; what was measured stays, and its Run is measured again."""

from __future__ import annotations

from pathlib import Path

import pytest

from multigpu.measure import process
from multigpu.measure.point import Point
from multigpu.record import RecordStore
from tests.measure.launched import strike, tiny

RANK, LAUNCHER = range(2)


@pytest.mark.timeout(300)
def test_a_stopped_rank_is_started_again_and_a_stopped_launcher_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STOPPED_S", 1.0)
    stop_rank = {"seed": RANK, "stage": "timed", "rank": 1, "fault": "stop", "once": str(tmp_path / "rank")}
    stop_launcher = {"seed": LAUNCHER, "stage": "timed", "rank": 0, "fault": "stop its launcher", "once": str(tmp_path / "launcher")}
    first = strike(tmp_path, [Point(tiny(RANK))], [stop_rank])
    first.check_whole()
    assert first[RANK].status == "ok"
    (note,) = first.summary.notes
    assert "was stopped from outside" in note
    with pytest.raises(RuntimeError, match=r"was stopped from outside .* and with it its launch; 0 Runs were measured and are kept"):
        strike(tmp_path, [Point(tiny(LAUNCHER))], [stop_launcher])
    assert [record.run.seed for record in RecordStore(tmp_path / "runs")] == [RANK]
    again = strike(tmp_path, [Point(tiny(seed)) for seed in (RANK, LAUNCHER)], [stop_launcher])
    assert again.summary.statuses == {"ok": 1} and again.summary.reused == 1 and not again.left
