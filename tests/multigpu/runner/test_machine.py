"""One sweep a machine, what a process knows of its cores and GPUs, and what disturbs a Run from
outside: it is seen and measured again.
"""

import os
import signal
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from multigpu.machine import machine, surroundings
from multigpu.machine.lock import (
    LOCK_HOLDER_VARIABLE,
    LOCK_VARIABLE,
    holder,
    machine_lock,
    memory_folder,
)
from multigpu.machine.surroundings import SHARE_VARIABLE, GpuLook, Surroundings, SurroundingsWatch
from multigpu.records.record import RecordStore
from multigpu.runner.point import Point
from multigpu.runner.sweep import measure
from tests.multigpu.runner.launched import PATHS, tiny
from tests.refusals import refused

HOLD = """
import time
from multigpu.machine.lock import machine_lock
with machine_lock():
    print("mine", flush=True)
    time.sleep(float(%r))
"""


@contextmanager
def started(program: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process of its own, which ends with this."""
    command, environment = [sys.executable, "-c", program], os.environ | {"PYTHONPATH": PATHS}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(LOCK_VARIABLE, str(tmp_path / "lock"))
    monkeypatch.delenv(LOCK_HOLDER_VARIABLE, raising=False)
    return tmp_path / "lock"


def test_a_second_sweep_waits_and_says_for_whom_even_one_that_is_killed(
    lock: Path, tmp_path: Path
) -> None:
    with started(HOLD % 600) as first:
        assert first.stdout and first.stdout.readline() == "mine\n"
        assert not measure([], RecordStore(tmp_path / "runs"), progress=False).statuses, (
            "who measures nothing waits for nobody"
        )
        with started(HOLD % 0) as second:
            assert second.stderr and second.stdout
            said = second.stderr.readline()
            assert (
                f"another sweep measures on this machine: process {first.pid} (-c) since " in said
                and "for 0 minutes" in said
            )
            time.sleep(0.5)
            assert second.poll() is None
            first.send_signal(signal.SIGKILL)
            assert second.stdout.readline() == "mine\n" and second.wait(20) == 0


def test_what_a_sweep_starts_has_its_turn_and_another_gets_it_afterwards(lock: Path) -> None:
    with machine_lock(), machine_lock(), started(HOLD % 0) as child:
        assert child.wait(20) == 0
    assert LOCK_HOLDER_VARIABLE not in os.environ and lock.read_text() == ""
    with started(HOLD % 0) as other:
        assert other.wait(20) == 0


@pytest.mark.parametrize("kind", ["text", "folder", "pipe", "nowhere"])
def test_a_file_that_is_no_lock_is_refused_and_stays_as_it_was(lock: Path, kind: str) -> None:
    if kind == "text":
        lock.write_text("my thesis")
    elif kind == "folder":
        lock.mkdir()
    elif kind == "pipe":
        os.mkfifo(lock)
    else:
        os.environ[LOCK_VARIABLE] = f"{lock}/nowhere/lock"
    refused(r" cannot be this machine's lock: .*; give MULTIGPU_LOCK the name", enter, machine_lock)
    assert kind != "text" or lock.read_text() == "my thesis"
    assert LOCK_HOLDER_VARIABLE not in os.environ


def enter(manager: Callable[[], AbstractContextManager[None]]) -> None:
    with manager():
        pass


def test_a_lock_that_has_no_room_for_its_holders_name_is_held_all_the_same(
    lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwrite", mock.Mock(side_effect=OSError(28, "No space left on device")))
    with machine_lock():
        assert lock.read_text() == ""


def test_a_lock_that_says_nothing_useful_is_no_failure() -> None:
    texts = ["", "{", "[]", '{"pid": 1}', '{"pid": 1, "command": "x", "since": 1e300}']
    assert set(map(holder, texts)) == {"a process that did not say which"}


OTHERS = """
import os, time
os.getpid = lambda: 2**22 + 5  # as in another container: no process here has this number
from multigpu.machine.lock import memory_folder
with memory_folder() as folder:
    print(folder, flush=True)
    time.sleep(600)
"""


def test_the_folder_of_a_launch_in_another_container_stays_until_that_ends() -> None:
    with started(OTHERS) as other:
        assert other.stdout
        theirs = Path(other.stdout.readline().strip())
        with memory_folder() as ours:
            assert theirs.is_dir() and ours.is_dir() and theirs.parent == ours.parent
        other.kill()
        other.wait()
        with memory_folder():
            assert not theirs.exists() and not ours.exists()


@pytest.mark.timeout(300)
def test_a_disturbed_run_is_flagged_and_measured_again_and_both_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SHARE_VARIABLE, "0.1")
    monkeypatch.setenv("PYTHONPATH", PATHS)
    store = RecordStore(tmp_path)
    with started("while True: pass"):
        bar = mock.Mock()
        summary = measure([Point(tiny(0), timeout_s=100.0)], store, bar=bar)
    assert "disturbed: others used" in bar.set_postfix_str.call_args_list[0].args[0], "at once"
    (record,) = store
    first, second = map(store.read, store.attempts(record.machine.name, record.key))
    assert (first.attempt, second.attempt) == (0, 1) and first.launch_id != second.launch_id
    assert first.measurement and any(
        flag.startswith("disturbed: others used ") for flag in first.measurement.flags
    )
    assert first.surroundings and first.surroundings.during_cores > 0.1 * first.surroundings.cores
    assert second.surroundings and record.attempt == 1, "read is what was measured last"
    (note,) = summary.notes
    assert note.startswith("measured again: ") and "others used" in note and note in str(summary)
    assert not summary.troubles


Times = namedtuple("Times", "user idle iowait guest guest_nice")  # guest counts within user


def test_a_launch_does_not_disturb_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 6 s that two cores were busy in 4 s, its own processes used 5.5, one of them by a child
    that has ended.
    """

    def own() -> SimpleNamespace:
        return SimpleNamespace(
            user=next(used) - 1.5, system=0.5, children_user=1.0, children_system=0.0
        )

    clock, busy, used = iter([0.0, 0.1, 4.1]), iter([10.0, 10.0, 16.0]), iter([2.0, 2.0, 7.5])
    monkeypatch.setattr(
        surroundings, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None)
    )
    monkeypatch.setattr(
        surroundings.psutil, "cpu_times", lambda percpu: [Times(next(busy), 100.0, 5.0, 1.0, 0.0)]
    )
    monkeypatch.setattr(surroundings.os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(SurroundingsWatch, "_tree", lambda self: [SimpleNamespace(cpu_times=own)])
    found = SurroundingsWatch((), 1).seen()
    assert (found.cores, found.before_cores, found.during_cores) == (1, 0.0, 0.125)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({}, {}, []),
        ({}, {"others": 1}, ["disturbed: 1 other process on the GPU of rank 0"]),
        ({"others": 2}, {}, ["disturbed: 2 other processes on the GPU of rank 0"]),
        (
            {},
            {"sm_clock_mhz": 600, "slowed": ["heat"]},
            ["throttled: GPU of rank 0 at 600 MHz and 50 °C (heat)"],
        ),
    ],
)
def test_what_is_on_a_gpu_is_told(
    before: dict[str, Any], after: dict[str, Any], words: list[str]
) -> None:
    looks = [
        [GpuLook(**{"sm_clock_mhz": 1980, "temperature_c": 50} | seen)] for seen in (before, after)
    ]
    assert (
        Surroundings(
            cores=8, before_cores=0, during_cores=0.1, before=looks[0], after=looks[1]
        ).disturbances
        == words
    )


