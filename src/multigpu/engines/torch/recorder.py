"""Recording a step as a CUDA graph, and making the process whole again where that fails."""

import gc
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

Written = TypeVar("Written")

SPOILED: list[torch.cuda.CUDAGraph] = []
"""Graphs whose recording broke off. The allocator may still ask them which stream they recorded,
so they live as long as the process."""

WATCHDOG_S = 0.5
"""s: in which NCCL's watchdog, which looks each 0.1 s, forgets the collectives that have ended. An
event that it asks for while a stream is captured may end the process."""


class Graph(Protocol):
    """A recorded step."""

    def replay(self) -> Any:
        """Run the step on what its inputs hold now."""


class Recorder(Protocol):
    """Records steps."""

    def record(self, step: Callable[[], Tensor]) -> tuple[Graph, Tensor]:
        """Record a step without running it: what replays it, and the tensor that it will write."""


class RecordingFailed(RuntimeError):
    """A step could not be recorded; nothing ran, and the process can go on."""


class CudaRecorder:
    """Records in the stream that is current, which must not be the default one.

    pool: of memory that all its graphs share; None: one for each.
    """

    def __init__(self, device: torch.device, pool: Any = None) -> None:
        self.device = device
        self.pool = pool

    def record(self, step: Callable[[], Written]) -> tuple[torch.cuda.CUDAGraph, Written]:
        """Record a step without running it: what replays it, and what the step returned."""
        gc.collect()  # objects freed during the recording could call CUDA
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()
        time.sleep(WATCHDOG_S)
        graph = torch.cuda.CUDAGraph()
        pool = self.pool or torch.cuda.graph_pool_handle()
        collecting = gc.isenabled()
        gc.disable()
        ended = False
        try:
            # NCCL's watchdog thread asks for events meanwhile, which another mode would forbid
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                output = step()
            except Exception:
                with suppress(Exception):  # ends the stream's capture, and fails itself for that
                    graph.capture_end()
                    ended = True
                raise
            graph.capture_end()
        except Exception as error:
            self._make_whole(graph, pool, ended)
            raise RecordingFailed(f"{type(error).__name__}: {first_line(error)}") from error
        finally:
            if collecting:
                gc.enable()
        return graph, output

    def _make_whole(self, graph: torch.cuda.CUDAGraph, pool: tuple[int, int], ended: bool) -> None:
        """Undo what a capture that broke off leaves behind, so that the process trains on.

        Seen to hold with PyTorch 2.11 on two H200s, under DDP, ZeRO-1 and FSDP2, where the capture
        broke off in the forward and in the backward pass: later captures in the process succeed.

        The allocator would go on sending memory to the capture's pool, and keep blocks back "until
        no capture"; the generator would go on believing that it is captured ("Offset increment
        outside graph capture"), and is given a new state of the same seed and offset.
        """
        if not ended:
            SPOILED.append(graph)
            with suppress(Exception):
                torch._C._cuda_endAllocateToPool(self.device.index, pool)
            with suppress(Exception):
                torch._C._cuda_releasePool(self.device.index, pool)
        else:
            graph.reset()
        default = torch.cuda.default_generators[self.device.index]
        fresh = torch.Generator(self.device)
        fresh.set_state(default.get_state())
        default.graphsafe_set_state(fresh)
        with suppress(Exception):
            torch.cuda.synchronize(self.device)


def first_line(error: BaseException) -> str:
    """An error's first line, with its cause's where it has one."""
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else ""
    if error.__context__ is not None and str(error.__context__).strip():
        before = str(error.__context__).strip().splitlines()[0]
        if before not in text:
            text = f"{before}; then {text}" if text else before
    return text[:400]
