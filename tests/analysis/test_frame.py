"""The frame: one row a Record, all columns always."""

from functools import partial

import pandas as pd
import pytest

from multigpu.analysis.frame import COLUMNS, MEASURED, export, frame_of, step_times
from tests.factory import make_record
from tests.refusals import refused

RECORDS = [make_record(), make_record("exp2", status="timeout", reason="300 s"), make_record(device_type="cpu", precision="fp32")]
FRAME = frame_of(RECORDS)


def test_columns_by_hand():
    measured = {
        **{"wall_s": 8.0, "warmup_s": 9.0, "total_s": 20.0, "event_time_s": [7.0, 9.0], "units": 6000, "padded_units": 8000},
        # the second rank is the slower one; its timed steps are 1 2 3 4 with median 2.5 and deviations 1.5 0.5 0.5 1.5
        "step_time_s": [[9.0, 1.0, 1.0, 1.0, 1.0], [9.0, 1.0, 2.0, 3.0, 4.0]],
        **{"peak_memory_gib": [1.0, 3.0], "moved_bytes": {"all_reduce": 100, "host_to_device": 20}},
        **{"loss": [5.0, 4.0, 3.0, 2.0, 1.0], "flags": ["a", "b"]},
    }
    record = make_record(units_per_s=1000.0, timed_steps=4, warmup_steps=1, batch_size=10, measurement=measured)
    row = frame_of([record]).iloc[0]
    assert (row["step_time_s"], row["units_per_s"], row["padded_units_per_s"]) == (2.0, 750.0, 1000.0)
    assert row["event_step_time_s"] == 2.0
    assert row["jitter_s"] == pytest.approx(1.4826)
    assert row["peak_memory_gib"] == 3.0
    assert (row["moved_bytes"], row["moved_bytes_all_reduce"], row["moved_bytes_device_to_host"]) == (120, 100, 0)
    assert row["overhead_s"] == 3.0
    assert (row["loss_first"], row["loss_last"], row["flags"]) == (5.0, 1.0, "a, b")
    assert (row["unit"], row["gpu"], row["framework_version"], row["sm_clock_mhz"]) == ("words", "NVIDIA H200", "2.13.0", 1980.0)


def test_a_row_a_record_and_what_was_not_measured_is_missing():
    assert len(FRAME) == 3 and list(FRAME.columns) == list(COLUMNS)
    row = FRAME[FRAME["status"] == "timeout"].iloc[0]
    assert row[list(MEASURED)].isna().all() and row["reason"] == "300 s"
    assert frame_of([]).dtypes.to_dict() == FRAME.dtypes.to_dict()


def test_step_times_are_long_and_know_what_was_timed():
    steps = step_times(RECORDS, [FRAME["key"].iloc[0], "unknown"])
    assert len(steps) == 2 * 40
    assert steps.groupby("rank")["timed"].sum().tolist() == [30, 30]
    assert not steps[steps["step"] < 10]["timed"].any()
    assert step_times(RECORDS, []).dtypes.to_dict() == steps.dtypes.to_dict()


@pytest.mark.parametrize(
    ("suffix", "read"), [("csv", pd.read_csv), ("json", partial(pd.read_json, dtype=False)), ("parquet", pd.read_parquet)]
)
def test_export_reads_back(tmp_path, suffix, read):
    back = read(export(FRAME, tmp_path / f"records.{suffix}"))
    assert list(back.columns) == list(FRAME.columns)
    assert back["key"].tolist() == FRAME["key"].tolist()
    assert back["units"].isna().tolist() == FRAME["units"].isna().tolist()
    if suffix == "parquet":
        pd.testing.assert_frame_equal(back, FRAME)
    for name in ("records.xlsx", "records", "no/such/folder/records.csv"):
        refused("cannot", export, FRAME, tmp_path / name)
