"""All devices of one process: GPUs, or on a CPU one set of tensors for each, in the same memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import torch

from multigpu.engines.torch.devices import Device
from multigpu.run import Run

Point = tuple[int, Any]
"""A device's index, and an event on its stream."""


class Devices:
    """The devices of one Run, whose work one thread dispatches; a mark is one on each device's own time line.

    threads: of the host, for all replicas together.
    """

    def __init__(self, run: Run, threads: int) -> None:
        self.cuda = run.device_type == "cuda"
        self.each = [Device(run, rank, threads) for rank in range(run.devices)]
        self.dtype = self.each[0].dtype
        if self.cuda:
            torch.cuda.set_device(0)  # each device made itself the current one

    def at(self, rank: int) -> contextlib.AbstractContextManager[Any]:
        """Inside, device `rank` is the current one."""
        return torch.cuda.device(rank) if self.cuda else contextlib.nullcontext()

    def mark(self) -> list[Any]:
        marks = []
        for device in self.each:
            with self.at(device.rank):
                marks.append(device.mark())
        return marks

    def seconds_between(self, first: list[Any], last: list[Any]) -> float:
        """The longest time between two marks over all devices, after `synchronise`."""
        return max(self.seconds_by_rank(first, last))

    def seconds_by_rank(self, first: list[Any], last: list[Any]) -> list[float]:
        """Time between two marks on each device, after `synchronise`."""
        return [device.seconds_between(a, b) for device, a, b in zip(self.each, first, last, strict=True)]

    def synchronise(self) -> None:
        """Wait until every device has done all that was asked of it."""
        for device in self.each:
            device.synchronise()

    # --- order between devices, and between a device and the host ------------------------------------------------------------

    def points(self, ranks: Iterable[int]) -> list[Point]:
        """Where these devices' streams are now (nothing on CPUs, which finish before they return)."""
        return [(rank, torch.cuda.current_stream(rank).record_event()) for rank in ranks] if self.cuda else []

    def wait(self, rank: int, points: list[Point]) -> None:
        """What device `rank` is asked from now on begins after `points`; the host goes on at once."""
        for other, event in points:
            if other != rank:  # one stream keeps its own order
                torch.cuda.current_stream(rank).wait_event(event)

    def wait_on_host(self, points: list[Point]) -> None:
        """The host waits for `points`."""
        for _, event in points:
            event.synchronize()
