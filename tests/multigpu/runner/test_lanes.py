"""Which Runs may share a machine, where their lanes are, how points are dealt out to them; and
lanes of real processes side by side.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multigpu.build import build_run
from multigpu.machine import machine
from multigpu.machine.lane import LANE_VARIABLE, Lane, in_order, places, this_lane, visible_gpus
from multigpu.machine.machine import this_machine
from multigpu.placements import placements
from multigpu.placements.stage_split import SPLIT
from multigpu.records.record import RecordStore
from multigpu.runner.lanes import (
    deal,
    lane_environment,
    lanes_of,
    may_share,
    measure_shared,
    places_here,
    sharing_words,
    units,
)
from multigpu.runner.launch_environment import launch_environment
from multigpu.runner.point import Point, launch_of
from multigpu.runner.sweep import measure
from multigpu.spec.run import Run
from tests.factory import make_machine
from tests.multigpu.runner.launched import (
    PATHS,
    SWEEP,
    WORDS,
    Struck,
    descendants,
    memory_of,
    strike,
    tiny,
)
from tests.patience import PATIENCE_S
from tests.refusals import refused

FOUR = make_machine(4)
NMT: dict[str, Any] = {
    "workload": "nmt",
    "model": "nmt_tiny",
    "placement": "ddp",
    "batch_size": 8,
    "sequence_length": 5,
}
CNN: dict[str, Any] = {
    "workload": "cnn",
    "model": "resnet_tiny",
    "placement": "ddp",
    "batch_size": 8,
}


def every_kind(run: Run) -> bool:
    return True


@pytest.mark.parametrize("name", [*placements(), *SPLIT])
def test_no_placement_with_a_part_on_the_host_shares(name: str) -> None:
    row = {**placements(), **SPLIT}[name]
    on_host = "host" in (
        row.variables,
        row.embeddings,
        row.lookup,
        row.reduction,
        row.slots,
        row.update,
    )
    for engine, device_type, devices in product(row.engines, ("cuda", "cpu"), (1, 2)):
        how = {
            "framework": engine.framework,
            "processes": engine.processes,
            "device_type": device_type,
            "devices": devices,
        }
        run = build_run(**NMT).model_copy(update=how | {"placement": name})
        reason = may_share(run, FOUR, 2, every_kind)
        if on_host:
            assert reason == "variables, reduces or updates on the host"
        elif (run.framework, run.processes) == ("tensorflow", "per_device"):
            assert reason == "TensorFlow's processes talk through the host"
        else:
            assert reason is None
        if device_type == "cpu":
            assert may_share(run, FOUR), "processes on CPUs need all of them"


IN_ONE_GRAPH = {"framework": "tensorflow", "processes": "one", "execution": "graph"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (CNN | {"inputs": "synthetic_host"}, "inputs from the host"),
        (CNN | {"inputs": "digits"}, "inputs from the host"),
        (NMT | {"inputs": "catalogs", "sequence_length": None}, "inputs from the host"),
        (NMT | {"energy_window_s": 10}, "energy"),
        (NMT | {"host_cores": 2}, "host_cores"),
        (NMT | {"device_ids": "1"}, "device_ids"),
        (NMT | {"devices": 2, "peer_access": "off"}, "peer_access"),
        (NMT | {"traced_steps": 1}, "traced"),
        (NMT | {"devices": 3}, "no room"),
        (NMT | {"devices": 2}, None),
        (NMT | {"inputs": "lengths_000", "sequence_length": None}, None),
        (CNN | IN_ONE_GRAPH | {"placement": "exp4"}, None),
    ],
)
def test_what_needs_the_machine_is_alone(fields: dict[str, Any], words: str | None) -> None:
    reason = may_share(build_run(**fields), FOUR, None, every_kind)
    assert (words in reason) if words and reason else reason == words


def test_hosts_and_unproven_kinds_are_alone() -> None:
    run, graph = build_run(**NMT), build_run(**NMT | {"execution": "captured"})
    assert may_share(run, FOUR.model_copy(update={"hosts": 2})) == "several hosts are one machine"
    everybody = [
        lanes_of(build_run(**NMT | {"devices": n}), make_machine(8), every_kind)
        for n in (1, 2, 3, 4, 5, 8)
    ]
    assert everybody == [8, 4, 2, 2, 1, 1] and lanes_of(run, FOUR) == 1
    said = sharing_words(
        [Point(graph), Point(graph, 1), Point(run), Point(build_run(**NMT | {"devices": 4}))], FOUR
    )
    assert (
        said
        == "2 of 4 measurements share the machine, each in a lane of its own; alone: 1 (a kind not"
        " shown to be undisturbed), 1 (no room for two lanes)"
    )


@pytest.mark.parametrize(
    ("given", "found", "words"),
    [
        (
            (2, 2, visible_gpus(None, 4), range(9)),
            [((0, 1), "0,1", (0, 1, 2, 3)), ((2, 3), "2,3", (4, 5, 6, 7))],
            ["GPUs 0, 1", "GPUs 2, 3"],
        ),
        ((2, 1, None, [3, 5]), [((), None, (3,)), ((), None, (5,))], ["cores 3", "cores 5"]),
        (
            (2, 1, visible_gpus("5, 2", 8), range(2)),
            [((5,), "5", (0,)), ((2,), "2", (1,))],
            ["GPU 5", "GPU 2"],
        ),
        (
            (2, 1, visible_gpus("GPU-a,GPU-b", 8), range(2)),
            [((0,), "GPU-a", (0,)), ((1,), "GPU-b", (1,))],
            ["GPU 0", "GPU 1"],
        ),
    ],
)
def test_lanes_are_adjacent_gpus_by_their_names_and_equal_shares_of_the_cores(
    given: Any, found: Any, words: list[str]
) -> None:
    made = places(*given)
    assert [(place.gpus, place.visible, place.cores) for place in made] == found and list(
        map(str, made)
    ) == words
    assert visible_gpus("", 4) == visible_gpus("-1", 4) == []
    refused(
        "3 lanes of 2 GPUs need 6 and this machine has 4",
        places,
        3,
        2,
        ["0", "1", "2", "3"],
        range(9),
    )
    refused("3 lanes cannot share 2 cores", places, 3, 1, None, range(2))


def test_the_parents_gpus_are_divided_and_a_lane_knows_the_whole_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,4,6,5")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("multigpu.runner.lanes.gpu_count", lambda: 4)
    monkeypatch.setattr("multigpu.runner.lanes.this_machine", lambda: FOUR)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    _, second = places_here(2, "cuda", 2)
    told = launch_environment() | lane_environment(second, 1)
    assert (told["CUDA_VISIBLE_DEVICES"], told["OMP_NUM_THREADS"]) == ("6,5", "4")
    assert told["PYTHONPATH"].split(":")[0].endswith("src")
    for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", LANE_VARIABLE):
        monkeypatch.setenv(name, told[name])
    machine.this_machine.cache_clear()
    try:
        here = machine.this_machine()
        assert here.model_copy(update={"environment": {}}) == FOUR
        assert here.environment["CUDA_VISIBLE_DEVICES"] == "6,5"
        assert this_lane() == Lane(gpus=[6, 5], cores=4, neighbours=1)
        assert [
            machine.threads_for(*asked) for asked in ((1,), (2,), (9,), (1, 2), (2, 3), (1, 100))
        ] == [4, 2, 1, 2, 1, 4]
    finally:
        # what they found with a planted number of cores
        for known in (machine.this_machine, machine.this_host):
            known.cache_clear()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    without = launch_environment() | lane_environment(places(2, 1, None, range(4))[0], 1)
    assert "CUDA_VISIBLE_DEVICES" not in without and without["OMP_NUM_THREADS"] == "4", (
        "threads that were chosen stay"
    )


def test_hardware_threads_of_one_core_stay_in_one_lane(tmp_path: Path) -> None:
    """Two sockets of two cores of two threads, numbered as Linux does: 0-1 and 4-5 are the first
    socket.
    """
    for core in range(8):
        folder = tmp_path / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{core % 4 // 2}\n")
        (folder / "thread_siblings_list").write_text(f"{core % 4},{core % 4 + 4}\n")
    assert in_order(range(8), tmp_path) == [0, 4, 1, 5, 2, 6, 3, 7]
    assert in_order({2, 0, 1}, tmp_path / "none") == [0, 1, 2]


ANY_RUN = st.builds(
    lambda how, **fields: build_run(**NMT | fields | how),
    placement=st.just("exp4"),
    how=st.sampled_from(
        [{}, {"framework": "tensorflow", "processes": "one", "execution": "graph"}]
    ),
    seed=st.integers(0, 4),
    batch_size=st.sampled_from([4, 8, 16]),
    devices=st.integers(1, 2),
)
POINTS = st.lists(
    st.builds(Point, ANY_RUN, st.integers(0, 2), st.integers(0, 2)),
    max_size=40,
    unique_by=lambda point: (point.run.digest, point.repeat),
)


@settings(deadline=None, max_examples=30)
@given(POINTS, st.integers(1, 5), st.integers(0, 9))
def test_every_point_is_dealt_once_and_ladders_and_repeats_stay_together(
    points: list[Point], lanes: int, seed: int
) -> None:
    hands = deal(points, lanes, lambda point: 1.0 + (point.run.seed * 7 + seed) % 5)
    assert len(hands) == lanes
    assert Counter(id(point) for hand in hands for point in hand) == Counter(
        id(point) for point in points
    )
    holder = {id(point): number for number, hand in enumerate(hands) for point in hand}
    for unit in units(points):
        assert (
            len({launch_of(point) for point in unit})
            == len({holder[id(point)] for point in unit})
            == 1
        )
    where: dict[Any, set[int]] = defaultdict(set)
    for point in points:
        where[point.run.model_copy(update={"batch_size": 1}).digest, point.launch].add(
            holder[id(point)]
        )
    assert all(len(own) == 1 for own in where.values())


def test_lanes_end_at_about_the_same_time() -> None:
    points = [Point(tiny(seed)) for seed in range(40)]
    hands = deal(points, 4, lambda point: 1.0 + point.run.seed % 7)
    ends = [sum(1.0 + point.run.seed % 7 for point in hand) for hand in hands]
    assert max(ends) - min(ends) <= 2
    two = [
        Point(tiny(seed), launch=launch, repeat=launch) for seed in range(8) for launch in range(2)
    ]
    launches = [{point.launch for point in hand} for hand in deal(two, 2, start_s=10.0)]
    assert launches == [{0}, {1}], (
        "a lane that starts one launch only is done earlier than two that start both"
    )


CORES = in_order(os.sched_getaffinity(0))
HALF, CONFINED, ON_HOST = len(CORES) // 2, 4, 5
needs_two_cores = pytest.mark.skipif(len(CORES) < 2, reason="one core makes one lane")


def look(stage: str, run: Run, rank: int) -> None:
    """A launch's hook: on which cores and in which lane this process is, by Run and rank; and a
    fault that takes its lane with it.
    """
    if stage == "build":
        lane = this_lane()
        seen = {
            "cores": sorted(os.sched_getaffinity(0)),
            "lane": lane.model_dump() if lane else None,
            "omp": os.environ["OMP_NUM_THREADS"],
        }
        Path(os.environ["LANES_SEEN"], f"{run.seed}.{rank}").write_text(json.dumps(seen))
    if run.seed == int(os.environ.get("LANES_KILLED", "-1")) and stage == "timed":
        for parent in psutil.Process().parents():
            if "multigpu.runner.agent" in parent.cmdline():
                parent.send_signal(signal.SIGKILL)
        time.sleep(60)  # until this process goes with its parents


LOOK = "tests.multigpu.runner.test_lanes:look"
# two processes each, and repeats; then what keeps variables on the host or is kept to a core
MIXED = [
    Point(run, repeat)
    for run in (*map(tiny, range(3)), Run(placement="exp4", devices=2, seed=3, **WORDS))
    for repeat in range(2)
]
MIXED += [
    Point(tiny(ON_HOST, placement="exp2")),
    Point(Run(placement="exp4", processes="one", host_cores=1, seed=CONFINED, **WORDS)),
]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[Struck, dict[str, Any]]:
    """Two lanes on the halves of this machine's cores, then the Runs that are by themselves; what
    `look` saw by seed and rank.
    """
    seen = tmp_path_factory.mktemp("seen")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMP_NUM_THREADS", raising=False)
        lanes, folder = partial(measure_shared, lanes=2), tmp_path_factory.mktemp("lanes")
        done = strike(folder, MIXED, [], lanes, hook=LOOK, LANES_SEEN=str(seen))
    return done, {path.name: json.loads(path.read_text()) for path in seen.iterdir()}


@needs_two_cores
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_lanes_leave_records_of_the_whole_machine_and_their_launches_are_of_one_lane(
    sweep: tuple[Struck, dict[str, Any]],
) -> None:
    done, seen = sweep
    lane = Lane(gpus=[], cores=HALF, neighbours=1)
    found = {record.run.seed: (record.status, record.lane) for record in done.store}
    assert found == dict.fromkeys(range(4), ("ok", lane)) | dict.fromkeys(
        (CONFINED, ON_HOST), ("ok", None)
    )
    assert (done.summary.statuses, done.summary.reused, done.summary.troubles) == (
        {"ok": 10},
        0,
        [],
    )
    places: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for record in done.store:
        assert record.machine.model_copy(update={"environment": {}}) == this_machine().model_copy(
            update={"environment": {}}
        )
        places[record.launch_id].add(tuple(seen[f"{record.run.seed}.0"]["cores"]))
        assert record.run.seed != CONFINED or (
            record.measurement and record.measurement.host_threads == 1
        )
    assert [len(own) for own in places.values()] == [1] * 4
    assert not done.left and not memory_of(os.getpid())
    for again in (
        measure(MIXED, done.store, progress=False),
        measure_shared(MIXED, done.store, progress=False, lanes=2),
    ):
        assert (sum(again.statuses.values()), again.reused) == (0, 10)


@needs_two_cores
def test_processes_keep_to_the_cores_of_their_lane_or_run(
    sweep: tuple[Struck, dict[str, Any]],
) -> None:
    seen = sweep[1]
    assert len(seen) == 11, "two processes of each Run but one were looked at"
    assert len(seen.pop(f"{CONFINED}.0")["cores"]) == 1
    alone, lanes = (
        [one for name, one in seen.items() if name.startswith(f"{ON_HOST}.") is own]
        for own in (True, False)
    )
    assert all(one["cores"] == sorted(CORES) and one["lane"] is None for one in alone)
    assert {tuple(one["cores"]) for one in lanes} == {
        tuple(sorted(CORES[:HALF])),
        tuple(sorted(CORES[HALF : 2 * HALF])),
    }
    assert {one["omp"] for one in lanes} == {str(HALF)}


@needs_two_cores
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_lane_is_named_and_the_other_finishes_on_its_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of TensorFlow where it is installed, whose one process keeps to its lane as PyTorch's do."""
    (tmp_path / "seen").mkdir()
    for name, value in {
        "LANES_SEEN": str(tmp_path / "seen"),
        "PYTHONPATH": PATHS,
        "LANES_KILLED": "0",
    }.items():
        monkeypatch.setenv(name, value)
    store, before = RecordStore(tmp_path / "runs"), set(descendants())
    how = (
        {"framework": "tensorflow", "execution": "graph"}
        if importlib.util.find_spec("tensorflow")
        else {}
    )
    fields = WORDS | {"placement": "exp4", "processes": "one"} | how
    points = [Point(Run(seed=seed, **fields), repeat) for seed, repeat in ((0, 0), (1, 0), (1, 1))]
    with pytest.raises(
        RuntimeError, match=r"^lane \d \(cores [^)]+\): the launcher ended with -9 "
    ) as told:
        measure_shared(points, store, progress=False, hook=LOOK, lanes=2)
    assert str(told.value).count("ended with") == str(told.value).count("goes on from there") == 1
    assert sorted((record.run.seed, record.repeat, record.status) for record in store) == [
        (1, 0, "ok"),
        (1, 1, "ok"),
    ]
    assert all(record.lane and record.lane.neighbours == 1 for record in store)
    assert {record.measurement.host_threads for record in store if record.measurement} == {HALF}
    seen = [json.loads(path.read_text())["cores"] for path in (tmp_path / "seen").iterdir()]
    assert sorted(map(len, seen)) == [HALF] * 2 and seen[0] != seen[1]
    deadline = (
        time.monotonic() + PATIENCE_S
    )  # orphans are killed by the kernel, which may take a moment
    while set(descendants()) - before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not set(descendants()) - before
    monkeypatch.delenv("LANES_KILLED")
    done = measure_shared(points, store, progress=False, hook=LOOK, lanes=2)
    assert (sum(done.statuses.values()), done.reused) == (1, 2) and len(list(store)) == 3


@needs_two_cores
@pytest.mark.timeout(300)
def test_ctrl_c_ends_all_lanes_and_leaves_nothing(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": PATHS, "TMPDIR": str(tmp_path)}
    points = (
        "[Point(tiny(seed, 1).model_copy(update={'timed_steps': 100000}), timeout_s=200) for seed"
        " in range(2)]"
    )
    code = f"{SWEEP}measure_shared({points}, store, progress=False, lanes=2)"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    children: list[psutil.Process] = []
    deadline = time.monotonic() + PATIENCE_S
    # two lanes' launchers and their workers
    while len(children) < 4 and time.monotonic() < deadline:
        time.sleep(0.2)
        children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 4
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert "KeyboardInterrupt" in said
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert (
        not alive
        and not list(tmp_path.glob("multigpu-*"))
        and not [path for child in children for path in memory_of(child.pid)]
    )
