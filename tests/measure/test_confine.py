"""A Run may be kept to a few of the host's cores, from before its framework starts."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from multigpu.measure import machine
from multigpu.measure.point import Point
from multigpu.measure.sweep import measure
from multigpu.record import RecordStore
from multigpu.run import Run, build_run
from tests.measure.launched import PATHS, WORDS

THREADS = """
import os, threading
from multigpu.measure.machine import confine, this_machine, threads_for
stop = threading.Event()
old = threading.Thread(target=stop.wait); old.start()
confine({cores})
new = threading.Thread(target=stop.wait); new.start()
print(*(len(os.sched_getaffinity(thread.native_id)) for thread in (threading.main_thread(), old, new)), this_machine().cores)
stop.set()
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot be told from all")
@pytest.mark.parametrize("cores", [1, None])
def test_every_thread_is_kept_and_the_machine_stays_what_it_is(cores: int | None) -> None:
    here = len(os.sched_getaffinity(0))
    command = [sys.executable, "-c", THREADS.format(cores=cores)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": PATHS})
    assert [int(word) for word in said.stdout.split()] == [cores or here] * 3 + [here]


def test_processes_share_the_cores_that_they_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "this_machine", lambda: SimpleNamespace(cores=64, processes_per_host=None))
    assert [machine.threads_for(4, cores) for cores in (None, 1, 2, 8, 64)] == [16, 1, 1, 2, 16]
    assert [machine.threads_for(1, cores) for cores in (None, 2, 128)] == [64, 2, 64]


def look(stage: str, run: Run, rank: int) -> None:
    """A launch's hook: on how many cores this process may be when a stage of its Run begins."""
    if stage == "build":
        Path(os.environ["CORES_SEEN"], f"{run.host_cores}").write_text(str(len(os.sched_getaffinity(0))))


def test_a_launch_keeps_its_process_and_names_its_own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORES_SEEN", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", PATHS)
    run = build_run(placement="exp4", processes="one", host_cores=1, **WORDS)
    store = RecordStore(tmp_path / "runs")
    measure([Point(run)], store, progress=False, hook="tests.measure.test_confine:look")
    (record,) = store
    assert (tmp_path / "1").read_text() == "1"
    assert record.measurement and record.measurement.host_threads == 1
    assert (record.machine.name, record.machine.cores) == (machine.this_machine().name, machine.this_machine().cores)
