"""TensorFlow in one process and in several, and PyTorch in one, are supervised as one process a
device is: every Run ends as a Record.
"""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from multigpu.build import build_run
from multigpu.engines.tensorflow.members import device_environment
from multigpu.placements import placements
from multigpu.runner.point import Point, launch_of
from multigpu.spec.errors import Unsupported
from multigpu.spec.run import Run
from tests.further import asked
from tests.multigpu.runner.launched import PATHS, SAMPLES, WORDS, Struck, fault, strike
from tests.multigpu.runner.test_libraries import plant_site

(
    HEALTHY,
    KILLED_ONCE,
    MEMORY,
    HANGS,
    RAISES,
    LAST,
    MEMBER_KILLED,
    MEMBER_RAISES,
    ASYNCHRONOUS,
    COPIED,
    FULL,
    FAILED,
    UNRECORDED,
) = range(13)
"""By the Runs' seeds: of TensorFlow's one process, of its several, and of PyTorch's one."""


def served(seed: int, devices: int = 2, **more: Any) -> Run:
    """A TensorFlow Run of a few seconds, most of them tracing."""
    return build_run(
        **SAMPLES
        | {"placement": "exp2", "processes": "one", "devices": devices, "seed": seed}
        | more
    )


def spread(seed: int, placement: str = "multi_worker", devices: int = 2) -> Run:
    """A Run over small processes."""
    return served(
        seed, devices, placement=placement, processes="per_device", optimizer="adam", timed_steps=8
    )


def one_torch_process(seed: int, placement: str, devices: int = 2) -> Run:
    """A PyTorch Run of a second, dispatched by one thread."""
    return build_run(
        **WORDS | {"placement": placement, "processes": "one", "devices": devices, "seed": seed}
    )


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Struck:
    """One sweep of three launches, whose processes are killed, hang, and run out of memory: of the
    Runs that are asked for.
    """
    folder, seeds = tmp_path_factory.mktemp("solo"), asked(request, "seed") or range(13)
    faults = [
        fault(KILLED_ONCE, "timed", 0, "kill", once=str(folder / "struck")),
        fault(MEMORY, "timed", 0, "exhausted"),
        fault(HANGS, "warm-up", 0, "hang"),
        fault(RAISES, "build", 0, "raise"),
        fault(LAST, "build", 0, "tell", file=str(folder / "environment")),
        fault(MEMBER_KILLED, "warm-up", 1, "kill", once=str(folder / "struck too")),
        fault(MEMBER_RAISES, "build", 1, "raise"),
        fault(FULL, "timed", 0, "memory"),
        fault(FAILED, "build", 0, "raise"),
        fault(UNRECORDED, "timed", 0, "record"),
    ]
    plant_site(folder / "site", "cuda_runtime/lib/libcudart.so.12", "cuda_nvcc/bin/ptxas")
    runs = [
        *map(served, range(MEMBER_KILLED)),
        spread(MEMBER_KILLED),
        spread(MEMBER_RAISES),
        spread(ASYNCHRONOUS, "parameter_server_async"),
    ]
    placed = {COPIED: "replicated_copy", FULL: "exp2", FAILED: "exp3", UNRECORDED: "exp3"}
    runs += [one_torch_process(seed, placement) for seed, placement in placed.items()]
    more = {
        "PYTHONPATH": f"{PATHS}{os.pathsep}{folder / 'site'}",
        "LD_LIBRARY_PATH": "own",
        "XLA_FLAGS": "",
    }
    return strike(
        folder,
        [
            Point(run, timeout_s=8.0 if run.seed == HANGS else 200.0)
            for run in runs
            if run.seed in seeds
        ],
        faults,
        **more,
    )


@pytest.mark.timeout(600)
def test_every_run_has_one_record_and_no_process_is_left(sweep: Struck) -> None:
    sweep.check_whole()


@pytest.mark.parametrize("seed", [HEALTHY, KILLED_ONCE, LAST, MEMBER_KILLED, COPIED])
def test_healthy_runs_are_measured(sweep: Struck, seed: int) -> None:
    record = sweep[seed]
    assert (
        record.status == "ok"
        and (sweep.store.root.parent / "struck").exists()
        and (sweep.store.root.parent / "struck too").exists()
    ), record.reason
    measured = record.measurement
    assert (
        measured
        and measured.moved_bytes
        and measured.moved_bytes == measured.predicted_bytes
        and measured.parameter_change > 0
    )
    assert measured.step_clock == ("device" if seed == COPIED else "host")
    assert measured.replicas_agree is (True if seed in (COPIED, MEMBER_KILLED) else None)
    assert (
        len(measured.step_time_s)
        == len(measured.event_time_s)
        == len(measured.peak_memory_gib)
        == 2
    )
    # two clocks may part on a busy computer: a step lasts a few milliseconds here
    assert [flag for flag in measured.flags if not flag.startswith("clocks disagree")] == []


def test_tensorflow_is_told_where_cudas_libraries_are(sweep: Struck) -> None:
    """Its own process; what the user set comes first. The Record keeps the flag, not this machine's
    path.
    """
    folder = sweep.store.root.parent
    site = (folder / "site" / "nvidia").resolve()
    told = json.loads((folder / "environment").read_text())
    assert told["LD_LIBRARY_PATH"].split(os.pathsep)[:2] == [
        "own",
        str(site / "cuda_runtime" / "lib"),
    ]
    assert told["XLA_FLAGS"] == f"--xla_gpu_cuda_data_dir={site / 'cuda_nvcc'}"
    assert sweep[LAST].machine.environment["XLA_FLAGS"] == "--xla_gpu_cuda_data_dir=<path>"


