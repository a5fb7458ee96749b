"""Where the server of a real run keeps vectors and how its workers reach them: NumPy's arrays in the host's shared memory, or tensors on a
device (`on_device`, whose classes stand in for those here).
"""

import importlib
import math
from multiprocessing import get_context
from typing import Any

import numpy as np

from multigpu.synchrony.experiment import Experiment
from multigpu.synchrony.problems import Problem

Vector = Any
"""A NumPy array, or a tensor on a device; both know +, -, * and a product with a number."""


class Arithmetic:
    """Where a server keeps vectors: `place` puts an array's values there, `fetch` gives a vector's on the host, not to be written."""

    def place(self, array: np.ndarray) -> Vector:
        return array

    def fetch(self, vector: Vector) -> np.ndarray:
        return np.asarray(vector)


ON_HOST = Arithmetic()


class Exchange:
    """Two vectors a worker in memory that processes of one host share. The server writes parameters into one before it sends a job, the
    worker its gradient into the other before it answers; a method returns when what it wrote is there, so a message that was read orders
    what was written before it. It may be given to a process that starts.
    """

    def __init__(self, workers: int, problem: Problem | None) -> None:
        self.shape = (2, workers, problem.size if problem else 0)
        self.dtype = problem.dtype if problem else np.dtype(np.float64)
        self.memory = get_context("spawn").RawArray("b", max(1, math.prod(self.shape) * self.dtype.itemsize))

    @property
    def shared(self) -> np.ndarray:
        """[2, workers, size]: parameters, then gradients."""
        return np.frombuffer(self.memory, self.dtype, math.prod(self.shape)).reshape(self.shape)

    def give(self, worker: int, parameters: Vector) -> None:
        """Of the server: let the worker's next batch be computed on these parameters."""
        self.shared[0, worker] = parameters

    def gradient(self, problem: Problem, worker: int, ticket: int) -> Vector:
        """Of a worker: the gradient of a batch on the parameters given; good until the next one is computed."""
        return problem.gradient(self.shared[0, worker].copy(), worker, ticket)

    def answer(self, worker: int, gradient: Vector) -> None:
        """Of a worker: let the server take this gradient."""
        self.shared[1, worker] = gradient

    def take(self, worker: int) -> Vector:
        """Of the server: a copy of the worker's gradient, as it writes the next one in the same place."""
        return self.shared[1, worker].copy()


ON_DEVICE = "multigpu.synchrony.on_device"
"""What imports PyTorch."""


def arithmetic_of(server_device: str) -> Arithmetic:
    """Of an Experiment's `server_device`."""
    return ON_HOST if server_device == "host" else importlib.import_module(ON_DEVICE).DeviceArithmetic(server_device)


def open_exchange(experiment: Experiment, problem: Problem | None) -> Exchange:
    """Where the experiment's server and workers exchange vectors."""
    if experiment.server_device == "host" or problem is None:
        return Exchange(experiment.workers, problem)
    return importlib.import_module(ON_DEVICE).DeviceExchange(experiment.workers, problem, experiment.server_device)
