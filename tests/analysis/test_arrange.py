"""Rows put together: further names, counterparts and parts, each with its bounds; and protocols simulated for a chart."""

from __future__ import annotations

import pandas as pd
import pytest

from multigpu.analysis.arrange import also, beside, compared, records_with, repeated, stacked
from multigpu.analysis.compare import versus
from multigpu.analysis.frame import frame_of
from multigpu.analysis.points import as_it_comes, points, usual, where
from multigpu.analysis.show import text
from multigpu.synchrony.simulate import simulated_pace
from tests.analysis.planted import study
from tests.factory import make_record

POINTS = points(frame_of(study()))


def test_a_column_goes_with_its_bounds_under_another_name_and_to_its_counterpart() -> None:
    two, eight = where(POINTS, workload="nmt", devices=2), where(POINTS, workload="nmt", devices=8)
    named = also(two, pace="rate")
    assert (named["pace_low"] == two["rate_low"]).all() and "spread_low" not in also(two, spread="n")
    both = beside(two, eight[eight["placement"].ne("exp2")], ["placement", "batch_size"], far="rate")
    counterpart = eight.set_index(["placement", "batch_size"])
    for _, row in both.iterrows():
        if row["placement"] == "exp2":
            assert pd.isna(row["far"])
        else:
            assert row["far_high"] == counterpart.loc[(row["placement"], row["batch_size"]), "rate_high"]
    with pytest.raises(pd.errors.MergeError):
        beside(two, pd.concat([eight, eight]), ["placement", "batch_size"], far="rate")


def test_two_values_of_a_field_are_compared_as_versus_does() -> None:
    nmt = where(POINTS, workload="nmt")
    pd.testing.assert_frame_equal(
        compared(nmt, placement=("exp4", "ddp")), versus(where(nmt, placement="exp4"), where(nmt, placement="ddp"), but=["placement"])
    )
    assert (repeated(POINTS, 5)["n"] >= 5).all() and len(repeated(POINTS, 0)) == len(POINTS)


def test_parts_say_where_they_come_from_and_rows_write_their_names() -> None:
    whole = stacked("count", {"two": where(POINTS, devices=2), "eight": where(POINTS, devices=8)})
    assert (whole["count"] == whole["devices"].map({2: "two", 8: "eight"})).all() and whole.index.is_unique
    rows = where(POINTS, workload="nmt", devices=2).head(1)
    assert text(rows, "{model}, {framework}: {devices}").tolist() == ["LSTM translator, PyTorch: two GPUs"]


def test_what_a_page_asks_for_by_itself_is_left_out_otherwise() -> None:
    table = points(frame_of([make_record(), make_record(host_cores=2), make_record(bucket_mib=1)]))
    assert len(usual(table)) == 2 and len(as_it_comes(table)) == 1
    assert usual(table, host_cores=2)["host_cores"].tolist() == [2] and as_it_comes(table, bucket_mib=1)["bucket_mib"].tolist() == [1]


def test_records_are_chosen_by_the_fields_of_their_run() -> None:
    records = [make_record(devices=1), make_record(devices=2), make_record(devices=4, traced_steps=2, traced_from=41)]
    assert records_with(records, devices=[1, 2]) == records[:2] and records_with(records, traced=True) == records[2:]


def test_a_simulated_protocol_waits_for_whom_it_says() -> None:
    sync, alone = simulated_pace("sync", 8, 8, late=8), simulated_pace("async", 8, 1, late=8)
    assert sync["age"] == 0 and 6 < alone["age"] < 8 and sync["speed"] < 0.25 < alone["speed"] < 1.1
