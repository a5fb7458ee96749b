"""One sweep a machine, and what disturbs a Run from outside is seen: a lock, a look at cores and GPUs, a second attempt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from multigpu.measure import surroundings
from multigpu.measure.held import HELD_VARIABLE, LOCK_VARIABLE, holder, memory_folder, turn
from multigpu.measure.point import Point
from multigpu.measure.surroundings import SHARE_VARIABLE, GpuLook, Surroundings, Watch
from multigpu.measure.sweep import measure
from multigpu.record import RecordStore
from tests.measure.launched import PATHS, tiny

HOLD = "import time\nfrom multigpu.measure.held import turn\nwith turn():\n    print('mine', flush=True)\n    time.sleep(float(%r))"
SPIN = "while True: pass"


@contextmanager
def started(program: str, *words: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process of its own, which ends with this."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        env=os.environ | {"PYTHONPATH": PATHS} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(LOCK_VARIABLE, str(tmp_path / "lock"))
    monkeypatch.delenv(HELD_VARIABLE, raising=False)
    return tmp_path / "lock"


def test_a_second_sweep_waits_and_says_for_whom_even_one_that_is_killed(lock: Path) -> None:
    with started(HOLD % 600) as first:
        assert first.stdout and first.stdout.readline() == "mine\n"
        with started(HOLD % 0) as second:
            assert second.stderr and second.stdout
            said = second.stderr.readline()
            assert f"another sweep measures on this machine: process {first.pid} (-c) since " in said and "for 0 minutes" in said
            time.sleep(0.5)
            assert second.poll() is None
            first.send_signal(signal.SIGKILL)
            assert second.stdout.readline() == "mine\n" and second.wait(20) == 0


def test_what_a_sweep_starts_has_its_turn_and_another_gets_it_afterwards(lock: Path) -> None:
    with turn(), turn(), started(HOLD % 0) as child:
        assert child.wait(20) == 0
    assert HELD_VARIABLE not in os.environ and lock.read_text() == ""
    with started(HOLD % 0) as other:
        assert other.wait(20) == 0


def test_who_measures_nothing_waits_for_nobody(lock: Path, tmp_path: Path) -> None:
    with started(HOLD % 600) as first:
        assert first.stdout and first.stdout.readline() == "mine\n"
        assert not measure([], RecordStore(tmp_path / "runs"), progress=False).statuses


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"pid": 1, "command": "x", "since": 1e300}'])
def test_a_lock_that_says_nothing_useful_is_no_failure(text: str) -> None:
    assert holder(text) == "a process that did not say which"


@pytest.mark.timeout(300)
def test_a_disturbed_run_is_flagged_and_measured_again_and_both_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHARE_VARIABLE, "0.1")
    monkeypatch.setenv("PYTHONPATH", PATHS)
    store = RecordStore(tmp_path)
    with started(SPIN):
        summary = measure([Point(tiny(0), timeout_s=100.0)], store, progress=False)
    (record,) = store
    held = store.attempts(record.machine.name, record.key)
    first, second = (store.read(one) for one in held)
    assert [one.attempt for one in (first, second)] == [0, 1] and first.launch_id != second.launch_id
    assert first.measurement and any(flag.startswith("disturbed: others used ") for flag in first.measurement.flags)
    assert first.surroundings and first.surroundings.during_cores > 0.1 * first.surroundings.cores
    assert second.surroundings and record.attempt == 1, "read is what was measured last"
    (note,) = summary.notes
    assert note.startswith("measured again: ") and "others used" in note and note in str(summary)
    assert not summary.troubles


def test_a_launch_does_not_disturb_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 6 s that two cores were busy in 4 s, its own processes used 5.5, one of them by a child that has ended."""
    clock, busy, own = iter([0.0, 0.1, 4.1]), iter([10.0, 10.0, 16.0]), iter([2.0, 2.0, 7.5])
    monkeypatch.setattr(surroundings, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None))
    monkeypatch.setattr(surroundings.psutil, "cpu_times", lambda percpu: [core_times(busy=next(busy))])
    monkeypatch.setattr(surroundings.os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(Watch, "_tree", lambda self: [SimpleNamespace(cpu_times=lambda: process_times(next(own)))])
    found = Watch((), 1).seen()
    assert (found.cores, found.before_cores, found.during_cores) == (1, 0.0, 0.125)


class core_times(tuple):
    """Of one core: user, idle, iowait, guest; guest counts within user."""

    def __new__(cls, busy: float) -> core_times:
        return super().__new__(cls, (busy, 100.0, 5.0, 1.0))

    idle, iowait = 100.0, 5.0
    guest, guest_nice = 1.0, 0.0


def process_times(own: float) -> Any:
    return SimpleNamespace(user=own - 1.5, system=0.5, children_user=1.0, children_system=0.0)


def look(**more: Any) -> GpuLook:
    return GpuLook(**{"sm_clock_mhz": 1980, "temperature_c": 50, **more})


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (look(), look(), []),
        (look(), look(others=1), ["disturbed: 1 other process on the GPU of rank 0"]),
        (look(others=2), look(), ["disturbed: 2 other processes on the GPU of rank 0"]),
        (look(), look(sm_clock_mhz=600, slowed=["heat"]), ["throttled: GPU of rank 0 at 600 MHz and 50 °C (heat)"]),
    ],
)
def test_what_is_on_a_gpu_is_told(before: GpuLook, after: GpuLook, words: list[str]) -> None:
    assert Surroundings(cores=8, before_cores=0, during_cores=0.1, before=[before], after=[after]).disturbances == words


class Nvml:
    """NVML of one GPU at 1,200 MHz, slowed by heat and by the power limit, with these processes on it."""

    NVMLError, NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = RuntimeError, 1, 2
    nvmlClocksThrottleReasonSwThermalSlowdown, nvmlClocksThrottleReasonHwSlowdown = 0x20, 0x8

    def __init__(self, pids: set[int]) -> None:
        self.pids = pids

    def nvmlDeviceGetComputeRunningProcesses(self, handle: object) -> list[Any]:
        return [SimpleNamespace(pid=pid) for pid in self.pids]

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: object) -> int:
        return 0x20 | 0x4

    def nvmlDeviceGetClockInfo(self, handle: object, kind: int) -> int:
        return 1200

    def nvmlDeviceGetTemperature(self, handle: object, kind: int) -> int:
        return 91


@pytest.mark.parametrize(
    ("pids", "others"),
    [({10, 11}, 0), ({10, 99}, 1), ({98, 99}, 0), ({97, 98, 99}, 1), (set(), 0)],
    ids=["own", "one more", "a container's own", "one more beside a container", "none"],
)
def test_nvml_is_asked_for_others_and_for_heat(pids: set[int], others: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "find_nvml", lambda: Nvml(pids))
    monkeypatch.setattr(surroundings, "gpu_handle", lambda index: object())
    tree: Any = [SimpleNamespace(pid=pid) for pid in (1, 10, 11)]  # an agent and two workers
    assert surroundings.gpu_look(0, tree) == GpuLook(sm_clock_mhz=1200, temperature_c=91, others=others, slowed=["heat"])


OTHERS = """
import os, time
os.getpid = lambda: 2**22 + 5  # as in another container: no process here has this number
from multigpu.measure.held import memory_folder
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
