"""One process that dispatches for all devices is supervised as one process a device is: every Run ends as a Record."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest

from multigpu.measure.launch import Point, Summary, launch_of, measure
from multigpu.measure.program import status_of
from multigpu.record import Record, RecordStore
from multigpu.run import Run
from tests.measure.test_recovery import descendants

ROOT = Path(__file__).parents[2]
PATHS = os.pathsep.join([f"{ROOT}/src", str(ROOT), os.environ.get("PYTHONPATH", "")])
HEALTHY, KILLED_ONCE, MEMORY, HANGS, RAISES, LAST = range(6)


def tiny(seed: int, devices: int = 2) -> Run:
    """A TensorFlow Run of a few seconds, most of them tracing; its seed names it."""
    return Run(
        workload="cnn",
        model="resnet_tiny",
        placement="exp2",
        framework="tensorflow",
        processes="one",
        execution="graph",
        devices=devices,
        batch_size=4,
        device_type="cpu",
        seed=seed,
        warmup_steps=2,
        timed_steps=3,
    )


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[RecordStore, Summary, Path, set[int]]:
    """One sweep of a framework's only process, in which it is killed, hangs, and runs out of memory."""
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")
    folder = tmp_path_factory.mktemp("solo")
    faults = [
        {"seed": KILLED_ONCE, "stage": "timed", "rank": 0, "fault": "kill", "once": str(folder / "struck")},
        {"seed": MEMORY, "stage": "timed", "rank": 0, "fault": "exhausted"},
        {"seed": HANGS, "stage": "warm-up", "rank": 0, "fault": "hang"},
        {"seed": RAISES, "stage": "build", "rank": 0, "fault": "raise"},
    ]
    store, before = RecordStore(folder / "runs"), set(descendants())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAULTS", json.dumps(faults))
        patch.setenv("PYTHONPATH", PATHS)
        points = [Point(tiny(seed), timeout_s=20.0 if seed == HANGS else 100.0) for seed in range(6)]
        summary = measure(points, store, progress=False, hook="tests.faults:strike")
    return store, summary, folder / "struck", set(descendants()) - before


def record_of(sweep, seed: int) -> Record:
    return next(record for record in sweep[0] if record.run.seed == seed)


@pytest.mark.timeout(300)
def test_every_run_has_one_record_and_no_process_is_left(sweep) -> None:
    assert sorted(record.run.seed for record in sweep[0]) == list(range(6))
    assert not sweep[3]


@pytest.mark.parametrize("seed", [HEALTHY, KILLED_ONCE, LAST])
def test_healthy_runs_are_measured(sweep, seed) -> None:
    record = record_of(sweep, seed)
    assert record.status == "ok" and sweep[2].exists()
    measured = record.measurement
    assert measured and measured.step_clock == "host" and measured.moved_bytes == measured.predicted_bytes
    assert len(measured.step_time_s) == 2 and measured.flags == []


def test_other_endings_are_statuses(sweep) -> None:
    assert record_of(sweep, MEMORY).status == "out_of_memory"
    assert record_of(sweep, HANGS).status == "timeout"
    assert record_of(sweep, RAISES).status == "failed" and "planted fault" in record_of(sweep, RAISES).reason


def test_statuses_are_told_by_the_names_of_errors() -> None:
    class ResourceExhaustedError(Exception):
        pass

    class InternalError(Exception):
        pass

    assert status_of(ResourceExhaustedError("OOM"))[0] == "out_of_memory"
    assert status_of(InternalError("CUDA: out of memory"))[0] == "out_of_memory"
    assert status_of(InternalError("something else")) == ("failed", "InternalError: something else")


def test_points_share_a_launch_only_where_one_program_can_measure_them() -> None:
    assert launch_of(Point(tiny(0))) == launch_of(Point(tiny(1)))
    assert launch_of(Point(tiny(0))) != launch_of(Point(tiny(0, devices=3))), "TensorFlow fixes its devices when it starts"
    assert launch_of(Point(tiny(0))) != launch_of(Point(tiny(0), launch=1))
