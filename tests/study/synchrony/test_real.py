"""Real runs with two workers: runtime beside the simulator's, replay to the last bit, processes
that are killed; and a server on a device. What is on a device runs with tensors of the CPU, by the
code that a GPU runs; where there is a GPU, with that too.
"""

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
import torch
from benchmarks.synchrony.exchange import arithmetic_of, open_exchange
from benchmarks.synchrony.on_device import DeviceArithmetic
from benchmarks.synchrony.real import Processes, run_real

from multigpu_study.synchrony.experiment import ProtocolExperiment
from multigpu_study.synchrony.problems import LinearProblem, LinearRegression
from multigpu_study.synchrony.record import make_record
from multigpu_study.synchrony.server import LEFT, Server
from multigpu_study.synchrony.simulate import simulate
from multigpu_study.synchrony.theory import measured_law, predict
from tests.multigpu.runner.listening import overheard
from tests.patience import PATIENCE_S
from tests.refusals import refused
from tests.study.synchrony.cases import REGRESSION, RESNET, RULES, check_accounts, replay, trained

TWO = (
    ("sync", None),
    ("k_sync", 1),
    ("k_batch_sync", 3),
    ("async", None),
    ("k_async", 2),
    ("k_batch_async", 3),
)
SLOW_LAW = {"kind": "shifted_exponential", "shift_s": 0.042, "scale_s": 0.006}
FAST_LAW = {"kind": "constant", "time_s": 0.004}


def experiment(protocol: str, gradients: int | None = None, **fields: Any) -> ProtocolExperiment:
    return trained(
        protocol,
        gradients,
        **{"workers": 2, "clock": "real", "law": SLOW_LAW, "updates": 20, **fields},
    )


def disagreement(run: Server) -> float:
    """Of the median runtime per update, over parts of two updates, from the simulator's on the same
    draws.
    """
    simulated = np.median(simulate(run.experiment).block_times_s(10))
    return abs(float(np.median(run.block_times_s(10)) / simulated) - 1)


@pytest.mark.alone
@pytest.mark.parametrize(("protocol", "gradients"), TWO)
def test_real_runs_agree_with_the_simulator_and_are_replayed(
    protocol: str, gradients: int | None
) -> None:
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


def test_a_worker_killed_in_sync_ends_the_run_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = kill_at(10, 0, monkeypatch)
    with pytest.raises(
        RuntimeError,
        match=(
            "sync needs gradients of 2 workers for an update, and 1 of 2 workers are left: start it"
            " again"
        ),
    ):
        run_real(experiment("sync", law=FAST_LAW, updates=100_000))
    assert not any(process.is_alive() for process in runs[0].processes)


