"""Placements dispatched by one thread for all devices: copies of a model, or a pipeline."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from multigpu.engines.common.context import Carries
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context, Trainer
from multigpu.engines.torch.variables import add_in_order, begun, flat_gradients, make_optimizer
from multigpu.engines.torch.wire import Copy
from multigpu.placements.partition import bounds, section_places
from multigpu.placements.resolve import dims_of, shard_sizes
from multigpu.spec.errors import Unsupported
from multigpu.spec.stage_graph import Crossing
from multigpu.workloads import import_part

Values = dict[str, Tensor]


class DispatchedTrainer(Trainer):
    """Each device with its variables and update; `flat`: their gradients as one stretch."""

    def __init__(self, context: Context, flat: bool = True) -> None:
        super().__init__(context)
        self.parameters: list[dict[str, nn.Parameter]] = []
        self.gradients: list[Tensor] = []
        self.optimizers: list[torch.optim.Optimizer | None] = []
        for rank, module in self.modules.items():
            device, dtype = self.devices.each[rank].torch, self.devices.dtype
            self.parameters.append(
                begun(module, context.model, context.run.seed, device, dtype, self.kept(rank))
            )
            own = list(self.parameters[-1].values())
            self.optimizers.append(make_optimizer(context.rule, own) if own else None)
            if flat:
                self.gradients.append(flat_gradients(own, device, dtype))

    def kept(self, rank: int) -> set[str] | None:
        """Names of the variables that the device has; None: all."""
        return None

    def update(self) -> None:
        with phase("update"):
            for rank, optimizer in enumerate(self.optimizers):
                if optimizer is not None:
                    with self.devices.at(rank):
                        optimizer.step()

    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        yield from self.parameters[rank].items()

    def optimizers_of(self, rank: int) -> list[torch.optim.Optimizer]:
        own = self.optimizers[rank]
        return [] if own is None else [own]


class CopiesTrainer(DispatchedTrainer):
    """All variables on every replica, merged after backward, by copies, or not at all."""

    carries = Carries({"all_reduce": (False,), "copy": (False,), "none": (False,)})

    def __init__(self, context: Context) -> None:
        placement, self.reduction = context.placement, context.placement.reduction
        if placement.overlap or self.reduction not in ("all_reduce", "copy", "none"):
            how = "during backward" if placement.overlap else f"by {self.reduction!r}"
            raise Unsupported(
                f"placement {placement.name!r} merges {how}, which one PyTorch process for all"
                " devices does not do"
            )
        super().__init__(context, flat=self.reduction != "none")
        # [rank][peer]: what replica `rank` receives, by the peer it comes from
        self.received: list[dict[int, Tensor]] = [{} for _ in self.modules]
        if self.reduction == "copy":
            for rank, gradients in enumerate(self.gradients):
                self.received[rank] = {
                    peer: torch.empty_like(gradients)
                    for peer in range(self.replicas)
                    if peer != rank
                }

    def step(self, shards: list[Shard]) -> list[Tensor]:
        losses = []
        for rank, (shard, optimizer) in enumerate(zip(shards, self.optimizers, strict=True)):
            if self.gradients:
                self.gradients[rank].zero_()
            elif optimizer is not None:
                optimizer.zero_grad(set_to_none=True)
            terms = (
                shard.batch.global_loss_terms if self.gradients else shard.batch.loss_terms[rank]
            )
            losses.append(self.forward(rank, shard, terms))
        self.backward(losses)
        with phase("merge"):
            if self.reduction == "all_reduce":
                self.wire.all_reduce(self.gradients)
            elif self.reduction == "copy":
                self._reduce_copies()
        self.update()
        return [loss.detach() for loss in losses]

    def _reduce_copies(self) -> None:
        self.wire.copy_all(
            [
                Copy(peer, self.gradients[peer], rank, target)
                for rank, own in enumerate(self.received)
                for peer, target in own.items()
            ]
        )
        for rank, received in enumerate(self.received):
            add_in_order(
                [received.get(peer, self.gradients[rank]) for peer in range(self.replicas)],
                self.gradients[rank],
            )


@dataclass
class Pass:
    """One micro-batch of one copy of the model on its way through the stages. arrays, received:
    [stage] of the batch, and leaves that came.
    given: tensors that cross, as their own stage holds them. returned: their gradients from each
        stage that took them.
    """

    arrays: list[Values]
    received: list[Values]
    given: Values = field(default_factory=dict)
    returned: dict[str, list[Tensor]] = field(default_factory=dict)
    loss: Tensor | None = None


class PipelineTrainer(DispatchedTrainer):
    """Copies of a model whose sections are spread over `degree` devices each. All micro-batches
    pass forward, then all back (GPipe's schedule, without recomputing); gradients add up in place.
    """

    carries = Carries({"sections": (False,)})

    def __init__(self, context: Context) -> None:
        run, model = context.run, context.model
        self.degree = dims_of(run).degree
        self.copies = dims_of(run).copies
        self.micro_batches = run.micro_batches or 1
        places = section_places(model, self.degree)
        self.sections = [
            [each for each in model.graph.stages if places[each.name] == stage]
            for stage in range(self.degree)
        ]
        self.crossings = model.graph.crossings(places)
        super().__init__(context)
        functions = import_part(run.workload, "torch").section_functions
        self.compute: list[dict[str, Callable[[Values], Values]]] = [
            functions(module) for module in self.modules.values()
        ]
        self.kind = torch.bfloat16 if run.precision == "bf16" else self.devices.dtype
        self.zeros = [torch.zeros((), device=d.torch, dtype=d.dtype) for d in self.devices.each]

    def kept(self, rank: int) -> set[str] | None:
        return {name for section in self.sections[rank % self.degree] for name in section.variables}

    def step(self, shards: list[Shard]) -> list[Tensor]:
        for flat in self.gradients:
            flat.zero_()
        terms = shards[0].batch.global_loss_terms
        passes = [
            [self._pass(copy, micro, shards) for copy in range(self.copies)]
            for micro in range(self.micro_batches)
        ]
        with phase("forward"):
            for together in passes:
                for stage in range(self.degree):
                    for copy, one in enumerate(together):
                        self._forward(copy, stage, one, terms)
        with phase("backward"):
            for together in reversed(passes):
                for stage in reversed(range(self.degree)):
                    for copy, one in enumerate(together):
                        self._backward(copy, stage, one)
        if self.copies > 1:
            with phase("merge"):
                for stage in range(self.degree):
                    self.wire.all_reduce(self.gradients[stage :: self.degree])
        self.update()
        losses = list(self.zeros)
        for copy in range(self.copies):
            found = [together[copy].loss for together in passes]
            losses[(copy + 1) * self.degree - 1] = torch.stack(
                [loss.detach() for loss in found if loss is not None]
            ).sum()
        return losses

    def _pass(self, copy: int, micro: int, shards: list[Shard]) -> Pass:
        """One micro-batch's rows of the arrays, on every device of the copy."""
        own = shards[copy * self.degree : (copy + 1) * self.degree]
        rows = shard_sizes(self.context.run)[copy]
        begin, end = bounds(rows, self.micro_batches, micro)
        arrays = [{name: array[begin:end] for name, array in shard.device.items()} for shard in own]
        return Pass(arrays, [{} for _ in own])

    def _forward(self, copy: int, stage: int, one: Pass, terms: int) -> None:
        rank = copy * self.degree + stage
        values = one.arrays[stage] | one.received[stage]
        with self.devices.at(rank), self.devices.each[rank].autocast():
            for section in self.sections[stage]:
                values |= self.compute[rank][section.name](values)
        if stage == self.degree - 1:
            one.loss = values["loss"] / terms
        copies = []
        for crossing in self._leaving(stage):
            source = one.given[crossing.name] = values[crossing.name].to(self.kind)
            for end in crossing.ends:
                copy_out = self._sent(rank, source.detach(), copy * self.degree + end)
                one.received[end][crossing.name] = copy_out.target
                copies.append(copy_out)
        self.wire.copy_all(copies)
        for crossing in self._leaving(stage):
            for end in crossing.ends:
                one.received[end][crossing.name].requires_grad_()

    def _sent(self, start: int, source: Tensor, end: int) -> Copy:
        """A copy into new memory of the source's layout, without holes in either."""
        target = torch.empty_like(source, device=self.devices.each[end].torch)
        return Copy(
            start,
            source if source.stride() == target.stride() else source.contiguous(),
            end,
            target,
        )

    def _leaving(self, stage: int) -> list[Crossing]:
        return [crossing for crossing in self.crossings if crossing.start == stage]

    def _backward(self, copy: int, stage: int, one: Pass) -> None:
        rank = copy * self.degree + stage
        roots: list[Tensor] = []
        gradients: list[Tensor | None] = []
        if one.loss is not None and stage == self.degree - 1:
            roots.append(one.loss)
            gradients.append(None)
        for crossing in self._leaving(stage):
            first, *others = one.returned.pop(crossing.name)
            for other in others:
                first = first + other
            roots.append(one.given.pop(crossing.name))
            gradients.append(first)
        with self.devices.at(rank):
            torch.autograd.backward(roots, gradients)  # None: of the loss by itself
        copies = []
        for crossing in self.crossings:
            if stage in crossing.ends:
                leaf = one.received[stage].pop(crossing.name)
                assert leaf.grad is not None
                copies.append(self._sent(rank, leaf.grad, copy * self.degree + crossing.start))
                one.returned.setdefault(crossing.name, []).append(copies[-1].target)
        self.wire.copy_all(copies)

    def full_values(self, rank: int | None = None) -> dict[str, Tensor]:
        """All variables on the CPU, of the copy of the model that device `rank` belongs to."""
        first = (rank or 0) // self.degree * self.degree
        every = {
            name: value
            for own in self.parameters[first : first + self.degree]
            for name, value in own.items()
        }
        return {
            v.name: every[v.name].detach().cpu().contiguous().clone()
            for v in self.context.model.variables
        }
