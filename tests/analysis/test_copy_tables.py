"""Copies by kind beside what kernels of the communication library move: planted traces, and the committed ones against their counts."""

from __future__ import annotations

import pytest

from multigpu.analysis import placement_page
from multigpu.analysis.copy_tables import copy_points, copy_table
from multigpu.analysis.traces import traced
from multigpu.measure.trace import COPIES, CopyTotals
from multigpu.paths import RUNS
from multigpu.record import Record, RecordStore
from tests.analysis.traced import traced_record


def planted(**fields: object) -> Record:
    """Three steps of two replicas, each with 6 copies of 2 ms and 600 bytes to the device and 3 of 1 ms and 30 bytes back; 1,300 bytes
    moved a step.
    """
    record = traced_record(2, placement="exp1", **fields)
    assert record.measurement and record.measurement.trace
    copies = [
        CopyTotals(kind="host_to_device", calls=6, bytes=600, total_s=0.012, min_s=0.002, max_s=0.002),
        CopyTotals(kind="device_to_host", calls=3, bytes=30, total_s=0.003, min_s=0.001, max_s=0.001),
    ]
    trace = record.measurement.trace
    replicas = [replica.model_copy(update={"copies": copies}) for replica in trace.replicas]
    moved = {"host_to_device": 400, "device_to_host": 20, "device_to_device": 880}
    own = record.measurement.model_copy(update={"trace": trace.model_copy(update={"replicas": replicas}), "moved_bytes": moved})
    return record.model_copy(update={"measurement": own})


def test_copies_are_added_up_over_devices_and_divided_by_steps() -> None:
    row = copy_points([planted()]).iloc[0]
    assert (row["host_to_device_calls"], row["device_to_host_calls"], row["device_to_device_calls"]) == (4, 2, 0)
    assert (row["host_to_device_bytes"], row["device_to_host_bytes"]) == (400, 20)
    assert row["host_to_device_s"] == pytest.approx(0.008) and row["device_to_host_s"] == pytest.approx(0.002)
    assert row["joined_bytes"] == 1300 - 420 and (row["kernels"], row["launches"]) == (1281, 1281)
    html = copy_table([planted()]).html
    assert "1,281 / 1,281" in html and "4 × 100 B, 8.0 ms" in html and "2 × 10.0 B, 2.0 ms" in html and "880 B" in html
    assert "No Record holds a trace." in copy_table([]).html


def test_one_process_comes_after_a_process_a_device() -> None:
    table = copy_points([planted(processes="one"), planted(), traced_record(2)])
    assert list(zip(table["placement"], table["processes"], strict=True)) == [
        ("ddp", "per_device"),
        ("exp1", "per_device"),
        ("exp1", "one"),
    ]


def test_committed_traces_copy_what_their_records_counted() -> None:
    """A traced step's copies to and from the host are the bytes counted in the first step; between devices copies or kernels move them."""
    records = [record for record, _ in traced(placement_page.records_of(RecordStore(RUNS), ["4x-nvidia-h200"]))]
    table = copy_points(records).set_index("key")
    assert len(table) > 100 and set(table["processes"]) == {"one", "per_device"}
    for record in records:
        assert record.measurement
        moved, row = record.measurement.moved_bytes, table.loc[record.key]
        if moved is None:
            continue
        to_host = [round(row[f"{kind}_bytes"]) for kind in COPIES[:2]]
        assert to_host == [moved.get(kind, 0) for kind in COPIES[:2]], record.key
        assert round(row["device_to_device_bytes"]) in (0, moved.get("device_to_device", 0)), record.key