@pytest.mark.parametrize(
    ("seed", "status", "words"),
    [
        (MEMORY, "out_of_memory", "planted"),
        pytest.param(HANGS, "timeout", "did not finish in time", marks=pytest.mark.further),
        (RAISES, "failed", "planted fault"),
        pytest.param(MEMBER_RAISES, "failed", "planted fault", marks=pytest.mark.further),
        (FULL, "out_of_memory", "planted"),
        (FAILED, "failed", "planted fault"),
        (
            UNRECORDED,
            "failed",
            "its Record could not be put together: KeyError: 'planted: a number is missing'",
        ),
    ],
)
def test_other_endings_are_statuses_with_the_first_cause_and_not_its_echoes(
    sweep: Struck, seed: int, status: str, words: str
) -> None:
    assert sweep[seed].status == status and words in sweep[seed].reason


@pytest.mark.parametrize("seed", [ASYNCHRONOUS])
def test_an_asynchronous_run_applies_each_update_once_and_learns(sweep: Struck, seed: int) -> None:
    """That 2 x 10 updates were applied is checked by the Run itself, which would have failed."""
    record = sweep[seed]
    measured = record.measurement
    assert record.status == "ok" and measured, record.reason
    assert (
        len(measured.loss) == 10
        and measured.loss[-1] < measured.loss[0]
        and measured.replicas_agree is None
    )
    assert measured.moved_bytes is None and any("not counted" in flag for flag in measured.flags)
    assert set(measured.predicted_bytes) == {"host_to_device", "device_to_host"}
    assert len(measured.peak_memory_gib) == 2 and all(measured.peak_memory_gib)


def test_points_share_a_launch_only_where_one_program_can_measure_them() -> None:
    torch, one = Point(one_torch_process(0, "exp2")), launch_of(Point(served(0)))
    assert one == launch_of(Point(served(1))) != launch_of(Point(served(0), launch=1))
    assert one != launch_of(Point(served(0, devices=3))), (
        "TensorFlow fixes its devices when it starts"
    )
    assert launch_of(torch) != one, "two frameworks do not meet in one process"
    assert launch_of(torch) == launch_of(Point(one_torch_process(0, "exp4", 3)))
    for other in ({"processes": "per_device"}, {"traced_steps": 3}):
        assert launch_of(torch) != launch_of(Point(torch.run.model_copy(update=other)))
    first, other, wider = (
        launch_of(Point(spread(seed, devices=devices)))
        for seed, devices in ((0, 2), (1, 2), (0, 3))
    )
    assert first == other != wider, "collectives of two sizes never share a process"


def test_on_gpus_one_tensorflow_process_measures_runs_of_any_size_but_for_collectives() -> None:
    """A process that sees all GPUs must start once for 1, 2 and 4 of them, unless a group of
    collectives is made in it.
    """
    for row in placements().values():
        engines = [
            engine
            for engine in row.engines
            if engine.framework == "tensorflow" and engine.processes == "one"
        ]
        fixed = {"placement": row.name, "device_type": "cuda"}
        two, four = (
            launch_of(Point(served(0).model_copy(update=fixed | {"devices": devices})))
            for devices in (2, 4)
        )
        groups = row.reduction == "all_reduce" or any(engine.strategy for engine in engines)
        assert not engines or (two == four) is not groups, row.name


@pytest.mark.parametrize(
    ("visible", "index", "seen"),
    [
        (None, 2, "2"),
        ("5,7", 1, "7"),
        ("5, GPU-8932f937", 1, "GPU-8932f937"),
        ("5,7", 2, "shows 2"),
        ("", 0, "shows 0"),
        ("5,7", -1, "-1"),
    ],
)
def test_each_process_sees_its_own_gpu(
    visible: str | None, index: int, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    if seen.startswith("shows"):
        with pytest.raises(
            Unsupported, match=f"{seen} GPUs and replica {index} needs one of its own"
        ):
            device_environment("cuda", index)
    else:
        assert device_environment("cuda", index) == {"CUDA_VISIBLE_DEVICES": seen}
    assert device_environment("cpu", 0) == {"CUDA_VISIBLE_DEVICES": "-1"}


STARTER = """
import json, socket, sys
from multigpu.engines.tensorflow.members import free_ports, start_member
from multigpu.machine.line import Line
ours, theirs = socket.socketpair()
workers = [f"127.0.0.1:{port}" for port in free_ports(2)]
task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": 0}}
member = start_member(task, "cpu", -1, [str(theirs.fileno())], [theirs.fileno()])
line = Line(ours.detach())
line.send({"run": sys.argv[1], "strategy": "multi_worker", "threads": 1, "role": "", "rank": 0})
line.send("built")
print(member.pid)
"""


def test_a_member_whose_starter_is_gone_before_it_is_ready_ends(tmp_path: Path) -> None:
    """It finds its orders all the same, and would wait for the other members without end."""
    command = [sys.executable, "-c", STARTER, spread(0).model_dump_json(exclude_defaults=True)]
    said = tmp_path / "member"  # a pipe would stay open with the member
    with said.open("w") as file:
        subprocess.run(command, env=os.environ | {"PYTHONPATH": PATHS}, stdout=file, check=True)
    with suppress(psutil.NoSuchProcess):
        member = psutil.Process(int(said.read_text()))
        try:
            member.wait(60)
        except psutil.TimeoutExpired:
            member.kill()
            raise
