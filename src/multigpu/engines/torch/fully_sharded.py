"""Variables cut over the devices, gathered for each use: the library's `fully_shard` (FSDP2)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from multigpu.engines.common.context import Carries
from multigpu.engines.torch import object_collectives
from multigpu.engines.torch.blocks import attributes_kept, gathered_parts
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.own_update import own_optimizer
from multigpu.engines.torch.replicated import ReplicatedTrainer
from multigpu.engines.torch.split import Group, end_groups, groups_of
from multigpu.engines.torch.wire import Wire, gather, scatter
from multigpu.spec.errors import JobError, Unsupported


class Counted:
    """A collective of the library's, counted as `Wire` counts its own."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class CountedGather(Counted):
    """The all-gather."""

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> Any:
        self.wire.counts["all_gather"] += input_tensor.nbytes
        return gather(output_tensor, input_tensor, group=group, async_op=async_op)


class CountedScatter(Counted):
    """A plain sum, for which the library would have NCCL multiply by 1 and gloo refuse."""

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> Any:
        self.wire.counts["reduce_scatter"] += input_tensor.nbytes
        return scatter(output_tensor, input_tensor, group=group, async_op=async_op)


class FullyShardedTrainer(ReplicatedTrainer):
    """Every replica keeps a piece of each variable, its gradient and its states: a stretch of the
    first dimension. The library gathers a part (`blocks.gathered_parts`; else the model) before its
    forward and, unless the Run keeps it so long, before its backward, frees it after, and scatters
    summed gradients. Where the Run cuts variables over some of the devices alone, others hold
    further copies, and scattered sums are added up over these.
    """

    carries = Carries({"reduce_scatter": (True,)})

    alike: Group | None = None

    def _compile(self, module: Any) -> None:
        """Compile each part that is gathered by itself, in place; else what the model can."""
        parts = self._parts(module)
        for part in parts.values():
            part.compile(dynamic=False)
        if not parts:
            module.compile_parts()

    @staticmethod
    def _parts(module: Any) -> dict[str, nn.Module]:
        """What is gathered by itself, without parts that some shards give no gradient."""
        late = {*getattr(module, "seldom", ())}
        return {
            name: part
            for name, part in gathered_parts(module).items()
            if not any(f"{name}.{own}" in late for own, _ in part.named_parameters())
        }

    def _flatten_gradients(self) -> None:
        self.count, self.index = self.replicas, self.rank
        for parameter in self.parameters.values():
            parameter.data = parameter.data.contiguous()  # the library cuts no other layout
        if self.replicas > 1:
            with attributes_kept(self.module):  # by which the job's optimizer may group them
                self._shard()
            self.parameters = dict(self.module.named_parameters())  # nothing keeps the whole ones
        self.pieces = {
            name: nn.Parameter(self._local(parameter))
            for name, parameter in self.module.named_parameters()
        }
        own = None
        if self.job is not None:
            known = {
                id(each): [piece] if (piece := self.pieces[name]).numel() else []
                for name, each in self.module.named_parameters()
            }
            own = own_optimizer(self.job, list(self.module.parameters()), lambda p: known[id(p)])
        pieces = [piece for piece in self.pieces.values() if piece.numel()]
        self.optimizer = own or self._optimizer(pieces)
        self.optimizer.register_step_pre_hook(self._take_gradients)

    def _shard(self) -> None:
        kind, run = self.device.torch.type, self.context.run
        mesh = init_device_mesh(kind, (self.replicas,))
        if run.sharded_over is not None:
            sharing, self.alike, made = groups_of(self.wire, run.sharded_over, self.device.cuda)
            self.context.closing.callback(end_groups, made, (sharing, self.alike))
            self.count, self.index = sharing.count, sharing.index
            if sharing.group is not None:
                mesh = DeviceMesh.from_group(sharing.group, kind)
        low = run.precision == "bf16_params"
        policy = (
            MixedPrecisionPolicy(torch.bfloat16, torch.float32) if low else MixedPrecisionPolicy()
        )
        reshard = run.reshard
        for part in [*self._parts(self.module).values(), self.module]:
            sharded = fully_shard(part, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
            # shards may be unequal: each one's loss is a share of the joined mean
            sharded.set_gradient_divide_factor(1.0)
            sharded.set_custom_all_gather(CountedGather(self.wire))
            sharded.set_custom_reduce_scatter(CountedScatter(self.wire))
            if self.alike is not None and self.alike.count > 1:
                sharded.set_all_reduce_hook(self.alike.all_reduce)

    def _local(self, tensor: Tensor) -> Tensor:
        """This replica's piece of a variable or a gradient that the library holds."""
        if self.replicas == 1:
            return tensor.detach()
        return tensor.detach().to_local()  # type: ignore[attr-defined]  # a DTensor

    def _take_gradients(self, *_: Any) -> None:
        for name, parameter in self.module.named_parameters():
            assert parameter.grad is not None, name
            self.pieces[name].grad = self._local(parameter.grad)

    def _forget_gradients(self) -> None:
        for parameter in self.module.parameters():
            parameter.grad = None

    def step(self, shards: list[Shard]) -> list[Tensor]:
        try:
            return super().step(shards)
        except (RuntimeError, JobError) as error:
            if "DTensor" not in str(error):
                raise
            raise Unsupported(
                f"placement {self.context.run.placement!r} keeps pieces of a block's parameters"
                " outside of its forward pass, where this model reads them (a penalty on weights"
                " does): read them inside of the block"
            ) from error

    def _forward(self, part: Shard, terms: int | Tensor) -> Tensor:
        with self.device.autocast():
            # the library moves whatever it finds in a dict to the device, and lengths are to stay
            # on the host
            return self.module(MappingProxyType(part.device), None) / terms

    @contextmanager
    def _no_sync(self) -> Iterator[None]:
        self._synchronise(False)
        try:
            yield
        finally:
            self._synchronise(True)

    def _synchronise(self, wanted: bool) -> None:
        if isinstance(self.module, FSDPModule):
            self.module.set_requires_gradient_sync(wanted)

    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        yield from self.pieces.items()

    def piece(self, name: str, value: Tensor) -> Tensor:
        cuts = value.chunk(self.count)
        return cuts[self.index] if self.index < len(cuts) else value[:0]

    def full_values(self, rank: int | None = None) -> dict[str, Tensor]:
        mine = super().full_values(rank)
        if self.replicas == 1:
            return mine
        found: list[dict[str, Tensor]] = object_collectives.all_gather(mine)
        first = self.rank - self.index
        own = found[first : first + self.count]
        return {name: torch.cat([part[name] for part in own]) for name in mine}
