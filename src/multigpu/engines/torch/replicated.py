"""Placements that keep all variables on every replica and differ in how gradients merge."""

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from multigpu.collectives.spec import LIBRARY
from multigpu.engines.common.context import Carries
from multigpu.engines.torch.buckets import BUCKET_MIB, BucketReducer
from multigpu.engines.torch.compressed import compression_of
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.loss_scale import LossScale
from multigpu.engines.torch.masters import Masters
from multigpu.engines.torch.messages import WIRE_TYPES, Messages
from multigpu.engines.torch.own_update import job_of, own_optimizer, settle
from multigpu.engines.torch.symmetric_memory import PeerMemory
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context, Trainer, total_of
from multigpu.engines.torch.variables import (
    add_in_order,
    begun,
    flat_gradients,
    make_optimizer,
    strided_view,
)
from multigpu.placements.traffic import laid_out


class ReplicatedTrainer(Trainer):
    """Variables, slots and update on every replica. merge = "all_reduce" with overlap: the
    library's DistributedDataParallel, or its schedule written out for captured steps; without: one
    all-reduce after backward, or the messages that the Run asks for (`Messages`);
    "copy": every replica receives every other's gradients and adds them up itself; "none": nothing
        travels.
    """

    carries = Carries(
        {"all_reduce": (False, True), "copy": (False,), "none": (False,)}, algorithms=True
    )

    takes_terms = True
    masters: Masters | None = None
    messages: Messages | None = None
    gradients: Tensor | None = None
    reducer: BucketReducer | None = None
    wrapped: DistributedDataParallel | None = None

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        device, dtype = self.device.torch, self.device.dtype
        self.parameters = begun(self.module, context.model, context.run.seed, device, dtype)
        run, placement = context.run, context.placement
        self.job = job_of(context.model)
        self.compression = compression_of(run, self.wire)
        if run.precision == "bf16_params" and placement.variables == "replica":
            self.masters = Masters(self.parameters)
        self.scale = LossScale(device, run.loss_scale) if run.precision == "fp16" else None
        send = run.bucket_send or ""
        divided = placement.update == "sharded" and send.startswith("copied")
        in_buckets = divided or (placement.reduction == "all_reduce" and placement.overlap)
        if in_buckets and context.captured:
            wire_type = WIRE_TYPES[run.wire_dtype] if run.wire_dtype else None
            copied = send.startswith("copied") and self.replicas > 1
            self.reducer = BucketReducer(
                list(self.parameters.values()),
                self._optimizer,
                self.wire,
                run.bucket_mib or BUCKET_MIB,
                wire_type,
                self.scale,
                run.bucket_update == "in_backward",
                grouped=send.startswith("grouped") or send == "copied_grouped",
                small_last=send.endswith("small_last"),
                together=self.job is not None,
                peers=partial(PeerMemory, dist.group.WORLD, device) if copied else None,
                divided=divided and copied,
            )
            context.closing.callback(self.reducer.close)
            if self.reducer.sums is not None:
                self.device.shared_bytes = self.reducer.sums.nbytes
            self._settle(*(optimizer for _, optimizer in self.reducer.updates))
            return
        self.optimizer = self._optimizer(list(self.parameters.values()))
        if placement.reduction == "all_reduce" and placement.overlap:
            self._wrap(counting=False)
        elif placement.reduces_gradients:
            self._flatten_gradients()
        self._settle(self.optimizer)

    def _settle(self, *optimizers: torch.optim.Optimizer) -> None:
        """Have a job's own update, which one optimizer carries out, clip and follow a schedule."""
        if self.job is not None:
            (optimizer,) = optimizers
            self.follow = settle(optimizer, self.job, self.updates_pieces, self.context.captured)

    @property
    def updates_pieces(self) -> bool:
        """Whether an optimizer here knows pieces of variables, and not whole ones."""
        placement = self.context.placement
        return "sharded" in (placement.update, placement.variables) and self.replicas > 1

    def refresh(self) -> None:
        if self.masters is not None:
            self.masters.refresh()

    def _optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        rule, captured = self.context.rule, self.context.captured
        if self.job is not None:
            own = own_optimizer(self.job, parameters)
            return own or make_optimizer(rule, parameters, captured)
        if self.masters is not None:
            return self.masters.optimizer(rule, parameters, captured)
        optimizer = make_optimizer(rule, parameters, captured)
        if self.scale is not None:
            self.scale.watch(optimizer)
        return optimizer

    def _wrap(self, counting: bool) -> None:
        """(Re)build the library's reducer. counting: by a hook, which costs 50 µs a bucket."""
        self.wrapped = None  # the old reducer takes its hooks along
        with warnings.catch_warnings():
            # newer releases deprecate the argument but offer nothing yet that leaves each replica's
            # buffers alone
            warnings.simplefilter("ignore", FutureWarning)
            # running statistics stay each replica's own (rank 0's survive): broadcasting them is no
            # part of the placement
            self.wrapped = DistributedDataParallel(
                self.module,
                broadcast_buffers=False,
                gradient_as_bucket_view=True,
                bucket_cap_mb=self.context.run.bucket_mib,
            )
        if self.compression is not None:
            self.compression.register(self.wrapped, counting)
            return
        wire_dtype = self.context.run.wire_dtype if self.replicas > 1 else None
        own_type = next(iter(self.parameters.values())).dtype
        wire_type = WIRE_TYPES[wire_dtype] if wire_dtype else own_type

        # without annotations: the library reads them, and not as text
        def compressed(state, bucket):  # type: ignore[no-untyped-def]
            # as the library's own, which refuses gloo
            small = bucket.buffer().to(wire_type).div_(self.replicas)
            arrived = dist.all_reduce(small, async_op=True).get_future()
            return arrived.then(lambda future: bucket.buffer().copy_(future.value()[0]))

        def counted(state, bucket):  # type: ignore[no-untyped-def]
            self.wire.count_all_reduce(bucket.buffer().numel() * wire_type.itemsize)
            if wire_dtype:
                return compressed(None, bucket)
            return allreduce_hook(None, bucket)  # type: ignore[arg-type]  # the default group

        if counting:
            self.wrapped.register_comm_hook(None, counted)
        elif wire_dtype:
            self.wrapped.register_comm_hook(None, compressed)

    def _flatten_gradients(self) -> None:
        """Put one stretch under all gradients: one message, or those that the Run asks for."""
        parameters, placement = list(self.parameters.values()), self.context.placement
        if placement.reduction == "all_reduce":
            self.messages = Messages(
                self.context.run, parameters, self.wire, placement.algorithm or LIBRARY
            )
            self.gradients = self.messages.flat
            return
        self.gradients = flat_gradients(parameters, self.device.torch, parameters[0].dtype)
        self.received = [torch.empty_like(self.gradients) for _ in range(self.replicas - 1)]

    def step(self, shards: list[Shard]) -> list[Tensor]:
        (shard,) = shards
        batch = shard.batch
        shared = self.context.placement.semantics.facts.loss_is_shared
        terms: int | Tensor = batch.global_loss_terms if shared else batch.loss_terms[self.rank]
        if shard.terms is not None:
            terms = shard.terms[int(shared)]
        if self.scale is not None:
            self.scale.start()
        loss = self._computed_and_reduced(shard, terms)
        with phase("update"):
            if self.reducer is not None:
                self.reducer.update()
            else:
                if self.scale is not None:
                    flat = self.gradients
                    self.scale.take_off(
                        [flat]
                        if flat is not None
                        else [p.grad for p in self.parameters.values() if p.grad is not None]
                    )
                self.optimizer.step()
            if self.scale is not None:
                self.scale.end()
        return [loss]

    def _computed_and_reduced(self, shard: Shard, terms: int | Tensor) -> Tensor:
        """Forward, backward and merge, part by part; buckets may be on their way. The loss."""
        parts, losses = self.parts(shard), []
        each = self.context.run.micro_sync == "each"
        self._forget_gradients()
        total: Tensor | None = None
        for index, (part, _) in enumerate(parts):
            last = index == len(parts) - 1
            with nullcontext() if last or each else self._no_sync():
                with phase("forward"):
                    losses.append(self._forward(part, terms))
                with phase("backward"):
                    # the library averages over replicas; shards may be unequal, so the mean over
                    # terms needs the sum
                    loss = losses[-1] * self.replicas if self.wrapped is not None else losses[-1]
                    (loss if self.scale is None else loss * self.scale.scale).backward()
            if self.reducer is not None and each and not last:
                with phase("merge"):
                    self.reducer.add_up()
            if self.gradients is None or not (last or each):
                continue
            with phase("merge"):
                self._reduce_after_backward()
                if each and len(parts) > 1:
                    total = self.gradients.clone() if total is None else total.add_(self.gradients)
                    self.gradients.zero_()
        if total is not None and self.gradients is not None:
            self.gradients.copy_(total)
        return total_of(losses)

    def _forward(self, part: Shard, terms: int | Tensor) -> Tensor:
        if self.wrapped is None:
            return self.loss(self.rank, part, terms)
        with self.device.autocast():
            return self.wrapped(part.device, None) / terms

    def _forget_gradients(self) -> None:
        if self.reducer is not None:
            self.reducer.start()
        elif self.gradients is None:
            for parameter in self.parameters.values():
                parameter.grad = None
        else:
            self.gradients.zero_()

    def _no_sync(self) -> AbstractContextManager[None]:
        """While this lasts, gradients add up here and do not merge."""
        if self.reducer is not None:
            return self.reducer.no_sync()
        return self.wrapped.no_sync() if self.wrapped is not None else nullcontext()

    def _reduce_after_backward(self) -> None:
        assert self.gradients is not None
        if self.messages is not None:
            self.messages.reduce()
        else:
            peers = [rank for rank in range(self.replicas) if rank != self.rank]
            self.wire.exchange(
                [(peer, self.gradients) for peer in peers],
                list(zip(peers, self.received, strict=True)),
            )
            add_in_order(
                [*self.received[: self.rank], self.gradients, *self.received[self.rank :]],
                self.gradients,
            )

    def skipped_steps(self) -> int | None:
        return None if self.scale is None else int(self.scale.left_out)

    def counted_step(self, shards: list[Shard]) -> tuple[list[Tensor], dict[str, int]]:
        if self.wrapped is None:
            return super().counted_step(shards)
        self._wrap(counting=True)
        result = super().counted_step(shards)
        self._wrap(counting=False)
        return result

    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        named = self.parameters if self.masters is None else self.masters.named
        yield from named.items()

    def optimizers_of(self, rank: int) -> list[torch.optim.Optimizer]:
        if self.reducer:
            return [optimizer for _, optimizer in self.reducer.updates]
        return [self.optimizer]


