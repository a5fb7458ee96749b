"""Whatever happens to a sweep: measured Records stay, no process is left, and the same call finishes the rest."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from multigpu.measure.launch import measure
from multigpu.measure.point import Point
from multigpu.measure.summary import Summary
from multigpu.record import Record, RecordStore
from multigpu.run import Run

ROOT = Path(__file__).parents[2]
PATHS = os.pathsep.join([f"{ROOT}/src", str(ROOT), os.environ.get("PYTHONPATH", "")])


def tiny(seed: int, devices: int = 2, placement: str = "ddp") -> Run:
    """A Run of half a second; its seed names it."""
    return Run(
        workload="cnn",
        model="resnet_tiny",
        placement=placement,
        devices=devices,
        batch_size=4,
        device_type="cpu",
        seed=seed,
        warmup_steps=2,
        timed_steps=3,
    )


def descendants() -> list[int]:
    """Processes that this one has started and that still live."""
    return [child.pid for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]


def memory_of(pid: int) -> list[Path]:
    """Folders of memory-backed files that the launcher `pid` has left."""
    root = Path("/dev/shm") if os.path.isdir("/dev/shm") else Path(tempfile.gettempdir())
    return list(root.glob(f"multigpu-memory-{pid}-*"))


HEALTHY, KILLED_ONCE, ALWAYS_DIES, MEMORY_BUILD, MEMORY_TIMED, HANGS, RAISES, UNRECORDED, LAST = SEEDS = range(9)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[RecordStore, Summary, list[Point], set[int], Path]:
    """One sweep in which nearly everything goes wrong."""
    folder = tmp_path_factory.mktemp("sweep")
    struck = folder / "struck"
    faults = [
        {"seed": KILLED_ONCE, "stage": "timed", "rank": 1, "fault": "kill", "once": str(struck)},
        {"seed": ALWAYS_DIES, "stage": "warm-up", "rank": 0, "fault": "kill"},
        {"seed": MEMORY_BUILD, "stage": "build", "rank": 1, "fault": "memory"},
        {"seed": MEMORY_TIMED, "stage": "timed", "rank": 1, "fault": "memory"},
        {"seed": HANGS, "stage": "timed", "rank": 1, "fault": "hang"},
        {"seed": RAISES, "stage": "build", "rank": 0, "fault": "raise"},
        {"seed": UNRECORDED, "stage": "timed", "rank": 0, "fault": "record"},
    ]
    store, before = RecordStore(folder / "runs"), set(descendants())  # other tests may have left helpers of their own
    points = [Point(tiny(seed), timeout_s=6.0 if seed == HANGS else 60.0) for seed in SEEDS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAULTS", json.dumps(faults))
        patch.setenv("PYTHONPATH", PATHS)
        summary = measure(points, store, progress=False, hook="tests.faults:strike")
    return store, summary, points, set(descendants()) - before, struck


def record_of(sweep, seed: int) -> Record:
    return next(record for record in sweep[0] if record.run.seed == seed)


@pytest.mark.timeout(600)
def test_every_run_has_one_record_and_no_process_is_left(sweep) -> None:
    assert not memory_of(os.getpid())
    store, summary, points, left, _ = sweep
    assert sorted(record.run.seed for record in store) == list(SEEDS)
    assert sum(summary.statuses.values()) == len(points)
    assert not left


@pytest.mark.parametrize("seed", [HEALTHY, KILLED_ONCE, LAST])
def test_healthy_runs_are_measured(sweep, seed) -> None:
    assert record_of(sweep, seed).status == "ok"


def test_a_killed_worker_costs_one_restart_and_no_run(sweep) -> None:
    assert sweep[4].exists(), "the fault did strike"
    assert record_of(sweep, KILLED_ONCE).status == "ok"


def test_a_restart_imports_nothing_again(sweep) -> None:
    """Workers are forked: what a start costs, a restart does not. The first launch dies with its second Run, whatever their order."""
    restarted = [r.measurement.startup_s for r in sweep[0] if r.measurement and not r.launch_id.endswith(".0")]
    with tempfile.TemporaryDirectory() as folder:
        other = RecordStore(Path(folder))
        measure([Point(tiny(HEALTHY))], other, progress=False)
        (first,) = (record.measurement.startup_s for record in other if record.measurement)
    assert restarted and min(restarted) < first / 2


def test_a_worker_that_always_dies_is_given_up(sweep) -> None:
    record = record_of(sweep, ALWAYS_DIES)
    assert record.status == "failed" and "died 2 times" in record.reason


@pytest.mark.parametrize("seed", [MEMORY_BUILD, MEMORY_TIMED])
def test_one_rank_out_of_memory_is_a_status(sweep, seed) -> None:
    record = record_of(sweep, seed)
    assert record.status == "out_of_memory" and "planted" in record.reason
    assert any("out_of_memory" in trouble and "planted" in trouble for trouble in sweep[1].troubles)


def test_a_hang_is_a_timeout(sweep) -> None:
    record = record_of(sweep, HANGS)
    # the other one waits for it; on a busy machine the launch may end before the second of them has written its stacks
    assert record.status == "timeout" and re.search(r"replicas (0, 1|0|1) did not finish in time: ", record.reason)
    # the folder of the launch is gone, so the Record says where they stood
    assert re.search(r": (0, 1|0|1) in \S+ \(.+:\d+\) < ", record.reason) and "multigpu-sweep" not in record.reason


def test_an_error_is_a_status_with_its_sentence(sweep) -> None:
    record = record_of(sweep, RAISES)
    assert record.status == "failed" and "planted fault" in record.reason


def test_a_record_that_cannot_be_put_together_is_a_status_and_its_run_is_measured_once(sweep) -> None:
    record = record_of(sweep, UNRECORDED)
    assert (record.status, record.reason) == ("failed", "its Record could not be put together: KeyError: 'planted: a number is missing'")


def test_the_same_call_again_measures_nothing(sweep) -> None:
    store, _, points, _, _ = sweep
    again = measure(points, store, progress=False)
    assert again.reused == len(points) and not again.statuses


@pytest.mark.timeout(300)
def test_failures_are_measured_again_when_asked_and_kept(sweep) -> None:
    store, _, points, _, _ = sweep
    chosen = [point for point in points if point.run.seed in (RAISES, HEALTHY)]
    summary = measure(chosen, store, progress=False, retry=["failed"])
    assert summary.statuses == {"ok": 1} and summary.reused == 1
    assert record_of(sweep, RAISES).attempt == 1
    assert len(list(store.root.glob("*/*.json.gz"))) == len(points) + 1, "the failed attempt is kept"


@pytest.mark.timeout(600)
def test_a_killed_launcher_leaves_its_records_and_nothing_else(tmp_path, monkeypatch) -> None:
    """The sweep's parent is killed with -9 in the middle: its children end by themselves, the next call finishes."""
    store = RecordStore(tmp_path / "runs")
    seeds = range(3)
    # whichever Run comes last in the shuffled order hangs: the first to start after one Record is there
    monkeypatch.setenv("FAULTS", json.dumps([{"seed": seed, "stage": "timed", "rank": 0, "fault": "2"} for seed in seeds]))
    monkeypatch.setenv("PYTHONPATH", PATHS)
    script = tmp_path / "sweep.py"
    script.write_text(
        "from pathlib import Path\n"
        "from multigpu.measure.launch import measure\nfrom multigpu.measure.point import Point\n"
        "from multigpu.record import RecordStore\n"
        "from tests.measure.test_recovery import tiny\n"
        f"store = RecordStore(Path({str(store.root)!r}))\n"
        f"measure([Point(tiny(seed)) for seed in {list(seeds)}], store, progress=False, hook='tests.faults:strike')\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)])
    deadline = time.monotonic() + 90
    while not list(store) and time.monotonic() < deadline:
        time.sleep(0.05)
    children = psutil.Process(parent.pid).children(recursive=True)
    assert len(children) >= 3, "an agent and two workers"
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not [process for process in alive if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    kept = {record.key for record in store}
    assert 1 <= len(kept) < 3
    monkeypatch.delenv("FAULTS")
    assert memory_of(parent.pid), "a killed launcher cannot clear up"
    summary = measure([Point(tiny(seed)) for seed in seeds], store, progress=False)
    assert not memory_of(parent.pid), "the next one does"
    assert summary.reused == len(kept) and summary.statuses == {"ok": 3 - len(kept)}
    assert kept <= {record.key for record in store}
