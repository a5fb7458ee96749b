"""Real runs with two workers: runtime beside the simulator's, replay to the last bit, and processes that are killed."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from multigpu.synchrony.experiment import Experiment
from multigpu.synchrony.real import Processes, run_real
from multigpu.synchrony.server import LEFT, Server
from multigpu.synchrony.simulate import simulate
from tests.measure.listening import overheard
from tests.refusals import refused
from tests.synchrony.cases import check_accounts, trained
from tests.synchrony.replay import replay

TWO = (("sync", None), ("k_sync", 1), ("k_batch_sync", 3), ("async", None), ("k_async", 2), ("k_batch_async", 3))
SLOW_LAW = {"kind": "shifted_exponential", "shift_s": 0.042, "scale_s": 0.006}
FAST_LAW = {"kind": "constant", "time_s": 0.004}


def experiment(protocol: str, gradients: int | None = None, **fields: Any) -> Experiment:
    return trained(protocol, gradients, **{"workers": 2, "clock": "real", "law": SLOW_LAW, "updates": 20, **fields})


def disagreement(run: Server) -> float:
    """Of the median runtime per update, over parts of two updates, from the simulator's on the same draws."""
    simulated = np.median(simulate(run.experiment).block_times_s(10))
    return abs(float(np.median(run.block_times_s(10)) / simulated) - 1)


@pytest.mark.alone
@pytest.mark.parametrize(("protocol", "gradients"), TWO)
def test_real_runs_agree_with_the_simulator_and_are_replayed(protocol: str, gradients: int | None) -> None:
    run = run_real(experiment(protocol, gradients))
    np.testing.assert_array_equal(replay(run.experiment, run.events), run.parameters)
    check_accounts(run, 20)
    assert run.accounts.lost == 0 and run.curve[-1].loss < 0.8 * run.curve[0].loss
    if disagreement(run) > 0.1:  # another process may have had the machine: once more
        run = run_real(experiment(protocol, gradients))
    assert disagreement(run) <= 0.1


def kill_at(batches: int, worker: int, monkeypatch: pytest.MonkeyPatch) -> list[Processes]:
    """Kill a worker once so many of its batches have arrived; the workers of each run."""
    runs: list[Processes] = []

    def receive(workers: Processes, timeout_s: float) -> tuple[list[tuple[int, int]], list[int]]:
        if workers not in runs:
            runs.append(workers)
        if len(workers.times_s[worker]) >= batches and (pid := workers.processes[worker].pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return plain(workers, timeout_s)

    plain = Processes.receive
    monkeypatch.setattr(Processes, "receive", receive)
    return runs


def test_a_worker_killed_in_sync_ends_the_run_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = kill_at(10, 0, monkeypatch)
    with pytest.raises(RuntimeError, match="sync needs gradients of 2 workers for an update, and 1 of 2 workers are left: start it again"):
        run_real(experiment("sync", law=FAST_LAW, updates=100_000))
    assert not any(process.is_alive() for process in runs[0].processes)


@pytest.mark.parametrize("server", ["host", pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_killed_worker_costs_its_own_batch(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is left in the end, and the arrivals give the same weights."""
    asked = experiment("async", law=FAST_LAW, updates=300, server_device=server)
    runs = kill_at(50, 1, monkeypatch)
    with overheard():
        outcome = run_real(asked)
    assert not any(process.is_alive() for process in runs[0].processes)
    assert outcome.accounts.lost == 1 and len(outcome.update_times_s) == 300 == outcome.accounts.applied
    (gone,) = [number for number, event in enumerate(outcome.events) if event.kind == LEFT]
    assert {event.worker for event in outcome.events[gone + 1 :]} == {0}
    np.testing.assert_array_equal(replay(asked, outcome.events), outcome.parameters)


def test_workers_that_are_silent_end_the_run_in_a_sentence() -> None:
    with pytest.raises(RuntimeError, match=r"^no gradient arrived for 2 s: 2 workers are silent$"):
        run_real(experiment("async", law={"kind": "constant", "time_s": 600.0}), stall_s=2.0)


def test_all_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "from multigpu.synchrony.real import run_real\nfrom tests.synchrony.test_real import experiment\n"
        'if __name__ == "__main__":\n    run_real(experiment("async", updates=100_000))\n'
    )
    path = os.pathsep.join([*(folder for folder in sys.path if folder), str(Path(__file__).parents[2])])
    with subprocess.Popen([sys.executable, str(script)], env={**os.environ, "PYTHONPATH": path}) as parent:
        until_s = time.monotonic() + 30
        children: list[psutil.Process] = []
        while sum("spawn_main" in " ".join(child.cmdline()) for child in children) < 2 and time.monotonic() < until_s:
            time.sleep(0.05)
            children = psutil.Process(parent.pid).children(recursive=True)
        assert len(children) >= 2
        parent.kill()
        _, alive = psutil.wait_procs(children, timeout=10)
        assert not alive


def test_what_cannot_run_is_refused_in_a_sentence() -> None:
    refused("this experiment has clock 'virtual': simulate it, or choose clock 'real'", run_real, experiment("async", clock="virtual"))
    other = "run it with over_ray.run_over_ray, or choose engine 'processes'"
    refused(f"this experiment has engine 'ray': {other}", run_real, experiment("async", engine="ray"))
    refused("65 workers are too many for one machine's real clock: 64 at most", run_real, experiment("async", workers=65))
