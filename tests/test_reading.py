"""Records as they are read: a traced step is as long as untraced ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from multigpu.analysis.causes import PARTS, causes_frame
from multigpu.analysis.inside_traces import trace_table
from multigpu.analysis.traces import own_step_s, paired_step_s, phases_frame, timed_step_s
from multigpu.reading import as_read, measured_by, of_todays_programs, stored_records, study_records, todays_records
from multigpu.record import Record, RecordStore
from tests.analysis.traced import traced_record
from tests.factory import make_machine, make_record, plant


def test_a_traced_step_is_as_long_as_the_median_of_untraced_ones() -> None:
    traced = traced_record(units_per_s=1e6)  # twice as slow as where no profiler was
    plain = [make_record(units_per_s=rate, repeat=n) for n, rate in enumerate((1.9e6, 2e6, 4e6))]
    elsewhere = make_record(units_per_s=9e6, machine=make_machine(0), device_type="cpu")
    failed = make_record(status="failed", repeat=7)
    *others, read = as_read([*plain, elsewhere, failed, traced])
    assert [one.key for one in (*others, read)] == [one.key for one in (*plain, elsewhere, failed, traced)]
    assert timed_step_s(read) == pytest.approx(own_step_s(plain[1])) == pytest.approx(own_step_s(traced) / 2)
    assert all(timed_step_s(one) == own_step_s(one) for one in plain)
    row = causes_frame([read]).iloc[0]
    assert sum(row[f"{name}_s"] for name in PARTS) == pytest.approx(timed_step_s(read))
    assert phases_frame([read])["timed_step_s"].eq(timed_step_s(read)).all()
    assert "untraced_step_s" not in read.model_dump_json()


def test_repeats_of_a_traced_run_vary_as_the_untraced_ones() -> None:
    """A claim's interval is of the repeats: one median for all of them would leave it none."""
    plain = [make_record(units_per_s=rate, repeat=n) for n, rate in enumerate((1e6, 2e6, 4e6))]
    traced = [traced_record(units_per_s=5e5, repeat=n) for n in (0, 2, 3)]
    read = as_read([*plain, *traced])[3:]
    assert [paired_step_s(one) for one in read] == pytest.approx([own_step_s(plain[n]) for n in (0, 2, 1)])
    assert list(trace_table(read)["timed_step_s"]) == [paired_step_s(one) for one in read]
    assert len({timed_step_s(one) for one in read}) == 1


def test_what_one_machine_measured_is_read_under_its_own_name(tmp_path: Path) -> None:
    """Its Records count under the larger machine's name elsewhere; traced and untraced ones still find each other."""
    small = make_machine(2).model_copy(update={"name": "small"})
    captured = {"devices": 2, "execution": "captured"}
    own = [make_record(units_per_s=2e6, repeat=n, machine=small, launch_id=str(n), **captured) for n in range(2)]
    own.append(traced_record(units_per_s=1e6, machine=small, **captured))
    host = [make_record("exp4", units_per_s=4e6, repeat=n, launch_id=str(n)) for n in range(9)]
    store = plant(RecordStore(tmp_path), [*host, *own])
    read = measured_by("small", tmp_path)
    assert {one.machine.name for one in read} == {"small"} and {one.key for one in read} == {one.key for one in own}
    assert not any(one.machine.own_name for one in read)
    assert any(one.machine.own_name == "small" for one in as_read(store)), "the other reading renames some"
    (trace,) = [one for one in read if one.run.traced_steps]
    assert timed_step_s(trace) == pytest.approx(own_step_s(own[0]))
    assert measured_by("", tmp_path) == []


@pytest.mark.parametrize("order", [1, -1])
def test_a_traced_step_is_never_that_of_another_version_of_its_framework(order: int) -> None:
    plain = [make_record(units_per_s=rate, versions={"torch": version}) for rate, version in ((1e6, "2.11.0"), (2e6, "2.13.0"))]
    traced = traced_record(units_per_s=5e5, versions={"torch": "2.13.0"})
    read = as_read([*plain[::order], traced])[-1]
    assert timed_step_s(read) == pytest.approx(own_step_s(plain[1]))


def test_without_an_untraced_record_its_own_steps_are_all_there_is() -> None:
    traced = traced_record(units_per_s=1e6)
    other = make_record("exp4", units_per_s=2e6)
    (_, read) = as_read([other, traced])
    assert read == traced and timed_step_s(read) == own_step_s(traced)


