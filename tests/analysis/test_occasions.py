"""Occasions: which Records are of one stretch of measuring, and how far apart launches of one point are on two of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from multigpu.analysis.frame import frame_of
from multigpu.analysis.occasions import PAUSE_S, launch_gaps, occasion_finding, occasion_gaps, occasion_table, occasions
from multigpu.record import Record
from tests.factory import make_machine, make_record

START = datetime(2026, 11, 21, 8, tzinfo=UTC)


def at(seconds: float, rate: float, launch: str, repeat: int, boot: str = "", placement: str = "ddp", **fields: Any) -> Record:
    when = (START + timedelta(seconds=seconds)).isoformat(timespec="seconds")
    return make_record(placement, 2, rate, repeat, launch, **fields).model_copy(update={"measured_at": when, "boot": boot})


def test_a_pause_ends_an_occasion_where_records_do_not_say_their_boot() -> None:
    seconds = (0, 100, 100 + PAUSE_S, 101 + 2 * PAUSE_S, 5000)
    frame = frame_of(at(second, 1e6, "a", repeat) for repeat, second in enumerate(seconds))
    assert list(occasions(frame)) == [0, 0, 0, 1, 2]
    shuffled = frame.iloc[[3, 0, 4, 2, 1]]
    assert occasions(shuffled).sort_index().to_dict() == occasions(frame).to_dict(), "by time, not by order"


def test_a_boot_is_an_occasion_whatever_the_pauses() -> None:
    records = [at(0, 1e6, "a", 0, "x"), at(9000, 1e6, "a", 1, "x"), at(9001, 1e6, "a", 2, "y"), at(0, 1e6, "a", 3)]
    records.append(at(0, 1e6, "a", 4, "x", machine=make_machine(4)))
    found = list(occasions(frame_of(records)))
    assert found[0] == found[1] and len(set(found)) == 4, "other boots, silent Records and other machines are by themselves"


def test_launches_are_compared_within_and_between_occasions() -> None:
    """Two launches of an occasion 1% apart, one of another about 10% slower; a failed Run does not count."""
    records = [at(0, 1.01e6, "a", 0), at(10, 1.0e6, "b", 1), at(5000, 0.9e6, "c", 2)]
    gaps = launch_gaps(frame_of([*records, make_record("ddp", 2, status="failed", repeat=7)]))
    same, other = gaps[gaps["same"].astype(bool)].iloc[0], gaps[~gaps["same"].astype(bool)].iloc[0]
    assert same["gap"] == pytest.approx(0.01) and same["most"] == pytest.approx(0.01)
    assert other["gap"] == pytest.approx((1.01 / 0.9 + 1 / 0.9) / 2 - 1) and other["most"] == pytest.approx(1.01 / 0.9 - 1)
    (row,) = occasion_gaps(frame_of(records)).to_dict("records")
    assert (row["points"], row["on_host"], row["execution"]) == (1, False, "eager")
    finding = occasion_finding(frame_of(records))
    assert finding.startswith("The Records are of 2 occasions. Two launches of one point on different ones differ by 12%")
    assert "two launches of one occasion by 1.0%; at most by 12%." in finding
    assert "11.67" in str(occasion_table(frame_of(records)))


def test_kinds_of_runs_are_told_apart() -> None:
    records = [at(0, 1e6, "a", 0), at(5000, 1e6, "b", 1)]
    records += [at(0, 1e6, "a", 0, placement="exp2"), at(5000, 0.8e6, "b", 1, placement="exp2")]
    table = occasion_gaps(frame_of(records)).set_index("on_host")
    assert table.loc[False, "different"] == pytest.approx(0.0) and table.loc[True, "different"] == pytest.approx(0.25)


def test_nothing_measured_twice_says_so() -> None:
    once = frame_of([at(0, 1e6, "a", 0)])
    assert occasion_finding(once) == "The Records are of 1 occasion; no point was measured on two of them."
    assert "No point was measured on two occasions." in str(occasion_table(once)) and occasion_gaps(once).empty
    assert occasion_finding(frame_of([])).startswith("The Records are of 0 occasions")
