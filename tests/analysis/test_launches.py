"""Occasions: which Records are of one stretch of measuring, and how far apart launches of one point are on two of them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from multigpu.analysis.frame import frame_of
from multigpu.analysis.launches import PAUSE_S, launch_gaps, launch_ratios, occasions
from multigpu.record import Record
from tests.factory import make_machine, make_record

START = datetime(2026, 11, 21, 8, tzinfo=UTC)


def at(seconds: float, rate: float, launch: str, repeat: int, boot: str = "", placement: str = "ddp", **fields: Any) -> Record:
    when = (START + timedelta(seconds=seconds)).isoformat(timespec="seconds")
    return make_record(placement, 2, rate, repeat, launch, measured_at=when, boot=boot, **fields)


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
    on_host = [at(0, 1e6, "a", 0, placement="exp2"), at(5000, 0.8e6, "b", 1, placement="exp2")]
    gaps = launch_gaps(frame_of([*records, *on_host, make_record("ddp", 2, status="failed", repeat=7)]))
    assert gaps.loc[gaps["on_host"], "gap"].tolist() == pytest.approx([0.25])
    gaps = gaps[~gaps["on_host"]]
    same, other = gaps[gaps["same"].astype(bool)].iloc[0], gaps[~gaps["same"].astype(bool)].iloc[0]
    assert same["gap"] == pytest.approx(0.01) and same["most"] == pytest.approx(0.01)
    assert other["gap"] == pytest.approx((1.01 / 0.9 + 1 / 0.9) / 2 - 1) and other["most"] == pytest.approx(1.01 / 0.9 - 1)


def test_the_second_launch_stands_over_the_first_in_order_of_time() -> None:
    rates = {"first": (1.0e6, 1.001e6, 0.999e6), "second": (1.1e6, 1.101e6, 1.099e6), "third": (2e6,)}
    records = [
        at(100 * number + 10 * repeat, rate, launch, 10 * number + repeat)
        for number, (launch, own) in enumerate(rates.items())
        for repeat, rate in enumerate(own)
    ]
    (row,) = launch_ratios(frame_of(reversed(records))).to_dict("records")
    assert row["ratio"] == pytest.approx(1.1, rel=1e-3) and (row["n"], row["base_n"]) == (3, 3)
    assert 1.09 < row["ratio_low"] < row["ratio_high"] < 1.11 and not row["holds_one"]
    once = frame_of([at(0, 1e6, "a", 0), at(1, 1e6, "a", 1), at(2, 1e6, "b", 2)])
    assert launch_ratios(once).empty and launch_ratios(frame_of([])).empty
    assert launch_gaps(frame_of([])).empty
