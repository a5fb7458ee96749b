"""Where variables live when replicas do not keep them, and how one thread moves values out to all replicas and gradients back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from multigpu.engines.torch.dispatch.trainer import Context, Rows
from multigpu.engines.torch.stores import Ids
from multigpu.engines.torch.variables import initial_value, strided_view
from multigpu.placements.traffic import HOST, Assigned


class Store(ABC):
    """Variables of one kind of home, for all replicas. Lists by rank; methods are called in the order they stand in.

    values, gradients: each replica's copies of the dense variables and of their gradients, flat stretches of its device,
        ordered by the place of the update; `views` are the variables in the first, by name, as the module shapes them.
    segments: place of the update -> its part of these stretches.
    """

    def __init__(self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]) -> None:
        self.context, self.devices, self.wire, self.replicas = context, context.devices, context.wire, context.replicas
        self.dense = sorted((m for m in members if not m.by_row), key=lambda member: member.update)
        self.tables = [m for m in members if m.by_row]
        self.total = sum(m.variable.elements for m in self.dense)
        self.values = [torch.zeros(self.total, device=d.torch, dtype=d.dtype) for d in self.devices.each]
        self.gradients = [torch.zeros_like(value) for value in self.values]
        self.views: list[dict[str, Tensor]] = [{} for _ in self.values]
        self.gradient_views: list[dict[str, Tensor]] = [{} for _ in self.values]
        self.segments: dict[int, slice] = {}
        start = 0
        for member in self.dense:
            end = start + member.variable.elements
            self.segments[member.update] = slice(self.segments.get(member.update, slice(start, start)).start, end)
            value, like = self.initial(member), shapes[member.variable.name]
            for rank in range(self.replicas):
                self.views[rank][member.variable.name] = strided_view(self.values[rank][start:end], like)
                self.gradient_views[rank][member.variable.name] = strided_view(self.gradients[rank][start:end], like)
                self.views[rank][member.variable.name].copy_(value)
            start = end

    def initial(self, member: Assigned) -> Tensor:
        """The variable's first value, on the device that updates it (on the first for the host: GPUs and CPUs draw
        different numbers).
        """
        index = [v.name for v in self.context.model.variables].index(member.variable.name)
        device = self.devices.each[max(member.update, 0)]
        return initial_value(member.variable, index, self.context.run.seed, device.torch, device.dtype)

    def start(self, ids: list[Ids]) -> None:  # noqa: B027  (what the host sends needs no others)
        """Send what devices hold to all replicas, before any tower starts."""

    @abstractmethod
    def bring(self, rank: int, ids: Ids) -> Rows:
        """Complete replica `rank`'s values. Returns the rows that it looks up, by table: [*ids.shape, width] on its device."""

    @abstractmethod
    def collect(self, ids: list[Ids], rows: list[Rows]) -> None:
        """Send all replicas' gradients to where they merge: the dense ones, and those of `rows`."""

    @abstractmethod
    def update(self) -> None:
        """Merge and apply the rule."""

    @abstractmethod
    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        """Master copies on this device (those on the host count as rank 0's)."""

    @abstractmethod
    def optimizers_of(self, rank: int) -> list[torch.optim.Optimizer]:
        """Those whose slots lie on this device (the host's count as rank 0's)."""

    def masters_in(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        """Dense variables that replica `rank`'s own memory holds the masters of."""
        for member in self.dense:
            if member.home == rank:
                yield member.variable.name, self.views[rank][member.variable.name]


def gradient_of(rows: Rows, table: Assigned) -> Tensor:
    """Gradients of one table's rows, [lookups, width]."""
    gradient = rows[table.variable.name].grad
    assert gradient is not None
    return gradient.reshape(-1, table.variable.shape[1])


def leaf(rows: Tensor, like: Tensor) -> Tensor:
    """Flat rows in the shape of their ids, ready to collect a gradient."""
    return rows.view(*like.shape, rows.shape[1]).requires_grad_()


def kind_of(member: Assigned) -> tuple[bool, bool]:
    """Whether a variable lives on the host, and whether it is updated there."""
    return member.home == HOST, member.update == HOST


STORES: dict[tuple[bool, bool], Any] = {}
"""`kind_of` a variable -> the store that does so; filled by the modules that define them."""
