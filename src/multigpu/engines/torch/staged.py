"""Stores whose replicas compute with the variables of one step before (tf_cnn_benchmarks' staged_vars).

A step t begins with what the step before has fetched, w(t-1), and while it computes it fetches w(t), which its update turns
into w(t+1). The first step has nothing older than the first values: w(-1) = w(0). So fetching hides behind computing, and
gradients are one update old.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from multigpu.engines.torch.device_store import DeviceStore
from multigpu.engines.torch.host_store import HostStore
from multigpu.engines.torch.stores import Ids
from multigpu.engines.torch.trainer import Context, Rows
from multigpu.engines.torch.variables import make_optimizer, strided_view
from multigpu.placements.traffic import Assigned


class StagedHostStore(HostStore):
    """Variables in host memory, fetched on a stream of their own while the device computes."""

    def __init__(self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]) -> None:
        super().__init__(context, members, shapes)
        self.fetched = self.values[context.rank].clone()
        self.side = torch.cuda.Stream(context.device.torch) if context.device.cuda else None

    def bring(self, rank: int, ids: Ids) -> Rows:
        """Compute with what is here, and fetch the next values. `collect` waits for all of the device's streams."""
        self.values[rank].copy_(self.fetched)
        if self.side is not None:
            self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side) if self.side is not None else contextlib.nullcontext():
            self.wire.to_device(self.fetched, self.host.dense)
        return {}


class StagedDeviceStore(DeviceStore):
    """Variables on GPUs whose owners send them while everyone computes.

    An owner computes with old values too, so its masters lie in memory of their own.
    """

    def __init__(self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]) -> None:
        super().__init__(context, members, shapes)
        self.rank, self.own_wire = context.rank, context.wire
        mine = self.segments[self.rank]
        self.fetched = self.values[self.rank].clone()
        self.master = self.values[self.rank][mine].clone()
        if self.optimizers:
            parameter = nn.Parameter(self.master)
            parameter.grad = self.gradients[self.rank][mine]
            self.optimizers = {self.rank: make_optimizer(context.rule, [parameter], context.captured)}
        self.coming: list[Any] = []

    def start(self, ids: Mapping[int, Ids], counts: Sequence[Mapping[str, int]]) -> None:
        self.values[self.rank].copy_(self.fetched)
        self.fetched[self.segments[self.rank]].copy_(self.master)
        peers = [rank for rank in range(self.replicas) if rank != self.rank]
        self.coming = self.own_wire.start_exchange(
            [(peer, self.master) for peer in peers], [(peer, self.fetched[self.segments[peer]]) for peer in peers]
        )

    def bring(self, rank: int, ids: Ids) -> Rows:
        return {}

    def collect(self, ids: Mapping[int, Ids], rows: Mapping[int, Rows]) -> None:
        """The masters may change from now on: what was sent has arrived."""
        for work in self.coming:
            work.wait()
        self.coming = []
        super().collect(ids, rows)

    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        start = 0
        for member in self.dense:
            if member.update == rank:
                end = start + member.variable.elements
                yield member.variable.name, strided_view(self.master[start:end], self.views[rank][member.variable.name])
                start = end
