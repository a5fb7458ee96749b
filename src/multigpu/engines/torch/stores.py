"""Where variables live when replicas do not keep them: what a parameter server is made of. All
processes call its methods in one order. Where variables begin in flat memory matters to code that
torch.compile generated. Such code may read a parameter in vectors of 16 bytes if the one that it
was generated for began at a multiple of them. Inputs are then checked at every call and copied
where they begin elsewhere, but for those that are static, as every `nn.Parameter` is, and were
aligned when the code was generated (`torch._inductor.compile_fx.get_input_idxs_to_check`). Code is
used again for any parameter of that shape, of another layer or Run (no guard asks where a parameter
begins), and by other processes, since the key of AOTAutograd's cache on disk leaves that out too
(seen in PyTorch 2.13). A GPU then ends with "misaligned address". So all parameters of a compiled
step begin at such multiples.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from multigpu.engines.torch.trainer import Context, Rows
from multigpu.engines.torch.variables import initial_value, views_of
from multigpu.placements.traffic import BOUNDARY, Assigned


def arranged(dense: list[Assigned], item_bytes: int) -> list[Assigned]:
    """The order of variables in a flat stretch without gaps (those would travel) in which the most
    of them begin aligned. What one place updates stays together, since it is one message; there,
    and among places, multiples of 16 bytes stand first, else in the order of declaration. So with
    one odd variable, all begin aligned; behind a second one, some do not.
    """

    def odd(members: list[Assigned]) -> bool:
        return sum(m.variable.elements for m in members) * item_bytes % BOUNDARY != 0

    parts = [[m for m in dense if m.update == place] for place in sorted({m.update for m in dense})]
    return [
        member for part in sorted(parts, key=odd) for member in sorted(part, key=lambda m: odd([m]))
    ]


def parts_by_place(dense: list[Assigned], places: int) -> list[slice]:
    """The elements of the flat stretch that each device updates, which lie together."""
    parts = [slice(0, 0) for _ in range(places)]
    end = 0
    for member in dense:
        start, end = end, end + member.variable.elements
        before = parts[member.update]
        parts[member.update] = slice(start if before.start == before.stop else before.start, end)
    return parts


@dataclass(frozen=True)
class Ids:
    """The rows that a shard looks up, int64 by variable, on the host and on the device."""

    host: dict[str, Tensor]
    device: dict[str, Tensor]


class Store(ABC):
    """Variables of one kind of home; what follows is by rank, of the replicas in this process.
    values, gradients: copies of the dense variables and of their gradients, two flat stretches of
        the device. views: the variables in the first, by name, with the module's shapes and
            strides.
    apart: of a compiled step, copies in memory of their own of those that begin misaligned in
        `values`; the module computes with these.
    counts: of the current step, every replica's look-ups: embedding variable -> rows.
    """

    def __init__(
        self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]
    ) -> None:
        self.context = context
        self.devices = context.devices
        self.wire = context.wire
        self.replicas = context.replicas
        self.ranks, dtype = self.devices.ranks, self.devices.dtype
        self.dense = arranged([m for m in members if not m.by_row], dtype.itemsize)
        self.tables = [m for m in members if m.by_row]
        self.total = sum(m.variable.elements for m in self.dense)
        self.values = {rank: self._zeros(rank) for rank in self.ranks}
        self.gradients = {rank: self._zeros(rank) for rank in self.ranks}
        like = {member.variable.name: shapes[member.variable.name] for member in self.dense}
        self.views, self.gradient_views = (
            {
                rank: dict(zip(like, views_of(flat, like.values()), strict=True))
                for rank, flat in whole.items()
            }
            for whole in (self.values, self.gradients)
        )
        self.counts: Sequence[Mapping[str, int]] = ()
        for member in self.dense:
            value = self.initial(member, self.ranks[0])
            for rank in self.ranks:
                self.views[rank][member.variable.name].copy_(value)
        compiled = "compiled" in context.run.execution
        self.apart = {
            rank: {
                name: view.clone()
                for name, view in views.items()
                if compiled and view.data_ptr() % BOUNDARY
            }
            for rank, views in self.views.items()
        }

    def _zeros(self, rank: int) -> Tensor:
        return torch.zeros(self.total, device=self.devices.of(rank).torch, dtype=self.devices.dtype)

    def fill_apart(self, rank: int) -> None:
        """After `bring`: take current values to the copies that lie apart, on one device."""
        if self.apart[rank]:
            torch._foreach_copy_(
                list(self.apart[rank].values()),
                [self.views[rank][name] for name in self.apart[rank]],
            )

    def initial(self, member: Assigned, rank: int) -> Tensor:
        index = [v.name for v in self.context.model.variables].index(member.variable.name)
        seed, device = self.context.run.seed, self.devices.of(rank).torch
        return initial_value(member.variable, index, seed, device, self.devices.dtype)

    def start(self, ids: Mapping[int, Ids], counts: Sequence[Mapping[str, int]]) -> None:
        """Send what devices hold to the replicas. ids: of each replica in this process."""
        self.counts = counts

    @abstractmethod
    def bring(self, rank: int, ids: Ids) -> Rows:
        """Complete a replica's dense values; rows by table, leaves [*ids.shape, width]."""

    @abstractmethod
    def collect(self, ids: Mapping[int, Ids], rows: Mapping[int, Rows]) -> None:
        """Send this process's gradients, dense and of `rows`, to where they merge."""

    @abstractmethod
    def update(self) -> None:
        """Merge all replicas' gradients and apply the rule, where the placement says."""

    @abstractmethod
    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        """Master copies on a replica's device (host memory counts as rank 0's)."""

    @abstractmethod
    def optimizers_of(self, rank: int) -> list[torch.optim.Optimizer]:
        """Those that a replica answers for (the host's: the first of each process)."""


def gradient_of(rows: Rows, table: Assigned) -> Tensor:
    """Gradients of one table's rows, [lookups, width]."""
    gradient = rows[table.variable.name].grad
    assert gradient is not None
    return gradient.reshape(-1, table.variable.shape[1])


def leaf(rows: Tensor, like: Tensor) -> Tensor:
    """Flat rows in the shape of their ids, ready to collect a gradient."""
    return rows.view(*like.shape, rows.shape[1]).requires_grad_()
