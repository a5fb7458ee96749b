"""A pipeline with a process a stage: the library's stages and schedules, what they send counted."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)

from multigpu.engines.common.context import Carries
from multigpu.engines.torch import object_collectives
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.split import Group, end_groups, groups_of
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context, Trainer, build_module
from multigpu.engines.torch.variables import (
    begun,
    flat_gradients,
    make_optimizer,
    materialise,
    memory_like,
)
from multigpu.engines.torch.wire import Wire
from multigpu.placements.partition import SHARED, pipeline_stages, sent_on, shared_in
from multigpu.placements.resolve import dims_of
from multigpu.spec.stage_graph import Stage
from multigpu.workloads import import_part

Values = dict[str, Tensor]
Functions = Mapping[str, Callable[[Values], Values]]
SCHEDULES = {None: ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}


class CountedStage(PipelineStage):
    """The library's stage, whose sends are counted on the rank that starts them."""

    wire: Wire

    def _counted(self, operations: list[Any]) -> list[Any]:
        sent = sum(operation.tensor.nbytes for operation in operations)
        self.wire.counts["device_to_device"] += sent
        return operations

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[Any]:
        return self._counted(super().get_fwd_send_ops(fwd_chunk_id))

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[Any]:
        return self._counted(super().get_bwd_send_ops(bwd_chunk_id))


class ContiguousGradient(torch.autograd.Function):
    """Identity; its gradient lies as what is received does, whatever the layers' layout."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].contiguous()


class Stretch(nn.Module):
    """The sections of one stage, from tensors and arrays to tensors, or the loss over `terms`."""

    terms = 1

    def __init__(
        self,
        stages: Sequence[Sequence[Stage]],
        index: int,
        module: nn.Module,
        functions: Functions,
        context: Context,
    ) -> None:
        super().__init__()
        self.sections, self.functions, self.context = stages[index], functions, context
        self.before = sent_on(stages[index - 1]) if index else []
        self.gives = sent_on(stages[index])
        # no part of this one: the library would move what of it is not here
        self.whole = [module]

    def forward(self, *received: Tensor, **arrays: Tensor) -> Any:
        values: Values = dict(arrays)
        if self.before:
            came = [ContiguousGradient.apply(tensor) for tensor in received]
            values |= dict(zip(self.before, came, strict=True))
        for name in shared_in(self.sections):
            values[SHARED + name] = getattr(self.whole[0], name)
        device = self.context.device
        with device.autocast():
            for section in self.sections:
                values |= self.functions[section.name](values)
        if "loss" in values:
            return (values["loss"] / self.terms).reshape(1)
        kind = torch.bfloat16 if self.context.run.precision == "bf16" else device.dtype
        found = tuple(values[name].to(kind).contiguous() for name in self.gives)
        return found[0] if len(found) == 1 else found


def blueprint(tensor: Tensor) -> Tensor:
    """Return its shape and type on the meta device, as a leaf that takes a gradient."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta", requires_grad=True)