class ShardedUpdateTrainer(ReplicatedTrainer):
    """Variables lie end to end on every replica, and so do gradients, both cut into equal
    stretches, one a replica. The library's reduce-scatter sums a replica's stretch of the
    gradients, its optimizer knows that stretch as one parameter (all rules are element-wise), and
    the library's all-gather brings the new values to all. Where a Run has sums copied, buckets are
    divided instead, each summed, updated and sent back while backward runs.
    """

    carries = Carries({"reduce_scatter": (False,)})

    def _flatten_gradients(self) -> None:
        parameters = list(self.parameters.values())
        device, dtype = self.device.torch, self.device.dtype
        starts, length = laid_out(
            [parameter.numel() for parameter in parameters], dtype.itemsize, self.replicas
        )
        self.values = torch.zeros(length, device=device, dtype=dtype)
        for parameter, start in zip(parameters, starts, strict=True):
            parameter.data = strided_view(self.values[start:], parameter).copy_(parameter.data)
        self.gradients = torch.zeros(length, device=device, dtype=dtype)
        for parameter, start in zip(parameters, starts, strict=True):
            parameter.grad = strided_view(self.gradients[start:], parameter)
        share = length // self.replicas
        self.stretch = nn.Parameter(self.values[self.rank * share :][:share])
        self.stretch.grad = self.gradients[self.rank * share :][:share]
        own = own_optimizer(self.job, parameters, self._pieces_of) if self.job else None
        self.optimizer = own or self._optimizer([self.stretch])

    def _pieces_of(self, parameter: nn.Parameter) -> list[nn.Parameter]:
        """What of a parameter lies in this replica's stretch, as a parameter of its own."""
        size, stretch = self.values.element_size(), self.stretch.detach()
        start = (parameter.data_ptr() - stretch.data_ptr()) // size
        end = start + parameter.numel()
        if end <= 0 or start >= len(stretch) or not parameter.numel():
            return []
        piece = nn.Parameter(stretch[max(0, start) : end])
        assert self.stretch.grad is not None
        piece.grad = self.stretch.grad[max(0, start) : end]
        return [piece]

    def _reduce_after_backward(self) -> None:
        assert self.gradients is not None and self.stretch.grad is not None
        self.wire.reduce_scatter(self.stretch.grad, self.gradients)

    def step(self, shards: list[Shard]) -> list[Tensor]:
        losses = super().step(shards)
        if self.reducer is not None:  # which has brought the new values to all
            return losses
        with phase("pull"):
            self.wire.all_gather(self.values, self.stretch.detach())
        return losses
