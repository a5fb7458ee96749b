"""Peaks that hold an earlier Run's model are not read, nor "out of memory" where such a model took the room."""

from __future__ import annotations

from typing import Any

import pytest

from multigpu.held_memory import (
    FREED_SINCE,
    HELD_FLAG,
    TOLD,
    WORKSPACE_GIB,
    WORKSPACES_FREED_SINCE,
    beside_held_memory,
    beside_workspaces,
    leaves_memory,
    with_peaks,
    without_held_memory,
    without_peaks,
)
from multigpu.measure.point import Point
from multigpu.measure.session import HELD_GIB, _held_flags
from multigpu.reading import as_read, measured_by
from multigpu.record import Record, RecordStore
from tests.factory import make_machine, make_record, plant

BUCKETS = {"placement": "ddp", "execution": "captured"}


def at(second: int, batch_size: int, launch_id: str = "a", day: str = "2026-11-01", **fields: Any) -> Record:
    """A Record of the Run with `batch_size`, written `second` seconds into `day`."""
    record = make_record(batch_size=batch_size, launch_id=launch_id, **fields)
    return record.model_copy(update={"measured_at": f"{day}T00:00:{second:02d}+00:00"})


def peaks(records: list[Record]) -> list[list[float] | None]:
    return [record.measurement.peak_memory_gib if record.measurement else None for record in records]


def test_a_peak_after_a_captured_ddp_run_of_the_same_launch_is_not_read() -> None:
    first, after = at(1, 16, **BUCKETS), at(3, 32)
    before, elsewhere = at(0, 64), at(3, 128, launch_id="b")
    read = without_held_memory([after, first, before, elsewhere])
    assert peaks(read) == [[], [1.5] * 2, [1.5] * 2, [1.5] * 2], "in whatever order they are read"
    assert [one.model_copy(update={"measurement": None}) for one in read] == [
        one.model_copy(update={"measurement": None}) for one in (after, first, before, elsewhere)
    ]
    assert read[0].measurement and after.measurement and after.measurement.peak_memory_gib == [1.5] * 2, "the Record itself is as it was"
    assert read[0].measurement.step_time_s == after.measurement.step_time_s


def test_of_two_records_in_one_second_either_may_be_the_later() -> None:
    first, other = at(1, 16, **BUCKETS), at(1, 32)
    assert peaks(without_held_memory([other, first])) == [[], [1.5] * 2]


def test_out_of_memory_beside_an_earlier_model_says_nothing() -> None:
    full, later = at(3, 4096, status="out_of_memory"), at(4, 2048, status="failed")
    alone = at(3, 8192, launch_id="b", status="out_of_memory")
    assert without_held_memory([at(1, 16, **BUCKETS), full, later, alone]) == [at(1, 16, **BUCKETS), later, alone]


def test_nothing_is_left_behind_since_models_are_given_back() -> None:
    day = FREED_SINCE[:10].replace("-23", "-24")
    records = [at(1, 16, day=day, **BUCKETS), at(2, 32, day=day), at(3, 64, day=day, status="out_of_memory")]
    assert not beside_held_memory(records)
    assert without_held_memory(records) == records


@pytest.mark.parametrize(("peak_gib", "told"), [(2 * WORKSPACE_GIB / TOLD + 0.1, True), (2 * WORKSPACE_GIB / TOLD - 0.1, False)])
def test_a_peak_that_workspaces_may_have_raised_is_not_read(peak_gib: float, told: bool) -> None:
    """Two captured Runs came before; what they left is more than a share of a small peak and not of a large one."""
    day = FREED_SINCE[:10].replace("-23", "-22")
    captured = {"placement": "independent", "execution": "captured", "day": day}
    last = at(9, 64, day=day, measurement={"peak_memory_gib": [peak_gib, 0.1]})
    records = [last, at(1, 16, **captured), at(2, 32, **captured), at(3, 32, launch_id="b", **captured)]
    assert beside_workspaces(records) == (set() if told else {(last.launch_id, last.key, last.attempt)})
    assert peaks(without_held_memory(records))[0] == ([peak_gib, 0.1] if told else [])
    late = [one.model_copy(update={"measured_at": WORKSPACES_FREED_SINCE}) for one in records]
    assert without_held_memory(late) == late


