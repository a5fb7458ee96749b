"""Which Runs may share a machine, where their lanes are, and how points are dealt out to them."""

import json
from collections import Counter
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multigpu.analysis.interference import interference_table, verdict_of
from multigpu.analysis.statistics import mean_interval
from multigpu.measure import machine
from multigpu.measure.lane import LANE_VARIABLE, Lane, in_order, places, this_lane, visible_gpus
from multigpu.measure.lanes import (
    deal,
    lane_count,
    lane_environment,
    lanes_of,
    may_share,
    places_here,
    sharing_words,
    undisturbed,
    units,
)
from multigpu.measure.point import Point, launch_of
from multigpu.measure.sweep import launch_environment
from multigpu.paths import INTERFERENCE
from multigpu.placements import placements
from multigpu.placements.stage_split import SPLIT
from multigpu.record import RecordStore
from multigpu.run import Run, build_run
from tests.factory import make_machine
from tests.refusals import refused

FOUR = make_machine(4)
JOBS: tuple[dict[str, Any], ...] = (
    {"workload": "nmt", "model": "nmt_tiny", "batch_size": 8, "sequence_length": 5},
    {"workload": "cnn", "model": "resnet_tiny", "batch_size": 8},
    {"workload": "stacks", "model": "mlp_tiny", "batch_size": 8},
    {"workload": "deepconn", "model": "deepconn_tiny", "batch_size": 8},
)


def every_kind(run: Run) -> bool:
    return True


def every_run(name: str, device_type: str, devices: int) -> list[Run]:
    """This placement in every engine and form of execution in which some job can be built."""
    row = {**placements(), **SPLIT}[name]
    found = []
    for job in JOBS:
        for engine in row.engines:
            for execution in engine.executions:
                how = {"framework": engine.framework, "processes": engine.processes, "execution": execution}
                more = {"scaling": "strong"} if name in SPLIT else {}
                more |= {"stage_devices": "0" * 9} if name == "searched" else {}
                try:
                    found.append(build_run(placement=name, device_type=device_type, devices=devices, **job, **how, **more))
                except ValueError:
                    continue
    return found


@pytest.mark.parametrize("device_type", ["cuda", "cpu"])
@pytest.mark.parametrize("name", [*placements(), *SPLIT])
def test_no_placement_with_a_part_on_the_host_shares(name: str, device_type: str) -> None:
    row = {**placements(), **SPLIT}[name]
    parts = {row.variables, row.embeddings, row.lookup, row.merge, row.slots, row.update}
    runs = [run for devices in (1, 2) for run in every_run(name, device_type, devices)]
    assert runs or name == "searched", "its digits are as many as the model's stages"
    for run in runs:
        reason = may_share(run, FOUR, 2, every_kind)
        if "host" in parts:
            assert reason == "variables, merges or updates on the host"
        elif (run.framework, run.processes) == ("tensorflow", "per_device"):
            assert reason == "TensorFlow's processes talk through the host"
        else:
            assert reason is None
        if device_type == "cpu":
            assert may_share(run, FOUR), "processes on CPUs need all of them"


NMT: dict[str, Any] = {"workload": "nmt", "model": "nmt_tiny", "placement": "ddp", "batch_size": 4, "sequence_length": 5}
CNN: dict[str, Any] = {"workload": "cnn", "model": "resnet_tiny", "placement": "ddp", "batch_size": 4}


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
        (NMT | {"devices": 4}, "no room"),
        (NMT | {"devices": 2}, None),
        (NMT, None),
        (NMT | {"inputs": "lengths_000", "sequence_length": None}, None),
        (CNN | {"framework": "tensorflow", "processes": "one", "execution": "graph", "placement": "exp4"}, None),
    ],
)
def test_what_needs_the_machine_is_alone(fields: dict[str, Any], words: str | None) -> None:
    reason = may_share(build_run(**fields), FOUR, None, every_kind)
    assert (words in reason) if words and reason else reason == words


def test_hosts_and_unproven_kinds_are_alone() -> None:
    run = build_run(**NMT)
    assert may_share(run, FOUR.model_copy(update={"hosts": 2})) == "several hosts are one machine"
    assert "not shown" in (may_share(run, FOUR, kinds=lambda run: run.workload == "cnn") or "")
    everybody = [lanes_of(build_run(**NMT | {"devices": n}), make_machine(8), every_kind) for n in (1, 2, 3, 4, 5, 8)]
    assert everybody == [8, 4, 2, 2, 1, 1]
    assert lanes_of(build_run(**NMT | {"placement": "exp2"}), FOUR) == 1
    assert lane_count(run, FOUR, forced=3) == 3
    graph = build_run(**NMT | {"execution": "captured"})
    said = sharing_words([Point(graph), Point(graph, 1), Point(run), Point(build_run(**NMT | {"devices": 4}))], FOUR)
    assert said == (
        "2 of 4 measurements share the machine, each in a lane of its own; alone: 1 (a kind not shown to be undisturbed), "
        "1 (no room for two lanes)"
    )


