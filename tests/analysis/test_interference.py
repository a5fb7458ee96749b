"""Whether sharing slows Runs down, on planted Records with a known slow-down."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from multigpu.analysis.interference import COLUMNS, LANES, interference_table, lanes_table, verdict_of
from multigpu.measure.lane import Lane
from multigpu.record import Record
from tests.factory import make_machine, make_record

MACHINE = make_machine(4)
RATE = 1e6


def measured(rates: Sequence[float], neighbours: int, gpu: int = 0, first: int = 0, **fields: object) -> list[Record]:
    """Repeats over two launches in a lane of one GPU."""
    lane = Lane(gpus=[gpu], cores=32, neighbours=neighbours)
    return [
        make_record("ddp", 1, rate, first + index, f"{gpu}-{neighbours}-{index % 2}", machine=MACHINE, timed_steps=90, lane=lane, **fields)
        for index, rate in enumerate(rates)
    ]


def noisy(slowdown: float, noise: float, seed: int, count: int = 6) -> list[float]:
    return list(RATE / (1 + slowdown) * np.exp(np.random.default_rng(seed).normal(0, noise, count)))


@pytest.mark.parametrize(
    ("slowdown", "noise", "verdict"),
    [
        (0.0, 0.0005, "may share"),
        (0.003, 0.0005, "may share"),
        (0.03, 0.0005, "disturbed"),
        (0.003, 0.01, "not shown"),
        (-0.01, 0.0005, "may share"),
    ],
)
def test_a_planted_slow_down_is_judged(slowdown: float, noise: float, verdict: str) -> None:
    records = measured(noisy(0, noise, 1), 0) + measured(noisy(slowdown, noise, 2), 3, first=100)
    (row,) = interference_table(records).to_dict("records")
    assert row["verdict"] == verdict
    assert row["low"] <= row["ratio"] <= row["high"] and row["ratio"] == pytest.approx(1 + slowdown, abs=3 * noise)
    assert (row["lanes"], row["n_alone"], row["n_shared"], row["devices"]) == (4, 6, 6, 1)


def test_only_the_lane_that_was_also_alone_is_compared() -> None:
    """GPU 2 is slower than GPU 0, which is not its neighbours' fault; an ordinary Record and a failed one do not count."""
    records = measured([RATE] * 2, 0) + measured([RATE] * 2, 3, first=100) + measured([0.9 * RATE] * 2, 3, gpu=2, first=300)
    records += [make_record("ddp", 1, 0.5 * RATE, 7, machine=MACHINE, timed_steps=90)]
    lane = Lane(gpus=[0], cores=32, neighbours=3)
    records += [make_record("ddp", 1, status="failed", repeat=8, machine=MACHINE, timed_steps=90, lane=lane)]
    (row,) = interference_table(records).to_dict("records")
    assert (row["ratio"], row["n_shared"], row["verdict"]) == (pytest.approx(1), 2, "may share")
    (row,) = lanes_table(records).to_dict("records")
    assert (row["gpus"], row["n"], row["ratio"]) == ("2", 2, pytest.approx(1 / 0.9))


def test_nothing_to_compare_is_an_empty_table() -> None:
    for records in ([], measured([RATE], 0), measured([RATE], 3)):
        table = interference_table(records)
        assert table.empty and list(table.columns) == COLUMNS
        assert lanes_table(records).empty and list(lanes_table(records).columns) == LANES
    (row,) = interference_table(measured([RATE], 0) + measured([RATE], 3, first=100)).to_dict("records")
    assert math.isnan(row["low"]) and row["verdict"] == "not shown", "one repeat has no interval"
    wandering = [RATE, 1.01 * RATE] * 3  # two launches 1% apart say little of 0.3%, however alike their repeats are
    (row,) = interference_table(measured(wandering, 0) + measured([rate / 1.003 for rate in wandering], 3, first=100)).to_dict("records")
    assert row["ratio"] == pytest.approx(1.003) and row["verdict"] == "not shown"
    assert [str(verdict_of(*ends)) for ends in ((1.0, 1.005), (1.005, 1.2), (1.006, 1.2))] == ["may share", "not shown", "disturbed"]
