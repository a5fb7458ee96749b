"""A server on a device: the same bits as one on the host, and what the code promises of CUDA's memory.

Every test runs with tensors of the CPU, by the code that a GPU runs; where there is a GPU, with that too.
"""

from typing import Any

import numpy as np
import pytest
import torch

from multigpu.synchrony.exchange import ON_HOST, Arithmetic, arithmetic_of, open_exchange
from multigpu.synchrony.experiment import Experiment, TrainedModel
from multigpu.synchrony.on_device import DeviceArithmetic
from multigpu.synchrony.problems import LinearRegression, Problem
from multigpu.synchrony.real import run_real
from multigpu.synchrony.server import Server
from multigpu.synchrony.simulate import simulate
from tests.refusals import refused
from tests.synchrony.cases import REGRESSION, check_accounts, trained
from tests.synchrony.replay import replay

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
RESNET = TrainedModel(workload="cnn", model="resnet_tiny", batch_size=4, rows=16, test_rows=16)
RULES: tuple[dict[str, Any], ...] = (
    {"kind": "constant", "rate": 0.037},
    {"kind": "warm_up", "rate": 0.05, "start": 0.01, "updates": 9},
    {"kind": "staleness", "rate": 0.05, "per": "gradient"},
)
BOUNDED = {"kind": "bounded", "c": 0.003, "maximum": 0.05}


class Single:
    """A problem in float32: NumPy's gradients of linear regression, rounded."""

    dtype = np.dtype(np.float32)

    def __init__(self) -> None:
        self.exact = LinearRegression(**REGRESSION).build()
        self.size = self.exact.size

    def initial(self, seed: int = 0) -> np.ndarray:
        return np.random.default_rng(seed).standard_normal(self.size).astype(np.float32)

    def gradient(self, parameters: np.ndarray, worker: int, draw: int) -> np.ndarray:
        return self.exact.gradient(parameters.astype(np.float64), worker, draw).astype(np.float32)

    def loss(self, parameters: np.ndarray) -> float:
        return self.exact.loss(parameters)

    def error(self, parameters: np.ndarray) -> float | None:
        return None


def replayed(run: Server, problem: Problem, arithmetic: Arithmetic) -> np.ndarray:
    return replay(run.experiment, run.events, problem=problem, arithmetic=arithmetic)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("single", [False, True], ids=["float64", "float32"])
def test_updates_on_a_device_give_the_bits_of_the_host(device: str, single: bool) -> None:
    """Three gradients an update, as a third is no power of two and its reciprocal is rounded; parameters apart from 0."""
    problem: Problem = Single() if single else LinearRegression(**REGRESSION).build()
    own = DeviceArithmetic(device)
    for rule in RULES:
        run = simulate(trained("k_async", 3, rate=rule, updates=60))
        one, other = replayed(run, problem, ON_HOST), replayed(run, problem, own)
        assert one.dtype == other.dtype == problem.dtype and np.abs(one).min() > 0
        assert one.tobytes() == other.tobytes(), rule
    # squares are added up in the device's own order: equal to itself, and near the host's
    run = simulate(trained("k_async", 3, rate=BOUNDED, updates=60))
    one, other = replayed(run, problem, ON_HOST), replayed(run, problem, own)
    assert other.tobytes() == replayed(run, problem, own).tobytes()
    np.testing.assert_allclose(one, other, rtol=1e-4 if single else 1e-12)


@pytest.mark.parametrize("device", DEVICES)
def test_a_server_on_a_device_tells_the_host_arrays(device: str) -> None:
    """Server and curve; a vector that was taken does not change with later updates."""
    asked = trained("sync", workers=2, updates=4, evaluations=4)
    problem = asked.open()
    server = Server(asked, problem, arithmetic=arithmetic_of(device))
    server.begin()
    first = server.parameters_of(0)
    for ticket in range(4):
        for worker in range(2):
            gradient = problem.gradient(server.arithmetic.fetch(server.parameters_of(worker)), worker, ticket)
            server.arrived(worker, ticket, server.arithmetic.place(gradient), float(ticket))
    assert isinstance(server.parameters, torch.Tensor) and server.parameters.device.type == device
    outcome, expected = server.end(4.0), simulate(asked)
    np.testing.assert_array_equal(server.arithmetic.fetch(first), problem.initial(0))
    np.testing.assert_array_equal(outcome.parameters, expected.parameters)
    assert [point.loss for point in outcome.curve] == [point.loss for point in expected.curve]


@pytest.mark.parametrize("description", [LinearRegression(**REGRESSION), RESNET], ids=["numpy", "model"])
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


def on_device(device: str, **fields: Any) -> Experiment:
    return trained("async", workers=2, clock="real", law={"kind": "constant", "time_s": 0.004}, server_device=device, **fields)


@pytest.mark.gpu
@pytest.mark.slow
def test_a_model_on_gpus_trains_with_its_server_on_the_first() -> None:
    """Every GPU a worker, up to four; a straggler whose batches K-sync cancels. A GPU's gradients repeat to rounding, not to the bit.

    Few updates at a low rate, since this model is chaotic: one millionth more of a gradient moves parameters by a tenth after 20 at 0.05.
    """
    workers = min(max(torch.cuda.device_count(), 2), 4)
    late = {"law": {"kind": "computed"}, "delays_s": (*(0.0,) * (workers - 1), 0.2), "rate": {"kind": "constant", "rate": 0.01}}
    places = {"problem": RESNET.model_copy(update={"device": "cuda"}), "server_device": "cuda", "clock": "real"}
    asked = Experiment(protocol="k_sync", workers=workers, gradients=workers - 1, updates=4, evaluations=2, **late, **places)
    outcome = run_real(asked)
    check_accounts(outcome, 4)
    assert outcome.accounts.lost == 0
    moved = np.linalg.norm(outcome.parameters - asked.open().initial(asked.seed))
    assert np.linalg.norm(replay(asked, outcome.events) - outcome.parameters) < 0.01 * moved


def test_what_cannot_be_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multigpu.synchrony.real.gpu_count", lambda: 0)
    refused("server_device 'cuda' needs a GPU, and this machine has none: choose 'cpu' or 'host'", run_real, on_device("cuda"))
    assert len({on_device(device).digest for device in ("host", "cpu", "cuda")}) == 3