def test_workspaces_take_no_room_that_matters() -> None:
    records = [at(0, 8, placement="independent", execution="captured"), at(3, 4096, status="out_of_memory")]
    assert without_held_memory(records) == records


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({}, True),
        ({"devices": 1}, True),
        ({"execution": "compiled_captured"}, True),
        ({"execution": "eager"}, False),
        ({"placement": "replicated_allreduce"}, False),
        ({"placement": "independent"}, False),
    ],
)
def test_what_leaves_its_model_behind(fields: dict[str, Any], left: bool) -> None:
    run = make_record(**{**BUCKETS, **fields}).run
    assert leaves_memory(run) == left
    records = [at(1, 16, **{**BUCKETS, **fields}), at(3, 32, placement="exp2")]
    assert bool(beside_held_memory(records)) == left


def test_pages_read_them_so(tmp_path: Any) -> None:
    store = plant(RecordStore(tmp_path), [at(1, 16, **BUCKETS), at(3, 32), at(4, 64, status="out_of_memory")])
    for read in (as_read(store), measured_by("8x-nvidia-h200", tmp_path)):
        assert sorted(map(str, peaks(read))) == ["[1.5, 1.5]", "[]"]


@pytest.mark.parametrize(("held_gib", "peak"), [(0.10, [3.2, 3.2]), (0.35, [])])
def test_what_a_run_found_allocated_concerns_its_peak_alone(held_gib: float, peak: list[float]) -> None:
    """No reason to distrust its times; its peak is read unless it was raised by more than a share."""
    flags = [f"{held_gib:.2f}{HELD_FLAG}", "host and device clocks disagree"]
    (read,) = without_held_memory([at(1, 16, day="2026-12-01", measurement={"peak_memory_gib": [3.2, 3.2], "flags": flags})])
    assert read.measurement and (read.measurement.peak_memory_gib, read.measurement.flags) == (peak, flags[1:])


def test_a_run_says_what_was_allocated_before_it_began() -> None:
    assert _held_flags([{"held_gib": 0.01}, {"held_gib": 0.351}]) == [f"0.35{HELD_FLAG}"]
    assert _held_flags([{"held_gib": HELD_GIB}, {}]) == [], "TensorFlow's parts do not say"


def test_what_has_no_peak_is_measured_once_more_where_the_gpus_are_alike() -> None:
    first, after, again = at(1, 16, **BUCKETS), at(3, 32), at(4, 64)
    fresh = at(3, 64, launch_id="b", repeat=1)  # alone in its launch: its peak is read, and one is enough
    here = first.machine
    points = [Point(one.run, repeat) for one in (first, after, again) for repeat in (1, 0)]
    unmeasured = Point(at(5, 128).run)
    assert without_peaks([*points, unmeasured], [first, after, again, fresh], here) == [Point(after.run, 1)], "the first of its points"
    others = [one.model_copy(update={"machine": here.model_copy(update={"gpus": ["another"] * len(here.gpus)})}) for one in (first, after)]
    assert not without_peaks(points, others, here) and not without_peaks(points, [at(1, 16, status="failed")], here)


def test_a_peak_that_is_not_read_is_that_of_the_same_run_on_the_same_gpus() -> None:
    """Whatever the host; of a Run that uses its host, of other GPUs or of another batch it is not."""
    first, after = at(1, 16, **BUCKETS), at(3, 32)
    read = without_held_memory([first, after])
    two, four, strange = make_machine(2), make_machine(4), make_machine(2, "strange", gpu="another")
    fresh = [at(4, 32, launch_id="b", machine=machine, measurement={"peak_memory_gib": [2.5] * 2}) for machine in (two, four)]
    assert peaks(with_peaks([*read, fresh[1]]))[0] == [1.5] * 2 and peaks(with_peaks([*read, fresh[1]]))[1] == [2.5] * 2
    assert peaks(with_peaks(read))[1] == []
    other = [at(4, 32, launch_id="c", machine=strange), at(4, 64, launch_id="d", machine=two)]
    assert peaks(with_peaks([*read, *other]))[1] == []
    hosted = without_held_memory([first, at(3, 32, placement="exp2")])
    assert peaks(with_peaks([*hosted, at(4, 32, launch_id="b", placement="exp2")]))[1] == []
    assert peaks(as_read([first, after, fresh[1]]))[1] == [2.5] * 2
