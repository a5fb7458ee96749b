"""Real runs with two workers: runtime beside the simulator's, replay to the last bit, and processes that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from multigpu.synchrony.checkpoint import checkpoint_path, read_checkpoint
from multigpu.synchrony.experiment import Experiment
from multigpu.synchrony.processes import last_words_path
from multigpu.synchrony.real import RealRun, run_real, start
from multigpu.synchrony.server import LEFT, Outcome
from multigpu.synchrony.simulate import replay, simulate
from tests.measure.listening import overheard
from tests.synchrony.cases import trained

TWO = (("sync", None), ("k_sync", 1), ("k_batch_sync", 3), ("async", None), ("k_async", 2), ("k_batch_async", 3))
SLOW_LAW = {"kind": "shifted_exponential", "shift_s": 0.042, "scale_s": 0.006}
FAST_LAW = {"kind": "constant", "time_s": 0.004}


def experiment(protocol: str, gradients: int | None = None, **fields: Any) -> Experiment:
    return trained(protocol, gradients, **{"workers": 2, "clock": "real", "law": SLOW_LAW, "updates": 20, **fields})


def disagreement(run: Outcome) -> float:
    """Of the median runtime per update, over parts of two updates, from the simulator's on the same draws."""
    simulated = np.median(simulate(run.experiment).block_times_s(10))
    return abs(float(np.median(run.block_times_s(10)) / simulated) - 1)


@pytest.mark.alone
@pytest.mark.parametrize(("protocol", "gradients"), TWO)
def test_real_runs_agree_with_the_simulator_and_are_replayed(protocol: str, gradients: int | None, tmp_path: Path) -> None:
    run = run_real(experiment(protocol, gradients), tmp_path / "first")
    np.testing.assert_array_equal(replay(run.experiment, run.events), run.parameters)
    a, k = run.accounts, run.experiment.gradients_per_update
    assert a.started == a.applied + a.waiting + a.running + a.cancelled + a.lost
    assert (a.applied, len(run.update_times_s), a.lost) == (20 * k, 20, 0)
    assert (a.cancelled > 0) == (protocol in ("k_sync", "k_batch_sync"))
    assert run.curve[-1].loss < 0.8 * run.curve[0].loss
    if disagreement(run) > 0.1:  # another process may have had the machine: once more
        run = run_real(experiment(protocol, gradients), tmp_path / "second")
    assert disagreement(run) <= 0.1


def wait_for_version(run: RealRun, version: int) -> None:
    """Until the run's checkpoint is at least so far."""
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        if checkpoint_path(run.folder).exists() and read_checkpoint(run.folder, EXPERIMENTS[run.folder]).version >= version:
            return
        time.sleep(0.01)
    pytest.fail(f"no checkpoint at version {version} within a minute")


EXPERIMENTS: dict[Path, Experiment] = {}


def started(asked: Experiment, folder: Path, **options: Any) -> RealRun:
    EXPERIMENTS[folder] = asked
    return start(asked, folder, checkpoint_updates=5, **options)


def test_a_worker_killed_in_sync_ends_the_run_in_a_sentence(tmp_path: Path) -> None:
    asked = experiment("sync", law=FAST_LAW, updates=100_000)
    run = started(asked, tmp_path)
    wait_for_version(run, 10)
    os.kill(run.workers[0].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="sync needs gradients of 2 workers for an update, and 1 of 2 workers are left: start it again"):
        run.wait()
    assert not any(process.is_alive() for process in (run.server, *run.workers))
    assert read_checkpoint(tmp_path, asked).version >= 10


@pytest.mark.parametrize("server", ["host", pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_killed_server_resumes_and_a_killed_worker_costs_its_own_batch(server: str, tmp_path: Path) -> None:
    """The server dies: a sentence each, nobody is left. Resumed, a worker dies. Arrivals after the checkpoint give the same weights."""
    asked = experiment("async", law=FAST_LAW, updates=600, server_device=server)
    run = started(asked, tmp_path)
    wait_for_version(run, 50)
    os.kill(run.server.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"the server ended \(exit code -9\): resume from .*checkpoint.npz"):
        run.wait()
    for worker, process in enumerate(run.workers):
        assert not process.is_alive()
        words = last_words_path(tmp_path, worker).read_text()
        assert words == f"worker {worker}: the server has ended; resume from checkpoint.npz in the run's folder\n"
    checkpoint = read_checkpoint(tmp_path, asked)
    assert 50 <= checkpoint.version < 600
    with overheard():
        run = started(asked, tmp_path, resume=True)
        wait_for_version(run, checkpoint.version + 50)
        os.kill(run.workers[1].pid, signal.SIGKILL)
        outcome = run.wait()
    assert not any(process.is_alive() for process in (run.server, *run.workers))
    assert outcome.first_version == checkpoint.version and outcome.accounts.lost == 1
    assert len(outcome.update_times_s) == 600 - checkpoint.version == outcome.accounts.applied
    assert outcome.start_s == checkpoint.elapsed_s < outcome.update_times_s[0] and outcome.curve[-1].gradients == 600
    (gone,) = [number for number, event in enumerate(outcome.events) if event.kind == LEFT]
    assert {event.worker for event in outcome.events[gone + 1 :]} == {0}
    np.testing.assert_array_equal(replay(asked, outcome.events, checkpoint), outcome.parameters)
    assert not last_words_path(tmp_path, 0).exists()


def test_all_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    program = f"""
import time
from pathlib import Path
from multigpu.synchrony.real import start
from tests.synchrony.test_real import experiment
if __name__ == "__main__":
    run = start(experiment("async", updates=100_000), Path({str(tmp_path)!r}))
    print(*[process.pid for process in (run.server, *run.workers)], flush=True)
    time.sleep(600)
"""
    script = tmp_path / "parent.py"
    script.write_text(program)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path) + os.pathsep + str(Path(__file__).parents[2]),
    }
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        children = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        assert len(children) == 3
        until_s = time.monotonic() + 30
        while not checkpoint_path(tmp_path).exists() and time.monotonic() < until_s:
            time.sleep(0.05)
        parent.kill()
        _, alive = psutil.wait_procs(children, timeout=10)
        assert not alive


def test_what_cannot_run_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="this experiment has clock 'virtual': simulate it, or choose clock 'real'"):
        start(experiment("async", clock="virtual"), tmp_path)
    with pytest.raises(ValueError, match=r"this experiment has engine 'ray': run it with over_ray\.run_over_ray, or leave engine out"):
        start(experiment("async", engine="ray"), tmp_path)
    with pytest.raises(ValueError, match="65 workers are too many for one machine's real clock: 64 at most"):
        start(experiment("async", workers=65), tmp_path)
    with pytest.raises(ValueError, match="checkpoint_updates must be at least 1, not 0"):
        start(experiment("async"), tmp_path, checkpoint_updates=0)
    with pytest.raises(ValueError, match=r"checkpoint\.npz is no checkpoint to resume from: .*No such file"):
        start(experiment("async"), tmp_path, resume=True)