def eight_gpus(pids: Sequence[int] = ()) -> SimpleNamespace:
    """NVML of eight GPUs whose handles are their numbers; UUIDs differ in the last letter before
    the first dash. All are slowed by heat and by the power limit, and these processes are on each.
    """
    return SimpleNamespace(
        NVMLError=RuntimeError,
        NVML_CLOCK_SM=0,
        NVML_CLOCK_MEM=1,
        NVML_TEMPERATURE_GPU=0,
        nvmlClocksThrottleReasonSwThermalSlowdown=0x20,
        nvmlClocksThrottleReasonHwSlowdown=0x8,
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
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [
            SimpleNamespace(pid=pid) for pid in pids
        ],
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0x20 | 0x4,
    )


@pytest.mark.parametrize(
    ("pids", "others"),
    # 98 and 99: as a container's own may be called
    [([10, 11], 0), ([10, 99], 1), ([98, 99], 0), ([97, 98, 99], 1), ([], 0)],
)
def test_nvml_is_asked_for_others_and_for_heat(
    pids: list[int], others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for module in (machine, surroundings):
        monkeypatch.setattr(module, "find_nvml", lambda: eight_gpus(pids))
    tree: Any = [SimpleNamespace(pid=pid) for pid in (1, 10, 11)]  # an agent and two workers
    assert surroundings.gpu_look(3, tree) == GpuLook(
        sm_clock_mhz=1003, temperature_c=33, others=others, slowed=["heat"]
    )


@pytest.mark.parametrize(
    ("visible", "gpu"),
    [
        (None, 1),
        ("6,5", 5),
        (" 2 ,3 ", 3),
        ("GPU-8932f936,GPU-8932f935", 5),
        ("GPU-8932f936-1111-2222-3333-444444444444, GPU-8932F935-1111-2222-3333-444444444444", 5),
        ("GPU-8932f936,GPU-8932", None),
        ("GPU-8932f936,GPU-ffff", None),
        ("6,MIG-8932f935-1111-2222-3333-444444444444", None),
        ("6,9", None),
        ("6", None),
    ],
)
def test_a_lane_reads_the_meters_of_its_own_gpus(
    visible: str | None, gpu: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second GPU that the process may use; where its name does not say which it is, nothing is
    told, and not another one's.
    """
    monkeypatch.setattr(machine, "find_nvml", eight_gpus)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert machine.gpu_handle(1) == gpu
    state, energy_j = machine.device_state(1), machine.total_energy_j(1)
    assert energy_j == gpu and (state is None) == (gpu is None)
    assert state is None or (state.sm_clock_mhz, state.power_w, state.temperature_c) == (
        1000 + gpu,
        gpu,
        30 + gpu,
    )


def test_a_gpu_that_nvml_cannot_find_lends_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_nvml", eight_gpus)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-ffff")
    found = machine.this_host.__wrapped__()
    assert (
        found.gpus == ["Planted 2", "unknown GPU"]
        and found.gpu_memory_gib == [3.0, 0.0]
        and found.name == "2x-planted-2"
    )


THREADS = """
import os, threading
from multigpu.machine.machine import confine, this_machine
stop = threading.Event()
old = threading.Thread(target=stop.wait); old.start()
confine(1)
new = threading.Thread(target=stop.wait); new.start()
threads = (threading.main_thread(), old, new)
cores = [len(os.sched_getaffinity(thread.native_id)) for thread in threads]
confine(None)
cores += [len(os.sched_getaffinity(thread.native_id)) for thread in threads]
print(*cores, this_machine().cores)
stop.set()
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot be told from all")
def test_every_thread_is_kept_to_its_cores_and_the_machine_stays_what_it_is() -> None:
    """Until the next Run of a launch, which may use all of them."""
    every = str(len(os.sched_getaffinity(0)))
    with started(THREADS) as process:
        assert process.stdout and process.stdout.read().split() == [*"111", *[every] * 4]
