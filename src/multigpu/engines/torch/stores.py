"""Where variables live when replicas do not keep them: what a parameter server is made of.

A store holds some variables' master copies, sends them to replicas (`pull`, `look_up`), takes gradients back (`push`),
merges them and updates (`update`). All replicas call the same methods in the same order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from multigpu.engines.torch.alignment import arranged, begins_aligned
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.trainer import Context
from multigpu.engines.torch.variables import initial_value, strided_view
from multigpu.placements.traffic import Assigned


@dataclass(frozen=True)
class Ids:
    """What a shard asks of the tables, by variable: int64 of any shape, the same numbers on the host and on the device."""

    host: dict[str, Tensor]
    device: dict[str, Tensor]


class Store(ABC):
    """Variables of one kind of home.

    values, gradients: this replica's copies of the dense variables and of their gradients, two flat stretches of its
        device; `views` are the variables in the first, by name, with the module's shapes and strides.
    apart: of a compiled step, copies in memory of their own of the variables that begin misaligned in `values` (`alignment` says why);
        the module computes with these.
    """

    def __init__(self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]) -> None:
        self.context, self.wire, self.rank, self.replicas = context, context.wire, context.rank, context.replicas
        device, dtype = context.device.torch, context.device.dtype
        self.dense = arranged([m for m in members if not m.by_row], dtype.itemsize)
        self.tables = [m for m in members if m.by_row]
        total = sum(m.variable.elements for m in self.dense)
        self.values = torch.zeros(total, device=device, dtype=dtype)
        self.gradients = torch.zeros(total, device=device, dtype=dtype)
        self.views: dict[str, Tensor] = {}
        self.gradient_views: dict[str, Tensor] = {}
        start = 0
        for member in self.dense:
            end = start + member.variable.elements
            like = shapes[member.variable.name]
            self.views[member.variable.name] = strided_view(self.values[start:end], like)
            self.gradient_views[member.variable.name] = strided_view(self.gradients[start:end], like)
            self.views[member.variable.name].copy_(self.initial(member))
            start = end
        compiled = "compiled" in context.run.execution
        self.apart = {name: view.clone() for name, view in self.views.items() if compiled and not begins_aligned(view)}

    @property
    def computed_with(self) -> dict[str, Tensor]:
        """The memory under the module's dense parameters, by variable."""
        return self.views | self.apart

    def fill_apart(self) -> None:
        """After `pull`: bring the current values to the copies that lie apart. They stay on this device, so nothing is counted."""
        if self.apart:
            torch._foreach_copy_(list(self.apart.values()), [self.views[name] for name in self.apart])

    def initial(self, member: Assigned) -> Tensor:
        """The variable's first value, on this replica's device."""
        index = [v.name for v in self.context.model.variables].index(member.variable.name)
        return initial_value(member.variable, index, self.context.run.seed, self.context.device.torch, self.context.device.dtype)

    @abstractmethod
    def pull(self) -> None:
        """Bring the dense variables' current values to this replica."""

    @abstractmethod
    def look_up(self, shard: Shard, ids: Ids) -> dict[str, Tensor]:
        """Rows of this store's tables for `ids`.

        Returns by name leaf tensors [*ids.shape, width] on this replica's device, ready to collect a gradient.
        """

    @abstractmethod
    def push(self, shard: Shard, ids: Ids, rows: dict[str, Tensor]) -> None:
        """Send this replica's gradients: the dense ones, and those of `rows`."""

    @abstractmethod
    def update(self, shard: Shard) -> None:
        """Merge all replicas' gradients and apply the rule, where the placement says."""

    @abstractmethod
    def owned(self) -> Iterator[tuple[str, Tensor]]:
        """Master copies on this replica (host memory counts as rank 0's)."""


STORES: dict[tuple[bool, bool], Any] = {}
"""(home is the host, update is on the host) -> the store that does so; filled by the modules that define them."""
