"""Gradients scattered in buckets while backward runs, stretches updated apart (ZeRO stage 2)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from multigpu.engines.common.context import Carries
from multigpu.engines.torch.bucket import Bucket, group_by_size
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.replicated import ReplicatedTrainer, ShardedUpdateTrainer
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.variables import strided_view
from multigpu.engines.torch.wire import Wire
from multigpu.placements import traffic
from multigpu.placements.traffic import laid_out

IN_FLIGHT = 2
"""Buckets whose sums may be on their way at a time: each has all of its gradients in memory."""


class ScatteredBucket(Bucket):
    """Variables that lie together, cut into equal stretches, one a replica.

    stretch: this replica's, one parameter of its optimizer. Gradients are packed only for as long
    as they travel.
    """

    def __init__(self, parameters: list[nn.Parameter], wire: Wire) -> None:
        super().__init__(parameters, grouped=True)
        self.wire = wire
        first = parameters[0]
        sizes = [parameter.numel() for parameter in parameters]
        self.starts, length = laid_out(sizes, first.element_size(), wire.replicas)
        self.values = first.new_zeros(length)
        for parameter, view in zip(parameters, self.within(self.values), strict=True):
            parameter.data = view.copy_(parameter.data)
        share = length // wire.replicas
        self.stretch = nn.Parameter(self.values[wire.rank * share :][:share])
        self.stretch.grad = torch.zeros_like(self.stretch)
        self.packed: Tensor | None = None
        self.arriving: Tensor | None = None

    def within(self, flat: Tensor) -> list[Tensor]:
        """Each parameter's place in a stretch as long as all of them."""
        pairs = zip(self.starts, self.parameters, strict=True)
        return [strided_view(flat[start:], parameter) for start, parameter in pairs]

    def send(self, adding: bool) -> None:
        """Pack the gradients, free them, and have their sum scattered.

        adding: to what the stretch's gradient holds already.
        """
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        self.packed = torch.zeros_like(self.values)
        torch._foreach_copy_(self.within(self.packed), gradients)
        for parameter in self.parameters:
            parameter.grad = None
        own = self.stretch.grad
        assert own is not None
        self.arriving = torch.empty_like(own) if adding else own
        self.work = self.wire.start_reduce_scatter(self.arriving, self.packed)

    def arrive(self) -> None:
        """Wait for the sum (on a GPU the stream waits, not the host)."""
        if self.packed is None:
            return
        if self.work is not None:
            self.work.wait()
        own = self.stretch.grad
        if self.arriving is not own and own is not None and self.arriving is not None:
            own.add_(self.arriving)
        self.packed = self.arriving = None


class ScatteredTrainer(ShardedUpdateTrainer):
    """Gradients leave in buckets while backward runs; a replica keeps its stretch of each alone."""

    carries = Carries({"reduce_scatter": (True,)})

    def _flatten_gradients(self) -> None:
        # as backward makes their gradients
        made = [self.parameters[variable.name] for variable in self.context.model.variables[::-1]]
        groups = group_by_size(made, traffic.BUCKET_MIB, traffic.FIRST_BUCKET_MIB)
        self.buckets = [ScatteredBucket(group, self.wire) for group in groups]
        self.holding = self.adding = False
        self.under_way: list[ScatteredBucket] = []
        self.optimizer = self._optimizer([bucket.stretch for bucket in self.buckets])
        self.optimizer.register_step_pre_hook(self._all_arrive)
        hooks = [
            parameter.register_post_accumulate_grad_hook(self._hook(bucket))
            for bucket in self.buckets
            for parameter in bucket.parameters
        ]
        for hook in hooks:  # they close a circle that Python's collector does not see
            self.context.closing.callback(hook.remove)

    def _hook(self, bucket: ScatteredBucket) -> Callable[[Tensor], None]:
        def arrived(parameter: Tensor) -> None:
            if self.holding:
                return
            bucket.missing -= 1
            if parameter.is_cuda:  # another gradient of this bucket may come from another stream
                bucket.note_arrival()
            if bucket.missing:
                return
            if len(self.under_way) >= IN_FLIGHT:
                self.under_way.pop(0).arrive()
            bucket.start()
            bucket.send(self.adding)
            self.under_way.append(bucket)

        return arrived

    def _all_arrive(self, *_: Any) -> None:
        while self.under_way:
            self.under_way.pop(0).arrive()

    def _forget_gradients(self) -> None:
        self.adding = False
        for bucket in self.buckets:
            bucket.start()

    def _forward(self, part: Shard, terms: int | Tensor) -> Tensor:
        if self.under_way:  # those of the part before, to which this one's are added
            self._all_arrive()
            self.adding = True
        return super()._forward(part, terms)

    @contextmanager
    def _no_sync(self) -> Iterator[None]:
        self.holding = True
        try:
            yield
        finally:
            self.holding = False

    def step(self, shards: list[Shard]) -> list[Tensor]:
        losses = ReplicatedTrainer.step(self, shards)
        with phase("pull"):
            for bucket in self.buckets:
                self.wire.all_gather(bucket.values, bucket.stretch.detach())
        return losses