@pytest.mark.parametrize(
    "server",
    [
        "host",
        pytest.param("cpu", marks=pytest.mark.slow),
        pytest.param("cuda", marks=pytest.mark.gpu),
    ],
)
def test_a_killed_worker_costs_its_own_batch(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is left in the end, and the arrivals give the same weights."""
    asked = experiment("async", law=FAST_LAW, updates=300, server_device=server)
    runs = kill_at(50, 1, monkeypatch)
    with overheard():
        outcome = run_real(asked)
    assert not any(process.is_alive() for process in runs[0].processes)
    assert (
        outcome.accounts.lost == 1
        and len(outcome.update_times_s) == 300 == outcome.accounts.applied
    )
    (gone,) = [number for number, event in enumerate(outcome.events) if event.kind == LEFT]
    assert {event.worker for event in outcome.events[gone + 1 :]} == {0}
    np.testing.assert_array_equal(replay(asked, outcome.events), outcome.parameters)


def test_workers_that_are_silent_end_the_run_in_a_sentence() -> None:
    with pytest.raises(RuntimeError, match=r"^no gradient arrived for 2 s: 2 workers are silent$"):
        run_real(experiment("async", law={"kind": "constant", "time_s": 600.0}), stall_s=2.0)


def test_all_processes_end_with_the_one_that_started_them() -> None:
    program = (
        "from benchmarks.synchrony.real import run_real\nfrom"
        " tests.study.synchrony.test_real import"
        " experiment\n"
    )
    program += "run_real(experiment('async', updates=100_000))"
    with subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[3]) as parent:
        until_s, children = time.monotonic() + PATIENCE_S, list[psutil.Process]()
        while sum("spawn_main" in " ".join(child.cmdline()) for child in children) < 2:
            assert time.monotonic() < until_s
            time.sleep(0.05)
            children = psutil.Process(parent.pid).children(recursive=True)
        parent.kill()
        assert not psutil.wait_procs(children, timeout=PATIENCE_S)[1]


class Single(LinearProblem):
    """In float32: NumPy's gradients of linear regression, rounded."""

    dtype = np.dtype(np.float32)

    def initial(self, seed: int = 0) -> np.ndarray:
        return np.random.default_rng(seed).standard_normal(self.size).astype(np.float32)

    def gradient(self, parameters: np.ndarray, worker: int, draw: int) -> np.ndarray:
        return super().gradient(parameters.astype(np.float64), worker, draw).astype(np.float32)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kind", [LinearProblem, Single], ids=["float64", "float32"])
def test_updates_on_a_device_give_the_bits_of_the_host(
    device: str, kind: type[LinearProblem]
) -> None:
    """Three gradients an update, as a third is no power of two and its reciprocal is rounded;
    parameters apart from 0.
    """
    problem, own = kind(LinearRegression(**REGRESSION)), DeviceArithmetic(device)
    for rule in RULES:
        run = simulate(trained("k_async", 3, rate=rule, updates=60))
        one, other, again = (
            replay(run.experiment, run.events, problem, *where) for where in ((), (own,), (own,))
        )
        assert one.dtype == other.dtype == problem.dtype and np.abs(one).min() > 0
        assert other.tobytes() == again.tobytes()
        # squares are added up in the device's own order: near the host's
        if rule["kind"] == "bounded":
            np.testing.assert_allclose(one, other, rtol=1e-4 if kind is Single else 1e-12)
        else:
            assert one.tobytes() == other.tobytes(), rule


@pytest.mark.parametrize(
    "description", [LinearRegression(**REGRESSION), RESNET], ids=["numpy", "model"]
)
@pytest.mark.parametrize("device", ["host", "cpu"])
def test_a_worker_maps_the_servers_memory(description: Any, device: str) -> None:
    """Gradients of the parameters given, each worker in its own place."""
    problem = description.build()
    asked = trained("async", workers=3, clock="real", server_device=device)
    server = worker = open_exchange(asked, problem)
    parameters = problem.initial(5)
    server.give(1, arithmetic_of(device).place(parameters))
    gradient = worker.gradient(problem, 1, 7)
    np.testing.assert_array_equal(gradient, problem.gradient(parameters, 1, 7))
    worker.answer(1, gradient)
    taken = server.take(1)
    worker.answer(1, arithmetic_of(device).place(np.zeros_like(parameters)))
    np.testing.assert_array_equal(taken, problem.gradient(parameters, 1, 7))
    assert not server.take(0).any() and not server.take(2).any() and not server.take(1).any()


@pytest.mark.alone
@pytest.mark.slow
def test_a_model_trains_on_two_devices_and_its_arrivals_are_replayed() -> None:
    """Float32 through shared memory, times measured by the workers, a straggler; the Record
    predicts other protocols.
    """
    fields = {
        "workers": 2,
        "law": {"kind": "computed"},
        "clock": "real",
        "rate": {"kind": "constant", "rate": 0.1},
        "evaluations": 2,
    }
    late = ProtocolExperiment(
        protocol="async", problem=RESNET, updates=200, delays_s=(0.0, 0.3), **fields
    )
    run = run_real(late)
    np.testing.assert_array_equal(replay(late, run.events), run.parameters)
    assert run.parameters is not None and run.parameters.dtype == np.float32
    record = make_record(late, run)
    assert record.status == "ok" and record.result is not None
    result = record.result
    first, second = (len(times) for times in result.batch_times_s)
    assert (
        first > second >= 1
        and first + second <= 200
        and all(time > 0 for times in result.batch_times_s for time in times)
    )
    # the injected 0.3 s is not part of what a batch takes
    assert (
        result.server_time_s is not None
        and 0 < result.server_time_s < 0.1
        and result.parameter_bytes == 4
    )
    assert min(result.batch_times_s[1]) < 0.3
    assert len(measured_law(record).times_s) == first + second
    mean = measured_law(record).mean_s + result.server_time_s
    predicted = predict(late.model_copy(update={"protocol": "sync", "updates": 50}), record)
    assert 0.3 < predicted.update_time_s < 0.3 + 6 * mean and predicted.staleness.mean == 0
    assert predict(late, record).staleness.mean == pytest.approx(1.0, abs=0.05)


@pytest.mark.gpu
@pytest.mark.slow
def test_a_model_on_gpus_trains_with_its_server_on_the_first() -> None:
    """Every GPU a worker, up to four; a straggler whose batches K-sync cancels. A GPU's gradients
    repeat to rounding, not to the bit. Few updates at a low rate, since this model is chaotic: one
    millionth more of a gradient moves parameters by a tenth after 20 at 0.05.
    """
    workers = min(max(torch.cuda.device_count(), 2), 4)
    late = {
        "law": {"kind": "computed"},
        "delays_s": (*(0.0,) * (workers - 1), 0.2),
        "rate": {"kind": "constant", "rate": 0.01},
    }
    places = {
        "problem": RESNET.model_copy(update={"device": "cuda"}),
        "server_device": "cuda",
        "clock": "real",
    }
    asked = ProtocolExperiment(
        protocol="k_sync",
        workers=workers,
        gradients=workers - 1,
        updates=4,
        evaluations=2,
        **late,
        **places,
    )
    outcome = run_real(asked)
    check_accounts(outcome, 4)
    assert outcome.accounts.lost == 0
    moved = np.linalg.norm(outcome.parameters - asked.open().initial(asked.seed))
    assert np.linalg.norm(replay(asked, outcome.events) - outcome.parameters) < 0.01 * moved


def test_what_cannot_run_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.synchrony.real.gpu_count", lambda: 0)
    for fields, sentence in (
        (
            {"clock": "virtual"},
            "this experiment has clock 'virtual': simulate it, or choose clock 'real'",
        ),
        (
            {"engine": "ray"},
            (
                "this experiment has engine 'ray': run it with benchmarks/over_ray.py, or choose"
                " engine 'processes'"
            ),
        ),
        ({"workers": 65}, "65 workers are too many for one machine's real clock: 64 at most"),
        (
            {"server_device": "cuda"},
            "server_device 'cuda' needs a GPU, and this machine has none: choose 'cpu' or 'host'",
        ),
    ):
        refused(sentence, run_real, experiment("async", **fields))
