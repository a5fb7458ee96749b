"""Exchange parameters and gradients with workers: through memory of the host, or of a device."""

import importlib
import math
from multiprocessing import get_context

import numpy as np

from multigpu_study.synchrony.experiment import ProtocolExperiment
from multigpu_study.synchrony.problems import Problem
from multigpu_study.synchrony.server import ON_HOST, Arithmetic, Vector

ON_DEVICE = "benchmarks.synchrony.on_device"  # what imports PyTorch


class SharedMemory:
    """[2, workers, size] in memory that processes of one host share, given to them as they start:
    parameters, written before a job is sent, and gradients, written before a worker answers. A
    method returns when what it wrote is there.
    """

    def __init__(self, workers: int, problem: Problem | None) -> None:
        self.shape = (2, workers, problem.size if problem else 0)
        self.dtype = problem.dtype if problem else np.dtype(np.float64)
        self.memory = get_context("spawn").RawArray(
            "b", max(1, math.prod(self.shape) * self.dtype.itemsize)
        )

    @property
    def shared(self) -> np.ndarray:
        return np.frombuffer(self.memory, self.dtype, math.prod(self.shape)).reshape(self.shape)

    def give(self, worker: int, parameters: Vector) -> None:
        """Of the server: let the worker's next batch be computed on these parameters."""
        self.shared[0, worker] = parameters

    def gradient(self, problem: Problem, worker: int, ticket: int) -> Vector:
        """Of a worker: a batch's gradient on the given parameters, good until the next one."""
        return problem.gradient(self.shared[0, worker].copy(), worker, ticket)

    def answer(self, worker: int, gradient: Vector) -> None:
        """Of a worker: let the server take this gradient."""
        self.shared[1, worker] = gradient

    def take(self, worker: int) -> Vector:
        """Of the server: a copy of the worker's gradient, whose place the next one takes."""
        return self.shared[1, worker].copy()


def arithmetic_of(server_device: str) -> Arithmetic:
    """Of an Experiment's `server_device`."""
    if server_device == "host":
        return ON_HOST
    return importlib.import_module(ON_DEVICE).DeviceArithmetic(server_device)


def open_exchange(experiment: ProtocolExperiment, problem: Problem | None) -> SharedMemory:
    """Where its server and workers exchange vectors."""
    if experiment.server_device == "host" or problem is None:
        return SharedMemory(experiment.workers, problem)
    return importlib.import_module(ON_DEVICE).DeviceExchange(
        experiment.workers, problem, experiment.server_device
    )
