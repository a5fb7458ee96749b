"""Jobs that train, and of which one rank hangs, ends or is ended in a process of a launch."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

STRUCK = os.environ.get("RANK") == "1"


def sleep() -> None:
    while True:
        time.sleep(0.1)


def end_in_c() -> None:
    ctypes.CDLL(None)._exit(0)


def interrupt() -> None:
    raise KeyboardInterrupt


FAULTS: dict[str, Callable[[], Any]] = {
    "exits": lambda: os._exit(0),
    "ends": lambda: sys.exit(3),
    "interrupts": interrupt,
    "vanishes": end_in_c,
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "crashes": lambda: ctypes.string_at(0),
    "sleeps": sleep,
    "good": lambda: None,
}


class Struck(torch.autograd.Function):
    """The identity, whose backward pass does something else on rank 1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, fault: str) -> Tensor:
        ctx.fault = fault
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if STRUCK and ctx.fault in ("ends", "interrupts"):
            FAULTS[ctx.fault]()
        return gradients[0], None


class Net(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        if STRUCK and self.fault not in ("ends", "interrupts"):
            FAULTS[self.fault]()
        x = Struck.apply(self.a(x), self.fault)
        return self.b(torch.relu(x)).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


def job_of(fault: str) -> mg.Job:
    return mg.Job(lambda: Net(fault), batch, F.mse_loss, mg.SGD(0.1), batch_size=4, name=fault)


exits = job_of("exits")
ends = job_of("ends")
interrupts = job_of("interrupts")
vanishes = job_of("vanishes")
killed = job_of("killed")
crashes = job_of("crashes")
sleeps = job_of("sleeps")
good = job_of("good")
