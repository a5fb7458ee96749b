"""Two protocols on one set of Records."""

from __future__ import annotations

import pytest

from multigpu.analysis import protocols
from multigpu.analysis.frame import frame_of, step_times
from multigpu.record import RecordStore
from tests.factory import make_record


def planted(tmp_path, slow_first: float):
    """Five repeats over two launches on 1 and 4 GPUs; each first step of the four lasts `slow_first` times as long as a steady one."""
    records = []
    for devices, rate in ((1, 1e6), (4, 3e6)):
        for repeat, launch in enumerate("aaabb"):
            noise = 1 + 0.001 * repeat
            record = make_record("exp4", devices, rate * noise, repeat, launch, sequence_length=100)
            measured = record.measurement
            assert measured
            steady = measured.wall_s / record.run.timed_steps
            total = record.run.warmup_steps + record.run.timed_steps
            times = [steady * (slow_first if step == 0 and devices == 4 else 1.0) for step in range(total)]
            each = [times for _ in range(devices)]
            records.append(record.model_copy(update={"measurement": measured.model_copy(update={"step_time_s": each})}))
    store = RecordStore(tmp_path)
    for record in records:
        store.write(record)
    frame = frame_of(records)
    return frame, step_times(store, list(frame["key"]))


def test_sums_over_all_steps_from_the_first(tmp_path) -> None:
    frame, steps = planted(tmp_path, 11.0)
    table = protocols.as_published(frame, steps, batches=20)
    four = table[table["devices"] == 4].iloc[0]
    steady = frame[frame["key"] == four["key"]].iloc[0]
    # 20 steps in the time of 30
    assert four["units_per_s"] == pytest.approx(steady["units_per_s"] * 20 / 30)
    one = table[table["devices"] == 1].iloc[0]
    assert one["units_per_s"] == pytest.approx(frame[frame["key"] == one["key"]].iloc[0]["units_per_s"])


def test_a_slow_start_on_more_gpus_costs_speedup(tmp_path) -> None:
    frame, steps = planted(tmp_path, 11.0)
    table = protocols.protocol_frame(frame, steps, batches=20)
    four = table[table["devices"] == 4].iloc[0]
    assert four["corrected_speedup"] == pytest.approx(3.0, rel=1e-3) and four["published_speedup"] == pytest.approx(2.0, rel=1e-3)
    assert "1 of 1 points" in protocols.protocol_finding(table) and "2.00" in protocols.protocol_finding(table)
    assert "as published: speedup" in str(protocols.protocol_table(table))


def test_a_record_of_fewer_steps_goes_on_at_its_steady_pace(tmp_path) -> None:
    """80 steps where the Record has 40, the first of them as long as 11: 80 in the time of 90, not 40 in the time of 50."""
    frame, steps = planted(tmp_path, 11.0)
    had = int(frame["warmup_steps"].iloc[0] + frame["timed_steps"].iloc[0])
    table = protocols.protocol_frame(frame, steps, batches=2 * had)
    four = table[table["devices"] == 4].iloc[0]
    assert four["published_speedup"] == pytest.approx(3.0 * 2 * had / (2 * had + 10), rel=1e-3)


def test_jobs_that_differ_in_their_input_alone_are_not_crossed(tmp_path) -> None:
    """Two lengths of sentences at one batch and placement are two points, each beside itself."""
    records = []
    for length, rate in ((50, 1e6), (100, 4e5)):
        record = make_record("ddp", 1, rate, sequence_length=length)
        assert record.measurement
        steady = record.measurement.wall_s / record.run.timed_steps
        times = [[steady] * (record.run.warmup_steps + record.run.timed_steps)]
        records.append(record.model_copy(update={"measurement": record.measurement.model_copy(update={"step_time_s": times})}))
    store = RecordStore(tmp_path)
    for record in records:
        store.write(record)
    frame = frame_of(records)
    table = protocols.protocol_frame(frame, step_times(store, list(frame["key"])))
    assert len(table) == 2 and table["first_over_rest"].tolist() == pytest.approx([1.0, 1.0])


def test_equal_steps_make_no_difference(tmp_path) -> None:
    frame, steps = planted(tmp_path, 1.0)
    assert "agree within their intervals" in protocols.protocol_finding(protocols.protocol_frame(frame, steps))


def test_without_records_it_says_so(tmp_path) -> None:
    frame = frame_of([make_record(inputs="lengths_000", sequence_length=None)])
    none = protocols.protocol_frame(frame, step_times(tmp_path, []))
    assert protocols.protocol_finding(none) == protocols.NONE and "to time in two ways" in str(protocols.protocol_table(none))