class ScheduledTrainer(Trainer):
    """The stages of one device; copies sum their gradients of a stage after backward."""

    carries = Carries({"sections": (False,)})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        run, model = context.run, context.model
        self.degree = dims_of(run).degree
        self.sharing: Group
        self.alike: Group
        self.sharing, self.alike, made = groups_of(self.wire, self.degree, self.device.cuda)
        context.closing.callback(end_groups, made, (self.sharing, self.alike))
        self.stages = pipeline_stages(run, model)
        self.mine = range(self.sharing.index, len(self.stages), self.degree)
        sections = [section for index in self.mine for section in self.stages[index]]
        own = {name for section in sections for name in section.variables}
        self.shared = [name for name in shared_in(sections) if name not in own]
        device, dtype = self.device.torch, self.device.dtype
        self.parameters = begun(self.module, model, run.seed, device, dtype, own.union(self.shared))
        self.gradients = flat_gradients(list(self.parameters.values()), device, dtype)
        self.optimizer = make_optimizer(context.rule, list(self.parameters.values()))
        functions = self._functions(self.module)
        self.stretches = [
            Stretch(self.stages, index, self.module, functions, context) for index in self.mine
        ]
        self.schedule: Any = None

    def _functions(self, module: nn.Module) -> Functions:
        return import_part(self.context.run.workload, "torch").section_functions(module)

    def _borders(self, arrays: Values) -> list[tuple[Tensor, ...]]:
        """What passes each border of two stages: shapes and types, on the meta device."""
        borders: list[tuple[Tensor, ...]] = []
        device = self.device.torch
        blank = build_module(self.context.run)
        with FakeTensorMode(allow_non_fake_inputs=True):
            memory = {
                name: memory_like(parameter, device, self.device.dtype)
                for name, parameter in blank.named_parameters()
            }
            materialise(blank, memory, device, self.device.dtype)
            like = {
                name: torch.empty(array.shape, dtype=array.dtype, device=device)
                for name, array in arrays.items()
            }
            came: list[Tensor] = []
            for index, _ in enumerate(self.stages):
                functions = self._functions(blank)
                stretch = Stretch(self.stages, index, blank, functions, self.context)
                found = stretch(*came, **like)
                found = found if isinstance(found, tuple) else (found,)
                came = [tensor.detach().requires_grad_() for tensor in found]
                borders.append(found)
        return [tuple(blueprint(each) for each in border) for border in borders]

    def _scheduled(self, arrays: Values) -> Any:
        """The schedule of these stages for batches of these arrays."""
        parts = self.context.run.micro_batches or 1
        first = {name: array[: len(array) // parts] for name, array in arrays.items()}
        borders = self._borders(first)
        begin = next(iter(first.values()))
        made = []
        for index, stretch in zip(self.mine, self.stretches, strict=True):
            came = borders[index - 1] if index else (begin,)
            tensors: dict[str, Any] = {"input_args": came, "output_args": borders[index]}
            count, device, group = len(self.stages), self.device.torch, self.sharing.group
            stage = CountedStage(stretch, index, count, device, **tensors, group=group)
            stage.wire = self.wire
            made.append(stage)
        name = self.context.run.pipeline_schedule
        stages: Any = made if name == "interleaved" else made[0]
        # each share of the loss is over the terms of the global batch already
        return SCHEDULES[name](
            stages, parts, loss_fn=lambda share, _: share.sum(), scale_grads=False
        )

    def step(self, shards: list[Shard]) -> list[Tensor]:
        (shard,) = shards
        self.gradients.zero_()
        for stretch in self.stretches:
            stretch.terms = shard.batch.global_loss_terms
        with phase("forward_backward"):
            losses = self._passed(shard.device)
        with phase("merge"):
            self._share()
            self.alike.all_reduce(self.gradients)
        with phase("update"):
            self.optimizer.step()
        zero = torch.zeros((), device=self.device.torch, dtype=self.device.dtype)
        return [torch.stack([loss.detach() for loss in losses]).sum() if losses else zero]

    def _passed(self, arrays: Values) -> list[Tensor]:
        """All micro-batches forward and back; their shares of the loss, on the last stage."""
        losses: list[Tensor] = []
        if self.degree == 1:
            for cut in self._cuts(arrays):
                losses.append(self.stretches[0](**cut).sum())
                losses[-1].backward()
            return losses
        if self.schedule is None:
            self.schedule = self._scheduled(arrays)
        begin = next(iter(arrays.values()))
        given = (begin,) if self.sharing.index == 0 else ()
        self.schedule.step(*given, target=begin, losses=losses, return_outputs=False, **arrays)
        return losses

    def _cuts(self, arrays: Values) -> list[Values]:
        parts = self.context.run.micro_batches or 1
        cut = {name: array.tensor_split(parts) for name, array in arrays.items()}
        return [{name: each[part] for name, each in cut.items()} for part in range(parts)]

    def _share(self) -> None:
        """Add up gradients of what the first and the last stage both keep."""
        ends = (0, self.degree - 1)
        if self.degree == 1 or self.sharing.index not in ends:
            return
        here = self.rank - self.sharing.index
        peer = here + ends[self.sharing.index == 0]
        for name in shared_in([section for stage in self.stages for section in stage]):
            own = self.parameters[name].grad
            assert own is not None
            sent, other = own.contiguous(), torch.empty_like(own.contiguous())
            self.wire.exchange([(peer, sent)], [(peer, other)])
            own.add_(other)

    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        """Its stages' variables; what both ends keep counts as the first one's."""
        for name, parameter in self.parameters.items():
            if name not in self.shared:
                yield name, parameter

    def optimizers_of(self, rank: int) -> list[torch.optim.Optimizer]:
        return [self.optimizer]

    def full_values(self, rank: int | None = None) -> dict[str, Tensor]:
        """All variables put together again, of this rank's copy of the model."""
        mine = {name: value.detach().cpu().contiguous() for name, value in self.owned(self.rank)}
        everyone: list[dict[str, Tensor]] = (
            object_collectives.all_gather(mine) if self.replicas > 1 else [mine]
        )
        first = self.rank - self.sharing.index
        every = {
            name: value
            for part in everyone[first : first + self.degree]
            for name, value in part.items()
        }
        return {variable.name: every[variable.name] for variable in self.context.model.variables}
