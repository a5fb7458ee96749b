"""Whether sharing slows Runs down, and how far launches are apart, on planted Records with a known
slow-down.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from benchmarks.interference import COLUMNS, LANES, interference_table, lanes_table

from multigpu.analysis.boots import PAUSE_S
from multigpu.analysis.frame import frame_of
from multigpu.machine.lane import Lane
from multigpu.records.record import Record
from multigpu_study.analysis.interference import launch_gaps, launch_ratios
from tests.factory import make_machine, make_record

MACHINE = make_machine(4)
RATE = 1e6


def measured(
    rates: Sequence[float], neighbours: int, gpu: int = 0, first: int = 0, **fields: object
) -> list[Record]:
    """Repeats over two launches in a lane of one GPU."""
    lane = Lane(gpus=[gpu], cores=32, neighbours=neighbours)
    return [
        make_record(
            "ddp",
            1,
            rate,
            first + index,
            f"{gpu}-{neighbours}-{index % 2}",
            machine=MACHINE,
            timed_steps=90,
            lane=lane,
            **fields,
        )
        for index, rate in enumerate(rates)
    ]


def noisy(slowdown: float, noise: float, seed: int, count: int = 6) -> list[float]:
    return list(RATE / (1 + slowdown) * np.exp(np.random.default_rng(seed).normal(0, noise, count)))


SLOWER = (
    (0.0, 0.0005, "may share"),
    (0.003, 0.0005, "may share"),
    (0.03, 0.0005, "disturbed"),
    (0.003, 0.01, "not shown"),
)


@pytest.mark.parametrize(("slowdown", "noise", "verdict"), [*SLOWER, (-0.01, 0.0005, "may share")])
def test_a_planted_slow_down_is_judged(slowdown: float, noise: float, verdict: str) -> None:
    records = measured(noisy(0, noise, 1), 0) + measured(noisy(slowdown, noise, 2), 3, first=100)
    (row,) = interference_table(records).to_dict("records")
    assert row["verdict"] == verdict
    assert row["low"] <= row["ratio"] <= row["high"] and row["ratio"] == pytest.approx(
        1 + slowdown, abs=3 * noise
    )
    assert (row["lanes"], row["n_alone"], row["n_shared"], row["devices"]) == (4, 6, 6, 1)


def test_only_the_lane_that_was_also_alone_is_compared_and_nothing_is_an_empty_table() -> None:
    """GPU 2 is slower than GPU 0, which is not its neighbours' fault; an ordinary Record and a
    failed one do not count.
    """
    records = (
        measured([RATE] * 2, 0)
        + measured([RATE] * 2, 3, first=100)
        + measured([0.9 * RATE] * 2, 3, gpu=2, first=300)
    )
    records += [make_record("ddp", 1, 0.5 * RATE, 7, machine=MACHINE, timed_steps=90)]
    lane = Lane(gpus=[0], cores=32, neighbours=3)
    records += [
        make_record("ddp", 1, status="failed", repeat=8, machine=MACHINE, timed_steps=90, lane=lane)
    ]
    (row,) = interference_table(records).to_dict("records")
    assert (row["ratio"], row["n_shared"], row["verdict"]) == (pytest.approx(1), 2, "may share")
    (row,) = lanes_table(records).to_dict("records")
    assert (row["gpus"], row["n"], row["ratio"]) == ("2", 2, pytest.approx(1 / 0.9))
    for records in ([], measured([RATE], 0), measured([RATE], 3)):
        table = interference_table(records)
        assert table.empty and list(table.columns) == COLUMNS
        assert lanes_table(records).empty and list(lanes_table(records).columns) == LANES
    # two launches 1% apart say little of 0.3%, however alike their repeats are; one repeat nothing
    wandering = [RATE, 1.01 * RATE] * 3
    for rates in ([RATE], wandering):
        (row,) = interference_table(
            measured(rates, 0) + measured([rate / 1.003 for rate in rates], 3, first=100)
        ).to_dict("records")
        assert (
            row["ratio"] == pytest.approx(1.003)
            and row["verdict"] == "not shown"
            and math.isnan(row["low"]) == (len(rates) == 1)
        )


NOISE = (1.0, 1.001, 0.999)
START = datetime(2026, 11, 21, 8, tzinfo=UTC)


def at(
    seconds: float,
    rate: float,
    launch: str,
    repeat: int,
    boot: str = "",
    placement: str = "ddp",
    **fields: Any,
) -> Record:
    when = (START + timedelta(seconds=seconds)).isoformat(timespec="seconds")
    return make_record(placement, 2, rate, repeat, launch, measured_at=when, boot=boot, **fields)


def test_a_pause_ends_a_sweep_and_where_records_say_their_boot_that_alone() -> None:
    """Launches b to d follow each other; e comes a second too late, f is of another commit."""
    last = 3 * PAUSE_S + 1
    told = [("a", 0), ("a", 5000), ("b", 5000 + PAUSE_S), ("e", 5001 + 2 * PAUSE_S)]
    records = [at(second, 1e6, launch, i) for i, (launch, second) in enumerate(told)]
    records.append(at(5002 + 2 * PAUSE_S, 1e6, "f", 8, commit="f" * 40))
    frame = frame_of(records)
    assert frame["boot"].tolist() == ["unnamed a"] * 3 + ["unnamed e", "unnamed f"]
    shuffled = frame_of(records[n] for n in (3, 4, 0, 2, 1))
    assert shuffled["boot"].tolist() == [frame["boot"][n] for n in (3, 4, 0, 2, 1)]
    named = [at(0, 1e6, "a", 0, "x"), at(last, 1e6, "a", 1, "x"), at(last, 1e6, "a", 2, "y")]
    assert frame_of(named)["boot"].tolist() == ["x", "x", "y"]


def test_launches_are_compared_within_and_between_occasions() -> None:
    """Two launches of an occasion 1% apart, one of another about 10% slower; a failed Run does not
    count.
    """
    records = [at(0, 1.01e6, "a", 0), at(10, 1.0e6, "b", 1), at(5000, 0.9e6, "c", 2)]
    on_host = [at(0, 1e6, "a", 0, placement="exp2"), at(5000, 0.8e6, "c", 1, placement="exp2")]
    gaps = launch_gaps(
        frame_of([*records, *on_host, make_record("ddp", 2, status="failed", repeat=7)])
    )
    assert gaps.loc[gaps["on_host"], "gap"].tolist() == pytest.approx([0.25])
    found = gaps[~gaps["on_host"]].set_index("same")[["gap", "most"]].astype(float)
    assert found.loc[True].tolist() == pytest.approx([0.01, 0.01])
    assert found.loc[False].tolist() == pytest.approx(
        [(1.01 / 0.9 + 1 / 0.9) / 2 - 1, 1.01 / 0.9 - 1]
    )


def test_the_second_launch_stands_over_the_first_in_order_of_time() -> None:
    rates = [
        *((1e6 * noise, "first") for noise in NOISE),
        *((1.1e6 * noise, "second") for noise in NOISE),
        (2e6, "third"),
    ]
    records = [at(10 * repeat, rate, launch, repeat) for repeat, (rate, launch) in enumerate(rates)]
    (row,) = launch_ratios(frame_of(reversed(records))).to_dict("records")
    assert row["ratio"] == pytest.approx(1.1, rel=1e-3) and (row["n"], row["base_n"]) == (3, 3)
    assert 1.09 < row["ratio_low"] < row["ratio_high"] < 1.11 and not row["holds_one"]
    once = frame_of([at(0, 1e6, "a", 0), at(1, 1e6, "a", 1), at(2, 1e6, "b", 2)])
    assert launch_ratios(once).empty and launch_ratios(frame_of([])).empty
    assert launch_gaps(frame_of([])).empty
