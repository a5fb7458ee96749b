"""Placements that keep all variables on every replica: what differs is how gradients merge."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from multigpu.collectives.merge import merge
from multigpu.engines.torch.buckets import BUCKET_MIB, BucketReducer
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context, Trainer
from multigpu.engines.torch.variables import initial_values, make_optimizer, materialise, strided_view


class ReplicatedTrainer(Trainer):
    """Variables, slots and update on every replica.

    merge = "all_reduce" with overlap: the library's DistributedDataParallel (buckets of 25 MB reduced during backward), or
    the same schedule written out where the step is to be captured; without overlap: one all-reduce of all gradients after
    backward, the library's or an algorithm written out; "copy": every replica receives every other's gradients and adds them
    up itself; "none": nothing travels.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        device, dtype = self.device.torch, self.device.dtype
        shapes = dict(self.module.named_parameters())
        memory = {}
        for variable, value in initial_values(context.model, context.run.seed, device, dtype):
            like = shapes[variable.name]
            memory[variable.name] = torch.empty_strided(like.shape, like.stride(), device=device, dtype=dtype).copy_(value)
        self.parameters = materialise(self.module, memory, device, dtype)
        placement = context.placement
        self.merge, self.algorithm = placement.merge, placement.algorithm
        self.wrapped: DistributedDataParallel | None = None
        self.reducer: BucketReducer | None = None
        self.gradients: Tensor | None = None
        if placement.merge == "all_reduce" and placement.overlap and context.captured:
            self.reducer = BucketReducer(list(self.parameters.values()), self._optimizer, self.wire, context.run.bucket_mib or BUCKET_MIB)
            return
        self.optimizer = self._optimizer(list(self.parameters.values()))
        if placement.merge == "all_reduce" and placement.overlap:
            self._wrap(counting=False)
        elif self.merge != "none":
            self._flatten_gradients()

    def _optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return make_optimizer(self.context.rule, parameters, self.context.captured)

    def _wrap(self, counting: bool) -> None:
        """(Re)build the library's reducer; with `counting`, its collectives pass through a hook that counts their bytes.

        Counted and uncounted steps do the same; timed steps go without the hook, which costs the host 50 us a bucket.
        """
        self.wrapped = None  # the old reducer takes its hooks along
        with warnings.catch_warnings():
            # newer releases deprecate the argument but offer nothing yet that leaves each replica's buffers alone
            warnings.simplefilter("ignore", FutureWarning)
            # running statistics stay each replica's own (rank 0's survive): broadcasting them is no part of the placement
            self.wrapped = DistributedDataParallel(
                self.module, broadcast_buffers=False, gradient_as_bucket_view=True, bucket_cap_mb=self.context.run.bucket_mib
            )
        if counting:

            def counted(state, bucket):  # type: ignore[no-untyped-def]  # the library reads annotations, and not as text
                self.wire.count_all_reduce(bucket.buffer().nbytes)
                return allreduce_hook(None, bucket)  # type: ignore[arg-type]  # None: the default group

            self.wrapped.register_comm_hook(None, counted)

    def _flatten_gradients(self) -> None:
        """One stretch of memory under all gradients, so that they travel as one message."""
        total = sum(p.numel() for p in self.parameters.values())
        self.gradients = torch.zeros(total, device=self.device.torch, dtype=self.device.dtype)
        copies = self.replicas - 1 if self.merge == "copy" else 0
        self.received = [torch.empty_like(self.gradients) for _ in range(copies)]
        start = 0
        for parameter in self.parameters.values():
            parameter.grad = strided_view(self.gradients[start : start + parameter.numel()], parameter)
            start += parameter.numel()

    def step(self, shard: Shard) -> Tensor:
        batch = shard.batch
        terms = batch.loss_terms[self.rank] if self.merge == "none" else batch.joined_loss_terms
        if self.reducer is not None:
            self.reducer.start()
            with phase("forward"):
                loss = self.loss(shard, terms)
            with phase("backward"):
                loss.backward()
            with phase("update"):
                self.reducer.update()
            return loss.detach()
        if self.wrapped is not None:
            self.optimizer.zero_grad(set_to_none=True)
            with phase("forward"), self.device.autocast():
                total = self.wrapped(shard.device, None)
                loss = total / terms
            with phase("backward"):
                # the library averages over replicas; shards may be unequal, so the mean over terms needs the sum
                (loss * self.replicas).backward()
        else:
            if self.gradients is None:
                self.optimizer.zero_grad(set_to_none=True)
            else:
                self.gradients.zero_()
            with phase("forward"):
                loss = self.loss(shard, terms)
            with phase("backward"):
                loss.backward()
            with phase("merge"):
                self._merge_after_backward()
        with phase("update"):
            self.optimizer.step()
        return loss.detach()

    def _merge_after_backward(self) -> None:
        if self.gradients is None:
            return
        if self.algorithm is not None and self.replicas > 1:
            merge(self.gradients, self.algorithm, self.wire)
        elif self.merge == "all_reduce":
            self.wire.all_reduce(self.gradients)
        else:
            peers = [rank for rank in range(self.replicas) if rank != self.rank]
            self.wire.exchange([(peer, self.gradients) for peer in peers], list(zip(peers, self.received, strict=True)))
            # in the order of ranks on every replica: sums of another order differ in the last bit, and replicas would drift apart
            parts = [*self.received[: self.rank], self.gradients, *self.received[self.rank :]]
            total = parts[0]
            for part in parts[1:]:
                total += part
            if total is not self.gradients:
                self.gradients.copy_(total)

    def counted_step(self, shard: Shard) -> tuple[Tensor, dict[str, int]]:
        if self.wrapped is None:
            return super().counted_step(shard)
        self._wrap(counting=True)
        result = super().counted_step(shard)
        self._wrap(counting=False)
        return result

    def owned(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.parameters.items()