def test_of_several_lengths_of_timing_that_of_the_traced_run_counts() -> None:
    traced = traced_record(units_per_s=1e6)
    same, longer = make_record(units_per_s=2e6), make_record(units_per_s=8e6, timed_steps=90)
    assert timed_step_s(as_read([same, longer, traced])[-1]) == pytest.approx(own_step_s(same))
    assert timed_step_s(as_read([longer, traced])[-1]) == pytest.approx(own_step_s(longer))
    fewer = make_record(units_per_s=3e6, timed_steps=60)
    assert timed_step_s(as_read([fewer, longer, traced])[-1]) == pytest.approx(own_step_s(longer))


def test_study_records_are_read_from_a_folder(tmp_path: Path) -> None:
    plant(RecordStore(tmp_path), [make_record(units_per_s=2e6), traced_record(units_per_s=1e6)])
    assert {bool(record.measurement.untraced_step_s) for record in study_records(tmp_path) if record.measurement} == {True, False}


def test_files_that_have_not_changed_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = plant(RecordStore(tmp_path), [make_record(units_per_s=2e6), traced_record(units_per_s=1e6)])
    read: list[Path] = []
    whole = RecordStore.read
    monkeypatch.setattr(RecordStore, "read", lambda self, path: read.append(path) or whole(self, path))
    first = stored_records(tmp_path)
    study_records(tmp_path)
    assert stored_records(tmp_path) is first and len(read) == 2
    assert list(first) == list(store), "what reading as one adds is not in what is kept"
    assert len(read) == 4, "a store itself keeps nothing"


def test_a_file_that_is_new_gone_or_changed_is_seen_at_once(tmp_path: Path) -> None:
    def rates() -> list[float]:
        return [record.measurement.units / record.measurement.wall_s for record in stored_records(tmp_path) if record.measurement]

    assert rates() == []
    store = plant(RecordStore(tmp_path), [make_record(units_per_s=1e6)])
    assert rates() == pytest.approx([1e6])
    again = store.write(make_record(units_per_s=2e6, attempt=1))
    assert rates() == pytest.approx([2e6])
    other = RecordStore(tmp_path / "other")
    longer = other.write(make_record(units_per_s=3e6, attempt=1)).read_bytes()
    again.write_bytes(longer)
    os.utime(again, ns=(0, 0))
    assert rates() == pytest.approx([3e6])
    again.unlink()
    assert rates() == pytest.approx([1e6])
    again.write_bytes(longer[:-9])
    assert rates() == pytest.approx([1e6]), "what is cut off is none; the attempt before it is read"


def test_a_file_that_is_broken_inside_is_named(tmp_path: Path) -> None:
    """What unpacking says of it depends on which byte it is."""
    file = RecordStore(tmp_path).write(make_record())
    whole = file.read_bytes()
    for place in range(10, len(whole), 7):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        assert stored_records(tmp_path) == ()
        (fault,) = RecordStore(tmp_path).unreadable()
        assert f"{file.name} is not a Record" in fault


def test_what_another_machine_measured_since_stands_for_an_older_program(tmp_path: Path) -> None:
    """Two GPUs hold a compiled step of January on one of them; one alone has the same Run of today's program."""

    def compiled(machine: str, rate: float, at: str) -> Record:
        fields = {"workload": "cnn", "execution": "compiled_captured"}
        return make_record(devices=1, units_per_s=rate, machine=make_machine(int(machine[0]), machine), **fields).model_copy(
            update={"measured_at": at}
        )

    old, new = compiled("2x-nvidia-h200", 300, "2026-01-02T03:04:05+00:00"), compiled("1x-nvidia-h200", 400, "2026-12-01T00:00:00+00:00")
    both = [make_record(devices=count, workload="cnn", machine=make_machine(2)) for count in (1, 2)]
    store = plant(RecordStore(tmp_path), [old, new, *both])
    own = {("2x-nvidia-h200", one.key) for one in both}
    read = {(one.machine.name, one.key) for one in study_records(tmp_path)}
    assert read == {("2x-nvidia-h200", old.key), ("1x-nvidia-h200", new.key), *own}, "its own come first"
    today = {(one.machine.name, one.key) for one in todays_records(tmp_path)}
    assert today == {("2x-nvidia-h200", new.key), *own}
    assert {one.key for one in of_todays_programs(store)} == {new.key, *(one.key for one in both)}
