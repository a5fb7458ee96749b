"""Lanes measure side by side on real processes: Records as ever, each lane on its own cores, and a dead lane loses nothing of others."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from multigpu.measure.lane import Lane, in_order, this_lane
from multigpu.measure.lanes import measure_shared
from multigpu.measure.machine import this_machine
from multigpu.measure.point import Point
from multigpu.measure.summary import Summary
from multigpu.measure.sweep import measure
from multigpu.record import Record, RecordStore
from multigpu.run import Run
from tests.measure.launched import PATHS, WORDS, descendants, memory_of, tiny

CORES = in_order(os.sched_getaffinity(0))
pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="one core makes one lane")


def look(stage: str, run: Run, rank: int) -> None:
    """A launch's hook: on which cores and in which lane this process is, by Run and rank; and a fault that takes its lane with it."""
    if stage == "build":
        lane = this_lane()
        seen = {"cores": sorted(os.sched_getaffinity(0)), "lane": lane.model_dump() if lane else None, "omp": os.environ["OMP_NUM_THREADS"]}
        Path(os.environ["LANES_SEEN"], f"{run.seed}.{rank}.{run.framework}").write_text(json.dumps(seen))
    if run.seed == int(os.environ.get("LANES_KILLED", "-1")) and stage == "timed":
        for parent in psutil.Process().parents():
            if "multigpu.measure.agent" in parent.cmdline():
                parent.send_signal(signal.SIGKILL)
        time.sleep(60)  # until this process goes with its parents


def mixed() -> list[Point]:
    """Tiny Runs of both workloads with two processes each, one that keeps variables on the host, and repeats."""
    runs = [tiny(seed) for seed in range(3)]
    runs += [Run(placement="exp4", devices=2, seed=3, **WORDS)]
    return [Point(run, repeat) for run in runs for repeat in range(2)] + [Point(tiny(4, placement="exp2"))]


