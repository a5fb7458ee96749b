"""No committed Record is faster than its bound: else the bound, or the Record, is wrong."""

from __future__ import annotations

from multigpu.analysis.frame import frame_of
from multigpu.analysis.limits import bounds
from multigpu.paths import RUNS
from multigpu.record import RecordStore


def test_no_record_is_faster_than_its_bound() -> None:
    limits = bounds(frame_of(RecordStore(RUNS)))
    known = limits[limits["share_of_bound"].notna()]
    assert len(known) > 500
    fastest = known.sort_values("share_of_bound").iloc[-1]
    assert fastest["share_of_bound"] < 1, fastest["key"]
