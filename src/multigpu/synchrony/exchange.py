"""Where the server of a real run and its workers exchange vectors: in the host's shared memory, or in a tensor on the server's device.

Each worker has two vectors: the server writes parameters into one before it sends a job, the worker its gradient into the other before
it answers. A method returns when what it wrote is there, so a message that was read orders what was written before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from typing import Protocol

import numpy as np

from multigpu.synchrony.experiment import Experiment
from multigpu.synchrony.problems import Problem
from multigpu.synchrony.vectors import ON_HOST, Arithmetic, Vector

NUMBER_BYTES = 8
"""Of the widest number that vectors may hold."""


class Exchange(Protocol):
    """The server calls `give` and `take`, a worker `gradient` and `answer`; whoever opened it calls `close`."""

    def give(self, worker: int, parameters: Vector) -> None:
        """Let the worker's next batch be computed on these parameters."""

    def gradient(self, problem: Problem, worker: int, ticket: int) -> Vector:
        """The gradient of a batch on the parameters given; good until the next one is computed."""

    def answer(self, worker: int, gradient: Vector) -> None:
        """Let the server take this gradient."""

    def take(self, worker: int) -> Vector:
        """A copy of the worker's gradient, as it writes the next one in the same place."""

    def close(self) -> None:
        """Give up this process's view of the memory."""


class HostExchange:
    """NumPy arrays in memory that processes of one host share."""

    def __init__(self, memory_name: str, workers: int, problem: Problem | None) -> None:
        self.memory = SharedMemory(memory_name)
        size, kind = (problem.size, problem.dtype) if problem else (0, np.dtype(np.float64))
        self.shared = np.ndarray((2, workers, size), dtype=kind, buffer=self.memory.buf)

    def give(self, worker: int, parameters: Vector) -> None:
        self.shared[0, worker] = parameters

    def gradient(self, problem: Problem, worker: int, ticket: int) -> Vector:
        return problem.gradient(self.shared[0, worker].copy(), worker, ticket)

    def answer(self, worker: int, gradient: Vector) -> None:
        self.shared[1, worker] = gradient

    def take(self, worker: int) -> Vector:
        return self.shared[1, worker].copy()

    def close(self) -> None:
        self.shared = np.empty(0)  # views must go before the memory can be closed
        self.memory.close()


def arithmetic_of(server_device: str) -> Arithmetic:
    """Of an Experiment's `server_device`; a device's imports PyTorch."""
    if server_device == "host":
        return ON_HOST
    from multigpu.synchrony.on_device import DeviceArithmetic

    return DeviceArithmetic(server_device)


def shared_bytes(experiment: Experiment, problem: Problem | None) -> int:
    """Of the host's shared memory that a run needs, at least one number's."""
    size = problem.size if problem and experiment.server_device == "host" else 0
    return max(2 * experiment.workers * size * NUMBER_BYTES, NUMBER_BYTES)


def open_exchange(experiment: Experiment, problem: Problem | None, memory_name: str, workers: Iterable[Connection]) -> Exchange:
    """The server's: on a device it makes the memory and sends every worker its handle."""
    if experiment.server_device == "host" or problem is None:
        return HostExchange(memory_name, experiment.workers, problem)
    from multigpu.synchrony.on_device import DeviceExchange

    return DeviceExchange.make(experiment.server_device, experiment.workers, problem, workers)


def join_exchange(experiment: Experiment, problem: Problem | None, memory_name: str, server: Connection) -> Exchange:
    """A worker's: on a device its first message is the memory's handle.

    Raises:
        EOFError, OSError: the server has ended.
    """
    if experiment.server_device == "host" or problem is None:
        return HostExchange(memory_name, experiment.workers, problem)
    from multigpu.synchrony.on_device import DeviceExchange

    return DeviceExchange(server.recv())