def test_the_committed_check_shows_what_may_share() -> None:
    """The kinds that share by default are those, and only those, that the Records of the check allow."""
    found, shown = interference_table(RecordStore(INTERFERENCE)), set()
    for key, own in found.groupby(["machine", "framework", "execution", "devices", "lanes"]):
        low, high = np.exp(mean_interval(np.log(own["ratio"]))) if len(own) > 1 else own[["low", "high"]].iloc[0]
        _, framework, execution, devices, _ = key
        run = build_run(**CNN | {"framework": framework, "execution": execution, "devices": devices})
        assert undisturbed(run) is (str(verdict_of(low, high)) == "may share"), (key, low, high)
        shown.add((framework, execution.removeprefix("compiled_"), devices))
    assert shown
    for framework, execution, devices in product(("torch",), ("eager", "compiled", "captured", "compiled_captured"), (1, 2, 4)):
        run = build_run(**CNN | {"framework": framework, "execution": execution, "devices": devices})
        assert not undisturbed(run) or (framework, execution.removeprefix("compiled_"), devices) in shown


# --- where lanes are ---------------------------------------------------------------------------------------------------------


def test_lanes_are_adjacent_gpus_and_equal_shares_of_the_cores() -> None:
    found = places(2, 2, ["0", "1", "2", "3"], range(9))
    assert [(place.gpus, place.visible, place.cores) for place in found] == [
        ((0, 1), "0,1", (0, 1, 2, 3)),
        ((2, 3), "2,3", (4, 5, 6, 7)),
    ]
    assert [str(place) for place in found + places(2, 1, None, [3, 5])] == ["GPUs 0, 1", "GPUs 2, 3", "cores 3", "cores 5"]
    assert found[1].lane(1) == Lane(gpus=[2, 3], cores=4, neighbours=1)
    refused("3 lanes of 2 GPUs need 6 and this machine has 4", places, 3, 2, ["0", "1", "2", "3"], range(9))
    refused("3 lanes cannot share 2 cores", places, 3, 1, None, range(2))


def test_a_lane_of_visible_gpus_is_named_as_they_are() -> None:
    assert visible_gpus(None, 4) == ["0", "1", "2", "3"]
    assert visible_gpus("3, 1", 4) == ["3", "1"]
    assert visible_gpus("", 4) == visible_gpus("-1", 4) == []
    assert [(place.gpus, place.visible) for place in places(2, 1, visible_gpus("5,2", 8), range(2))] == [((5,), "5"), ((2,), "2")]
    by_uuid = places(2, 1, visible_gpus("GPU-a,GPU-b", 8), range(2))
    assert [(place.gpus, place.visible) for place in by_uuid] == [((0,), "GPU-a"), ((1,), "GPU-b")]


def test_the_parents_gpus_are_divided_and_a_lane_knows_the_whole_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,4,6,5")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("multigpu.measure.lanes.gpu_count", lambda: 4)
    monkeypatch.setattr("multigpu.measure.lanes.this_machine", lambda: FOUR)
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
        assert [machine.threads_for(*asked) for asked in ((1,), (2,), (1, 2), (1, 100))] == [4, 2, 2, 4]
    finally:
        for known in (machine.this_machine, machine.this_host):  # what they found with a planted number of cores
            known.cache_clear()


def eight_gpus() -> SimpleNamespace:
    """NVML of eight GPUs whose handles are their numbers; one differs from the next in the last letter before the first dash."""
    return SimpleNamespace(
        NVMLError=RuntimeError,
        NVML_CLOCK_SM=0,
        NVML_CLOCK_MEM=1,
        NVML_TEMPERATURE_GPU=0,
        nvmlDeviceGetCount=lambda: 8,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda handle: f"GPU-8932f93{handle}-1111-2222-3333-444444444444",
        nvmlDeviceGetName=lambda handle: f"Planted {handle}",
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=(handle + 1) * 2**30),
        nvmlDeviceGetClockInfo=lambda handle, kind: 1000 + handle,
        nvmlDeviceGetPowerUsage=lambda handle: 1000 * handle,
        nvmlDeviceGetTemperature=lambda handle, kind: 30 + handle,
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: 1000 * handle,
        nvmlSystemGetDriverVersion=lambda: "570.0",
    )


