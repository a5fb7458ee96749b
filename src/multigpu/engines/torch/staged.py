"""Stores whose replicas compute with the variables of one step before (tf_cnn_benchmarks' staged_vars).

A step t begins with what the step before has fetched, w(t-1), and while it computes it fetches w(t), which its update turns
into w(t+1). The first step has nothing older than the first values: w(-1) = w(0). So fetching hides behind computing, and
gradients are one update old.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from multigpu.engines.torch.device_store import DeviceStore
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.host_store import HostStore
from multigpu.engines.torch.stores import Ids
from multigpu.engines.torch.trainer import Context
from multigpu.engines.torch.variables import make_optimizer, strided_view
from multigpu.placements.traffic import Assigned


class StagedHostStore(HostStore):
    """Variables in host memory, fetched on a stream of their own while the device computes."""

    def __init__(self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]) -> None:
        super().__init__(context, members, shapes)
        self.fetched = self.values.clone()
        self.side = torch.cuda.Stream(context.device.torch) if context.device.cuda else None

    def pull(self) -> None:
        """Compute with what is here, and fetch the next values. `push` waits for all of the device's streams."""
        self.values.copy_(self.fetched)
        if self.side is not None:
            self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side) if self.side is not None else contextlib.nullcontext():
            self.wire.to_device(self.fetched, self.host.dense)


class StagedDeviceStore(DeviceStore):
    """Variables on GPUs whose owners send them while everyone computes.

    An owner computes with old values too, so its masters lie in memory of their own.
    """

    def __init__(self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]) -> None:
        super().__init__(context, members, shapes)
        self.fetched = self.values.clone()
        self.master = self.values[self.mine].clone()
        if self.optimizer is not None:
            parameter = nn.Parameter(self.master)
            parameter.grad = self.gradients[self.mine]
            self.optimizer = make_optimizer(context.rule, [parameter], context.captured)
        self.coming: list[Any] = []

    def pull(self) -> None:
        self.values.copy_(self.fetched)
        self.fetched[self.mine].copy_(self.master)
        self.coming = self.wire.start_exchange(
            [(peer, self.master) for peer in self.peers], [(peer, self.fetched[self.segments[peer]]) for peer in self.peers]
        )

    def push(self, shard: Shard, ids: Ids, rows: dict[str, Tensor]) -> None:
        """The masters may change from now on: what was sent has arrived."""
        for work in self.coming:
            work.wait()
        self.coming = []
        super().push(shard, ids, rows)

    def owned(self) -> Iterator[tuple[str, Tensor]]:
        start = 0
        for member in self.dense:
            if member.update == self.rank:
                end = start + member.variable.elements
                yield member.variable.name, strided_view(self.master[start:end], self.views[member.variable.name])
                start = end


STAGED: dict[tuple[bool, bool], Any] = {(True, True): StagedHostStore, (False, False): StagedDeviceStore}
"""As `stores.STORES`, for placements that stage."""
