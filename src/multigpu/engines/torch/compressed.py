"""Gradients that replicas compress before they exchange them: hooks of DistributedDataParallel.
What a step leaves out is added to the gradients of the next one (error feedback).
"""

from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from multigpu.engines.torch.wire import Wire, gather
from multigpu.placements.compression import PLACE_BYTES, WHOLE_STEPS, kept_of
from multigpu.spec.run import Run


class Compression(Protocol):
    """A way of exchanging fewer bytes than gradients have."""

    def register(self, wrapped: DistributedDataParallel, counting: bool) -> None:
        """Have a model's reducer exchange its buckets in this way; `counting`: and count bytes."""


class PowerSgd:
    """PyTorch's hook of PowerSGD (Vogels et al., arXiv:1905.13727): matrices travel as two factors.

    Its first steps send gradients as they are, since the reducer rearranges its buckets after one,
    and what the hook keeps is of a bucket. A step that is counted is compressed at once.
    """

    def __init__(self, rank: int, wire: Wire) -> None:
        self.rank, self.wire = rank, wire

    def register(self, wrapped: DistributedDataParallel, counting: bool) -> None:
        state = PowerSGDState(
            None, matrix_approximation_rank=self.rank, start_powerSGD_iter=WHOLE_STEPS
        )
        if counting:
            state.iter = WHOLE_STEPS
        wrapped.register_comm_hook(state, self._counted if counting else powerSGD_hook)

    # without annotations: the library reads them, and not as text
    def _counted(self, state, bucket):  # type: ignore[no-untyped-def]
        before = state.total_numel_after_compression
        exchanged = powerSGD_hook(state, bucket)
        sent = state.total_numel_after_compression - before
        self.wire.count_all_reduce(sent * bucket.buffer().element_size())
        return exchanged


class TopK:
    """The largest numbers of each variable's gradient travel, with their places (as Lin et al.,
    arXiv:1712.01887, choose them).

    share: how many of a gradient's numbers travel.
    """

    def __init__(self, share: float, wire: Wire) -> None:
        self.share, self.wire, self.counting = share, wire, False
        self.left: dict[nn.Parameter, Tensor] = {}

    def register(self, wrapped: DistributedDataParallel, counting: bool) -> None:
        self.counting = counting
        wrapped.register_comm_hook(None, self._exchange)

    # without annotations: the library reads them, and not as text
    def _exchange(self, state, bucket):  # type: ignore[no-untyped-def]
        buffer: Tensor = bucket.buffer()
        chosen, start = [], 0
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            end = start + gradient.numel()
            chosen.append(self._largest(parameter, buffer[start:end]) + start)
            start = end
        places = torch.cat(chosen)
        own = torch.cat([each.view(torch.uint8) for each in (buffer[places], places.int())])
        if self.counting:
            self.wire.counts["all_gather"] += own.nbytes
        whole = own.new_empty(self.wire.replicas * own.numel())
        arrived: Future[Any] = gather(whole, own, async_op=True).get_future()
        return arrived.then(lambda _: self._mean(buffer, whole, places.numel()))

    def _largest(self, parameter: nn.Parameter, gradient: Tensor) -> Tensor:
        """Places of the numbers that travel, what was left out before added; the others are left.

        gradient: of one variable, (elements,), whatever their order.
        """
        if parameter in self.left:
            gradient += self.left[parameter]
        places = gradient.abs().topk(kept_of(gradient.numel(), self.share), sorted=False).indices
        self.left[parameter] = gradient.index_fill(0, places, 0.0)
        return places

    def _mean(self, buffer: Tensor, whole: Tensor, count: int) -> Tensor:
        """Put the mean of what all replicas sent into the bucket, in their order."""
        buffer.zero_()
        for message in whole.view(self.wire.replicas, -1):
            values, places = message.split([count * buffer.element_size(), count * PLACE_BYTES])
            # views of wider numbers begin at multiples of their bytes, which a message need not
            numbers = values.clone().view(buffer.dtype)
            buffer.index_add_(0, places.clone().view(torch.int32), numbers)
        return buffer.div_(self.wire.replicas)


def compression_of(run: Run, wire: Wire) -> Compression | None:
    """Return how a Run's replicas compress gradients; None: they do not."""
    if run.powersgd_rank is not None:
        return PowerSgd(run.powersgd_rank, wire)
    if run.top_k is not None:
        return TopK(run.top_k, wire)
    return None
