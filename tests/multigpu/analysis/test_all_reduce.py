"""All-reduces alone: intervals, formulas and transfers, from planted Records with times worked out
by hand.
"""

import math
from pathlib import Path

import pandas as pd
import pytest

from multigpu.analysis.collectives import COLUMNS, collectives_frame, points
from multigpu.collectives import find_algorithm
from multigpu.records.collective import CollectiveRecord
from tests.multigpu.collectives.planted import make_record, plant, study

N = 2**30


def timed(
    method: str, size: int, samples: list[float], devices: int = 8, repeat: int = 0
) -> CollectiveRecord:
    """A Record with these samples."""
    record = make_record(method, size, devices, repeat=repeat)
    assert record.measurement is not None
    return record.model_copy(
        update={"measurement": record.measurement.model_copy(update={"time_s": samples})}
    )


def test_a_row_a_record(tmp_path: Path) -> None:
    frame = collectives_frame(study())
    assert list(frame.columns) == list(COLUMNS) and len(frame) == 11 * 15
    read, planted = (
        one.sort_values("key", ignore_index=True)
        for one in (collectives_frame(plant(tmp_path)), frame)
    )
    pd.testing.assert_frame_equal(read, planted)
    row = frame[(frame["method"] == "ring") & (frame["bytes"] == 2**30)].iloc[0]
    # planted: 14 x 2 us + 2 x 7/8 GiB at 400 GB/s
    assert row["time_s"] == pytest.approx(28e-6 + 1.75 * 2**30 / 400e9)
    assert row["bus_bytes_per_s"] == pytest.approx(1.75 * 2**30 / row["time_s"])
    assert (row["busiest_link_bytes"], row["total_bytes"], row["latency_terms"]) == (
        1.75 * 2**30,
        14 * 2**30,
        14,
    )
    assert row["kind"] == "algorithm" and set(frame[frame["kind"] == "library"]["method"]) == {
        "nccl",
        "two_shot",
    }
    assert collectives_frame([]).empty


def test_a_point_of_one_record_and_of_several() -> None:
    one = points(
        collectives_frame([timed("ring", N, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 100.0])])
    )
    assert one[["time_s", "time_s_low", "time_s_high", "n", "launches"]].iloc[0].tolist() == [
        5.5,
        2.0,
        9.0,
        1,
        1,
    ]
    several = collectives_frame(
        [
            make_record(time_s=seconds, repeat=repeat)
            for repeat, seconds in enumerate((1.0, 2.0, 4.0))
        ]
    )
    row = points(several).iloc[0]
    # logs -ln 2, 0, ln 2 about ln 2: t(0.975, 2) ln 2 / sqrt 3
    assert (row["n"], row["launches"], row["time_s"]) == (3, 3, pytest.approx(2.0))
    assert row["time_s_high"] == pytest.approx(
        2 * math.exp(4.30265 * math.log(2) / math.sqrt(3)), rel=1e-4
    )
    # 2(P-1)/P of 1 MiB over 2 s, and its bounds the other way round
    assert row["bus_bytes_per_s"] == pytest.approx(1.75 * 2**20 / 2)
    assert row["bus_bytes_per_s_low"] * row["time_s_high"] == pytest.approx(
        row["bus_bytes_per_s_high"] * row["time_s_low"]
    )
    assert (
        points(collectives_frame([make_record(status="failed")])).empty
        and points(collectives_frame([])).empty
    )


@pytest.mark.parametrize(
    ("method", "sent"),
    [
        ("ring", {2: 1, 4: 1.5, 8: 1.75}),
        ("torus", {2: 1, 4: 1.5, 8: 1.75}),
        # 6: 2 hand over N, 4 halve and double (1.5 N), N goes back
        ("halving_doubling", {2: 1, 4: 1.5, 8: 1.75, 6: 3.5}),
        ("central_server", {2: 2, 4: 6, 8: 14}),  # N(P-1) in, then out
        ("tree", {2: 2, 4: 4, 8: 6}),  # N at each of log2 P levels, up and down
        # 2: a ring of two; 4: N, a ring of two leaders, N; 8: 2N, the same, 2N
        ("hierarchical", {2: 1, 4: 3, 8: 5}),
        ("everyone", {2: 1, 4: 3, 8: 7}),
        ("everyone_bf16", {2: 0.5, 4: 1.5, 8: 3.5}),
    ],
)
def test_bytes_that_follow_each_other(method: str, sent: dict[int, float]) -> None:
    assert {
        devices: find_algorithm(method).serial_bytes(4 * 840, devices) / (4 * 840)
        for devices in sent
    } == pytest.approx(sent)