def prepare(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """What `look` needs; it writes to the folder's `seen`."""
    (folder / "seen").mkdir()
    patch.setenv("LANES_SEEN", str(folder / "seen"))
    patch.setenv("PYTHONPATH", PATHS)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[RecordStore, Summary, Path, set[int]]:
    """Two lanes on the halves of this machine's cores, then one Run by itself."""
    folder = tmp_path_factory.mktemp("lanes")
    store, before = RecordStore(folder / "runs"), set(descendants())
    with pytest.MonkeyPatch.context() as patch:
        prepare(patch, folder)
        patch.delenv("OMP_NUM_THREADS", raising=False)
        summary = measure_shared(mixed(), store, progress=False, hook="tests.measure.test_lanes:look", lanes=2)
    return store, summary, folder / "seen", set(descendants()) - before


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_lanes_leave_records_of_the_whole_machine(sweep) -> None:
    store, summary, _, left = sweep
    records: list[Record] = list(store)
    assert {record.run.seed: (record.status, record.lane) for record in records} == {
        **dict.fromkeys(range(4), ("ok", Lane(gpus=[], cores=len(CORES) // 2, neighbours=1))),
        4: ("ok", None),
    }
    assert (summary.statuses, summary.reused, summary.troubles) == ({"ok": 9}, 0, [])
    here = this_machine()
    for record in records:
        assert record.machine.model_copy(update={"environment": {}}) == here.model_copy(update={"environment": {}})
    assert not left and not memory_of(os.getpid())


def test_each_launch_is_of_one_lane(sweep) -> None:
    store, _, seen, _ = sweep
    cores = {record.run.seed: json.loads((seen / f"{record.run.seed}.0.torch").read_text())["cores"] for record in store}
    by_launch: dict[str, set[tuple[int, ...]]] = {}
    for record in store:
        by_launch.setdefault(record.launch_id, set()).add(tuple(cores[record.run.seed]))
    assert all(len(places) == 1 for places in by_launch.values()) and len(by_launch) == 3


def test_a_lanes_workers_keep_to_its_cores(sweep) -> None:
    _, _, seen, _ = sweep
    half = len(CORES) // 2
    shares = [sorted(CORES[:half]), sorted(CORES[half : 2 * half])]
    found = {path.name: json.loads(path.read_text()) for path in seen.iterdir()}
    assert len(found) == 10, "two processes of each Run were looked at"
    for name, one in found.items():
        if name.startswith("4."):
            assert one["cores"] == sorted(CORES) and one["lane"] is None
        else:
            assert one["cores"] in shares and one["omp"] == str(half)
    assert {tuple(one["cores"]) for name, one in found.items() if not name.startswith("4.")} == set(map(tuple, shares))


@pytest.mark.timeout(120)
def test_an_ordinary_sweep_finds_them_all(sweep) -> None:
    store, *_ = sweep
    again = measure(mixed(), store, progress=False)
    assert (sum(again.statuses.values()), again.reused) == (0, 9)
    shared = measure_shared(mixed(), store, progress=False, lanes=2)
    assert (sum(shared.statuses.values()), shared.reused) == (0, 9)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_lane_is_named_and_the_other_finishes_on_its_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of TensorFlow where it is installed, whose one process keeps to its lane as PyTorch's do."""
    prepare(monkeypatch, tmp_path)
    monkeypatch.setenv("LANES_KILLED", "0")
    store, before = RecordStore(tmp_path / "runs"), set(descendants())
    how = {"framework": "tensorflow", "execution": "graph"} if importlib.util.find_spec("tensorflow") else {}
    fields = WORDS | {"placement": "exp4", "processes": "one"} | how
    points = [Point(Run(seed=seed, **fields), repeat) for seed, repeat in ((0, 0), (1, 0), (1, 1))]
    with pytest.raises(RuntimeError, match=r"^lane \d \(cores [^)]+\): the launcher ended with -9 ") as told:
        measure_shared(points, store, progress=False, hook="tests.measure.test_lanes:look", lanes=2)
    assert str(told.value).count("ended with") == 1 and "goes on from there" in str(told.value)
    assert sorted((record.run.seed, record.repeat, record.status) for record in store) == [(1, 0, "ok"), (1, 1, "ok")]
    half = len(CORES) // 2
    assert all(record.lane and record.lane.neighbours == 1 for record in store)
    assert {record.measurement.host_threads for record in store if record.measurement} == {half}
    seen = [json.loads(path.read_text())["cores"] for path in (tmp_path / "seen").iterdir()]
    assert sorted(map(len, seen)) == [half] * 2 and seen[0] != seen[1]
    deadline = time.monotonic() + 10  # orphans are killed by the kernel, which may take a moment
    while set(descendants()) - before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not set(descendants()) - before
    monkeypatch.delenv("LANES_KILLED")
    done = measure_shared(points, store, progress=False, hook="tests.measure.test_lanes:look", lanes=2)
    assert (sum(done.statuses.values()), done.reused) == (1, 2) and len(list(store)) == 3


@pytest.mark.timeout(300)
def test_ctrl_c_ends_all_lanes_and_leaves_nothing(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from multigpu.measure.lanes import measure_shared
from multigpu.measure.point import Point
from multigpu.record import RecordStore
from tests.measure.launched import tiny
points = [Point(tiny(seed, 1).model_copy(update={{"timed_steps": 100000}}), timeout_s=200) for seed in range(2)]
measure_shared(points, RecordStore(Path({str(tmp_path / "runs")!r})), progress=False, lanes=2)
"""
    environment = os.environ | {"PYTHONPATH": PATHS, "TMPDIR": str(tmp_path)}
    # a shell that put the tests in the background has left Ctrl-C ignored in all that it started
    listening = f"import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n{code}"
    process = subprocess.Popen([sys.executable, "-c", listening], env=environment, stderr=subprocess.PIPE, text=True)
    children: list[psutil.Process] = []
    deadline = time.monotonic() + 60
    while len(children) < 4 and time.monotonic() < deadline:  # two lanes' launchers and their workers
        time.sleep(0.2)
        children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 4
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in said
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("multigpu-")]
    assert not [path for child in children for path in memory_of(child.pid)]
