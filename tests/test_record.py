"""Records: whole or absent, never edited, found by what was measured."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

from multigpu.record import Record, RecordStore
from multigpu.run import Run, build_run
from tests.factory import make_record
from tests.refusals import refused


def test_equal_records_are_equal_bytes(tmp_path, monkeypatch) -> None:
    record = make_record()
    first = RecordStore(tmp_path / "a").write(record).read_bytes()
    monkeypatch.setattr(time, "time", lambda: 1e9)  # a time stamp of the archive would differ by now
    assert RecordStore(tmp_path / "b").write(record).read_bytes() == first


def test_a_record_is_never_edited(tmp_path) -> None:
    store, record = RecordStore(tmp_path), make_record()
    path = store.write(record)
    before = path.read_bytes()
    refused("File exists", store.write, record.model_copy(update={"status": "failed"}), error=FileExistsError)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name], "no temporary file stays"


def test_a_figure_that_is_no_number_is_read_back(tmp_path) -> None:
    store = RecordStore(tmp_path)
    store.write(make_record(measurement={"loss": [1.0, float("nan"), float("inf")]}))
    (read,) = store
    assert read.measurement and read.measurement.loss[1] != read.measurement.loss[1] and read.measurement.loss[2] == float("inf")


def write_for_ever(root: str) -> None:
    store, index = RecordStore(Path(root)), 0
    while True:
        store.write(make_record(repeat=index))
        index += 1


def test_a_killed_writer_leaves_no_half_record(tmp_path) -> None:
    """Kill -9 at moments of its own choosing: every file that readers see is whole."""
    context = multiprocessing.get_context("spawn")
    for attempt in range(2):
        root = tmp_path / str(attempt)
        writer = context.Process(target=write_for_ever, args=(str(root),))
        writer.start()
        deadline = time.monotonic() + 60
        while len(list(root.glob("*/*.json.gz"))) < 5 + attempt and time.monotonic() < deadline:
            time.sleep(0.01)
        assert writer.pid
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        records = list(RecordStore(root))
        assert len(records) >= 5 and all(record.status == "ok" for record in records)


def test_the_key_tells_points_apart() -> None:
    run = build_run(workload="nmt", model="nmt_tiny", placement="ddp", device_type="cpu", batch_size=4)
    key = Record.key_for(run, 0, "machine", "2.11", 1)
    changes = {"batch_size": 5, "devices": 2, "placement": "exp4", "seed": 1, "precision": "fp64", "sequence_length": 7, "timed_steps": 31}
    others = [Record.key_for(run.model_copy(update={name: value}), 0, "machine", "2.11", 1) for name, value in changes.items()]
    changed = ((1, "machine", "2.11", 1), (0, "other", "2.11", 1), (0, "machine", "2.12", 1), (0, "machine", "2.11", 2))
    others += [Record.key_for(run, *what) for what in changed]
    assert len({key, *others}) == 1 + len(others)


def test_keys_do_not_move() -> None:
    """A field added to Run with a default that says what was done before must leave this key alone; so must its order."""
    run = Run(workload="nmt", model="nmt000", placement="ddp", devices=4, batch_size=128, sequence_length=100, precision="bf16")
    assert Record.key_for(run, 0, "4x-nvidia-h200", "2.11.0", 1) == "500b33e7802d3a95b390", "the key of a committed Record"
