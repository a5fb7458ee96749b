"""A server whose parameters, merge and update live on a device: GPU 0, or the CPU in the same code.

Vectors travel through one tensor that the server owns and the workers map: CUDA IPC on a GPU,
shared memory on a CPU (`torch.multiprocessing` does either when a process starts with a tensor).
For CUDA the owner keeps the tensor until those who map it have ended (leaving `Processes` waits for
them), and every method here that writes waits for its stream before another process may read.

What is equal: an update is a sum of products, each operation by itself and correctly rounded in
IEEE arithmetic, on CPUs and GPUs alike. Equal gradients in equal order give equal bits with the
server on the host, on a CPU or on a GPU, in float32 and float64, under every rule but `bounded`:
that adds up squares in an order that depends on the device, and gives equal bits on the same kind
of device. A GPU's libraries do not promise equal bits of a *gradient* computed twice: a replay of
`TrainedModel(device="cuda")` is as near as those.
"""

from typing import Any

import numpy as np
import torch
import torch.multiprocessing  # which knows how a tensor is given to a process that starts
from benchmarks.synchrony.exchange import SharedMemory

from multigpu_study.synchrony.model_problem import ModelProblem
from multigpu_study.synchrony.problems import Problem
from multigpu_study.synchrony.server import Arithmetic, Vector


def finish(device: torch.device) -> None:
    """Wait until what this process has asked of the device is done; a CPU has done it already."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class DeviceArithmetic(Arithmetic):
    """Tensors on one device."""

    def __init__(self, server_device: str) -> None:
        self.device = torch.device(server_device, 0)
        torch.set_num_threads(1)  # elementwise work of a small vector; workers have the other cores

    def place(self, array: np.ndarray) -> Vector:
        return torch.tensor(array, device=self.device)

    def fetch(self, vector: Vector) -> np.ndarray:
        return np.asarray(vector.cpu().numpy())


class DeviceExchange(SharedMemory):
    """`held` is [2, workers, size] on the server's device: parameters, then gradients."""

    def __init__(self, workers: int, problem: Problem, server_device: str) -> None:
        device = torch.device(server_device, 0)
        self.held = torch.from_numpy(np.zeros((2, workers, problem.size), problem.dtype)).to(device)
        self.held.share_memory_()  # moves a CPU's tensor; a GPU's is shared as it is
        finish(device)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        torch.set_num_threads(1)  # of a worker, beside the others

    def give(self, worker: int, parameters: Vector) -> None:
        self._write(0, worker, torch.as_tensor(parameters))

    def gradient(self, problem: Problem, worker: int, ticket: int) -> Vector:
        parameters = self.held[0, worker]
        if isinstance(problem, ModelProblem):
            found = problem.gradient_tensor(parameters, worker, ticket)
        else:
            found = torch.from_numpy(
                problem.gradient(parameters.cpu().numpy().copy(), worker, ticket)
            )
        finish(found.device)  # its time belongs to the batch
        return found

    def answer(self, worker: int, gradient: Vector) -> None:
        self._write(1, worker, gradient)

    def take(self, worker: int) -> Vector:
        found = self.held[1, worker].clone()
        finish(found.device)
        return found

    def _write(self, kind: int, worker: int, vector: torch.Tensor) -> None:
        self.held[kind, worker].copy_(vector)
        finish(self.held.device)
