"""A launch whose Runs are fed by workers, fail in a worker, and move from device to device: Records say it, and no process is left."""

from __future__ import annotations

import pytest

from multigpu.inputs.made_jpegs import made_folder
from multigpu.measure.launch import measure
from multigpu.measure.point import Point
from multigpu.record import Record, RecordStore
from multigpu.run import Run, build_run
from tests.measure.test_recovery import descendants

FED, STAGED, BROKEN, OTHER_DEVICE, ON_DEVICE = range(5)


def tiny(seed: int, **more: object) -> Run:
    common: dict[str, object] = {"workload": "cnn", "model": "resnet_tiny", "placement": "ddp", "device_type": "cpu", "batch_size": 4}
    return build_run(**(common | {"seed": seed, "warmup_steps": 2, "timed_steps": 4} | more))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[int, Record], set[int]]:
    """By seed, the Records of one launch, and what it left running."""
    folder = tmp_path_factory.mktemp("sweep")
    images = (str(made_folder(folder / "cache", 8)),)
    (folder / "broken" / "a").mkdir(parents=True)
    for number in range(4):
        (folder / "broken" / "a" / f"{number}.jpg").write_bytes(b"no picture")
    runs = [
        tiny(FED, inputs="jpeg_folder", data=images, input_workers=1),
        tiny(STAGED, inputs="synthetic_host", prefetch=2),
        tiny(BROKEN, inputs="jpeg_folder", data=(str(folder / "broken"),), input_workers=1),
        tiny(OTHER_DEVICE, device_ids="2"),
        tiny(ON_DEVICE),
    ]
    store, before = RecordStore(folder / "runs"), set(descendants())
    measure([Point(run, timeout_s=90.0) for run in runs], store, progress=False)
    return {record.run.seed: record for record in store}, set(descendants()) - before


@pytest.mark.timeout(200)
def test_waits_are_recorded_for_what_is_fed_alone(swept) -> None:
    records, left = swept
    assert not left
    for seed in (FED, STAGED):
        measured = records[seed].measurement
        assert records[seed].status == "ok" and measured
        assert [len(waits) for waits in measured.input_wait_s] == [6] and all(wait > 0 for wait in measured.input_wait_s[0])
    assert records[FED].input_label.startswith("JPEG files of made-jpegs") and len(records[FED].input_fingerprint) == 64
    assert records[ON_DEVICE].measurement and records[ON_DEVICE].measurement.input_wait_s == []


def test_a_worker_that_cannot_read_is_a_status_with_its_sentence(swept) -> None:
    record = swept[0][BROKEN]
    assert record.status == "failed" and record.reason.startswith("ValueError: ")
    assert record.reason.endswith("cannot be decoded as an image")


def test_another_device_makes_another_group_and_the_same_training(swept) -> None:
    records = swept[0]
    assert records[OTHER_DEVICE].status == records[ON_DEVICE].status == "ok"
    assert records[OTHER_DEVICE].run.chosen_devices == (2,) and records[OTHER_DEVICE].key != records[ON_DEVICE].key
