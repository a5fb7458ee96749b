"""One process that dispatches for all devices is supervised as one process a device is: every Run ends as a Record."""

import json
import os
from pathlib import Path

import pytest

from multigpu.measure.point import Point, launch_of
from multigpu.placements import placements
from multigpu.run import Run, build_run
from tests.measure.launched import PATHS, REVIEWS, WORDS, Struck, strike
from tests.measure.test_libraries import plant_site

HEALTHY, KILLED_ONCE, MEMORY, HANGS, RAISES, LAST = range(6)
OTHER, UNRECORDED = 6, 7


def served(seed: int, devices: int = 2) -> Run:
    """A TensorFlow Run of a few seconds, most of them tracing; its seed names it."""
    return build_run(**REVIEWS | {"placement": "exp2", "processes": "one", "devices": devices, "seed": seed})


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Struck:
    """One sweep of a framework's only process, in which it is killed, hangs, and runs out of memory."""
    folder = tmp_path_factory.mktemp("solo")
    faults = [
        {"seed": KILLED_ONCE, "stage": "timed", "rank": 0, "fault": "kill", "once": str(folder / "struck")},
        {"seed": MEMORY, "stage": "timed", "rank": 0, "fault": "exhausted"},
        {"seed": HANGS, "stage": "warm-up", "rank": 0, "fault": "hang"},
        {"seed": RAISES, "stage": "build", "rank": 0, "fault": "raise"},
        {"seed": LAST, "stage": "build", "rank": 0, "fault": "tell", "file": str(folder / "environment")},
    ]
    plant_site(folder / "site", "cuda_runtime/lib/libcudart.so.12", "cuda_nvcc/bin/ptxas")
    points = [Point(served(seed), timeout_s=8.0 if seed == HANGS else 100.0) for seed in range(6)]
    more = {"PYTHONPATH": f"{PATHS}{os.pathsep}{folder / 'site'}", "LD_LIBRARY_PATH": "own", "XLA_FLAGS": ""}
    return strike(folder, points, faults, **more)


@pytest.mark.timeout(300)
def test_every_run_has_one_record_and_no_process_is_left(sweep: Struck) -> None:
    sweep.check_whole()


@pytest.mark.parametrize("seed", [HEALTHY, KILLED_ONCE, LAST])
def test_healthy_runs_are_measured(sweep: Struck, seed: int) -> None:
    record = sweep[seed]
    assert record.status == "ok" and (sweep.store.root.parent / "struck").exists()
    measured = record.measurement
    assert measured and measured.step_clock == "host" and measured.moved_bytes == measured.predicted_bytes
    # two clocks may part on a busy computer: a step lasts a few milliseconds here
    assert len(measured.step_time_s) == 2 and [flag for flag in measured.flags if not flag.startswith("clocks disagree")] == []


def test_tensorflow_is_told_where_cudas_libraries_are(sweep: Struck) -> None:
    """Its own process; what the user set comes first. The Record keeps the flag, not this machine's path."""
    folder = sweep.store.root.parent
    site = (folder / "site" / "nvidia").resolve()
    told = json.loads((folder / "environment").read_text())
    assert told["LD_LIBRARY_PATH"].split(os.pathsep)[:2] == ["own", str(site / "cuda_runtime" / "lib")]
    assert told["XLA_FLAGS"] == f"--xla_gpu_cuda_data_dir={site / 'cuda_nvcc'}"
    assert sweep[LAST].machine.environment["XLA_FLAGS"] == "--xla_gpu_cuda_data_dir=<path>"


def test_other_endings_are_statuses(sweep: Struck) -> None:
    assert sweep[MEMORY].status == "out_of_memory"
    assert sweep[HANGS].status == "timeout"
    assert sweep[RAISES].status == "failed" and "planted fault" in sweep[RAISES].reason


def one_torch_process(seed: int, placement: str, devices: int = 2) -> Run:
    """A PyTorch Run of a second, dispatched by one thread; its seed names it."""
    return build_run(**WORDS | {"placement": placement, "processes": "one", "devices": devices, "seed": seed})


@pytest.mark.timeout(120)
def test_pytorch_in_one_process_is_measured_by_the_same_program(tmp_path: Path) -> None:
    placed = {HEALTHY: "exp1", MEMORY: "exp2", RAISES: "exp3", UNRECORDED: "exp3", LAST: "replicated_copy"}
    runs = [one_torch_process(OTHER, "exp4", 3), *(one_torch_process(seed, placement) for seed, placement in placed.items())]
    faults = [
        {"seed": MEMORY, "stage": "timed", "rank": 0, "fault": "memory"},
        {"seed": RAISES, "stage": "build", "rank": 0, "fault": "raise"},
        {"seed": UNRECORDED, "stage": "timed", "rank": 0, "fault": "record"},
    ]
    records = {record.run.seed: record for record in strike(tmp_path, [Point(run, timeout_s=60.0) for run in runs], faults).store}
    assert {seed: record.status for seed, record in records.items()} == {
        HEALTHY: "ok",
        OTHER: "ok",
        MEMORY: "out_of_memory",
        RAISES: "failed",
        UNRECORDED: "failed",
        LAST: "ok",
    }
    assert records[UNRECORDED].reason == "its Record could not be put together: KeyError: 'planted: a number is missing'"
    for seed in (HEALTHY, OTHER, LAST):
        run, measured = records[seed].run, records[seed].measurement
        assert measured and measured.step_clock == "device"
        assert measured.moved_bytes == measured.predicted_bytes and measured.moved_bytes
        assert [len(steps) for steps in measured.step_time_s] == [5] * run.devices
        assert len(measured.event_time_s) == len(measured.peak_memory_gib) == run.devices
        assert measured.parameter_change > 0
        assert measured.replicas_agree is (True if run.placement == "replicated_copy" else None)


def test_points_share_a_launch_only_where_one_program_can_measure_them() -> None:
    assert launch_of(Point(served(0))) == launch_of(Point(served(1)))
    assert launch_of(Point(served(0))) != launch_of(Point(served(0, devices=3))), "TensorFlow fixes its devices when it starts"
    assert launch_of(Point(served(0))) != launch_of(Point(served(0), launch=1))
    torch = Point(one_torch_process(0, "exp2", 2))
    assert launch_of(torch) != launch_of(Point(served(0))), "two frameworks do not meet in one process"
    assert launch_of(torch) == launch_of(Point(one_torch_process(0, "exp4", 3)))
    assert launch_of(torch) != launch_of(Point(torch.run.model_copy(update={"processes": "per_device"})))
    members = [served(seed, devices).model_copy(update={"processes": "per_device"}) for seed, devices in ((0, 2), (1, 2), (0, 3))]
    first, other, wider = (launch_of(Point(run)) for run in members)
    assert first == other != wider, "collectives of two sizes never share a process"


def test_on_gpus_one_tensorflow_process_measures_runs_of_any_size_but_for_collectives() -> None:
    """A process that sees all GPUs must start once for 1, 2 and 4 of them, unless a group of collectives is made in it."""

    def on_gpus(placement: str, devices: int) -> tuple[object, ...]:
        changes = {"placement": placement, "devices": devices, "device_type": "cuda"}
        return launch_of(Point(served(0).model_copy(update=changes)))

    for row in placements().values():
        engines = [engine for engine in row.engines if engine.framework == "tensorflow" and engine.processes == "one"]
        if not engines:
            continue
        groups = row.merge == "all_reduce" or any(engine.strategy for engine in engines)
        assert (on_gpus(row.name, 2) == on_gpus(row.name, 4)) is not groups, row.name