@pytest.mark.parametrize(
    ("visible", "gpu"),
    [
        (None, 1),
        ("6,5", 5),
        ("2, 3", 3),
        (" 2 ,3 ", 3),
        ("GPU-8932f936,GPU-8932f935", 5),
        ("GPU-8932f936-1111-2222-3333-444444444444, GPU-8932F935-1111-2222-3333-444444444444", 5),
        ("GPU-8932f936,GPU-8932", None),
        ("GPU-8932f936,GPU-ffff", None),
        ("6,MIG-8932f935-1111-2222-3333-444444444444", None),
        ("6,9", None),
        ("6", None),
    ],
    ids=["unset", "numbers", "a blank", "blanks", "short UUIDs", "whole UUIDs", "of all", "of none", "MIG", "not there", "one"],
)
def test_a_lane_reads_the_meters_of_its_own_gpus(visible: str | None, gpu: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second GPU that the process may use; where its name does not say which it is, nothing is told, and not another one's."""
    monkeypatch.setattr(machine, "find_nvml", eight_gpus)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert machine.gpu_handle(1) == gpu
    state, energy_j = machine.device_state(1), machine.total_energy_j(1)
    assert energy_j == gpu and (state is None) == (gpu is None)
    assert state is None or (state.sm_clock_mhz, state.power_w, state.temperature_c) == (1000 + gpu, gpu, 30 + gpu)


def test_a_gpu_that_nvml_cannot_find_lends_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_nvml", eight_gpus)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-ffff")
    found = machine.this_host.__wrapped__()
    assert found.gpus == ["Planted 2", "unknown GPU"] and found.gpu_memory_gib == [3.0, 0.0]
    assert found.name == "2x-planted-2"


def test_without_gpus_nothing_is_said_of_them_and_chosen_threads_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    told = launch_environment() | lane_environment(places(2, 1, None, range(4))[0], 1)
    assert "CUDA_VISIBLE_DEVICES" not in told and told["OMP_NUM_THREADS"] == "3"
    assert json.loads(told[LANE_VARIABLE])["lane"] == {"gpus": [], "cores": 2, "neighbours": 1}


def test_hardware_threads_of_one_core_stay_in_one_lane(tmp_path: Path) -> None:
    """Two sockets of two cores of two threads, numbered as Linux does: 0-1 and 4-5 are the first socket."""
    for core in range(8):
        folder = tmp_path / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{core % 4 // 2}\n")
        (folder / "thread_siblings_list").write_text(f"{core % 4},{core % 4 + 4}\n")
    assert in_order(range(8), tmp_path) == [0, 4, 1, 5, 2, 6, 3, 7]
    assert in_order({2, 0, 1}, tmp_path / "none") == [0, 1, 2]


# --- dealing -----------------------------------------------------------------------------------------------------------------

point = st.builds(
    lambda seed, batch, devices, repeat, launch, framework: Point(
        build_run(
            **NMT
            | {"placement": "exp4", "seed": seed, "batch_size": batch, "devices": devices}
            | ({"framework": "tensorflow", "processes": "one", "execution": "graph"} if framework else {})
        ),
        repeat,
        launch,
    ),
    st.integers(0, 4),
    st.sampled_from([4, 8, 16]),
    st.integers(1, 2),
    st.integers(0, 2),
    st.integers(0, 2),
    st.booleans(),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(point, max_size=40, unique_by=lambda p: (p.run.digest, p.repeat)), st.integers(1, 5), st.integers(0, 9))
def test_every_point_is_dealt_once_and_ladders_and_repeats_stay_together(points: list[Point], lanes: int, seed: int) -> None:
    hands = deal(points, lanes, lambda point: 1.0 + (point.run.seed * 7 + seed) % 5)
    assert len(hands) == lanes
    assert Counter(id(point) for hand in hands for point in hand) == Counter(id(point) for point in points)
    for unit in units(points):
        assert len({launch_of(point) for point in unit}) == 1
        (holder,) = [hand for hand in hands if any(one is unit[0] for one in hand)]
        assert all(any(one is point for one in holder) for point in unit)
    where = {}
    for number, hand in enumerate(hands):
        for one in hand:
            ladder = (one.run.model_copy(update={"batch_size": 1}).digest, one.launch)
            assert where.setdefault(ladder, number) == number


def test_lanes_end_at_about_the_same_time() -> None:
    points = [Point(build_run(**NMT | {"seed": seed})) for seed in range(40)]
    cost = {point.run.digest: 1.0 + index % 7 for index, point in enumerate(points)}
    hands = deal(points, 4, lambda point: cost[point.run.digest])
    ends = [sum(cost[point.run.digest] for point in hand) for hand in hands]
    assert max(ends) - min(ends) <= 2 and sum(ends) == sum(cost.values())
    two = [Point(build_run(**NMT | {"seed": seed}), launch=launch, repeat=launch) for seed in range(8) for launch in range(2)]
    launches = [{point.launch for point in hand} for hand in deal(two, 2, start_s=10.0)]
    assert launches == [{0}, {1}], "a lane that starts one launch only is done earlier than two that start both"
