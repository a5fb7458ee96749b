"""Overlapped all-reduce written out: gradients leave in buckets while backward still runs, each
updated as it returns. The schedule is DistributedDataParallel's, without state on the host, so that
a step can be one CUDA graph. An update may run beside backward (`in_backward`): when all gradients
of a bucket are there, this step has used its variables for the last time.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from multigpu.engines.torch.copied_sums import Awaited, CopiedSums, Peers
from multigpu.engines.torch.loss_scale import LossScale
from multigpu.engines.torch.variables import views_of
from multigpu.engines.torch.wire import Wire
from multigpu.placements.traffic import BUCKET_MIB, FIRST_BUCKET_MIB, neighbours

LAST_BUCKET_MIB = 1.0  # where the small bucket is the last one, whose travel nothing can hide


class Bucket:
    """Gradients that travel together: packed into `flat`, or from where they are (`grouped`).

    flat: memory for them, end to end, if not of the bucket's own.
    """

    def __init__(
        self, parameters: list[nn.Parameter], grouped: bool = False, flat: Tensor | None = None
    ) -> None:
        self.parameters, self.grouped = parameters, grouped
        self.start()
        self.summed: list[Tensor] = []
        self.flat = flat
        if flat is None and not grouped and len(parameters) > 1:
            self.flat = parameters[0].new_empty(sum(p.numel() for p in parameters))
        if self.flat is not None:
            self.views = views_of(self.flat, parameters)

    def start(self) -> None:
        """Before a backward: no gradient has come."""
        self.missing = len(self.parameters)
        self.work: Awaited | None = None
        self.arrivals: dict[int, torch.cuda.Event] = {}
        self.messages: list[Tensor] = []
        self.travelling: list[Tensor] = []
        self.kept: list[Tensor] = []

    def note_arrival(self) -> None:
        """A gradient is there, on the current stream; with the last, this waits for all others.
        Each wait is an edge of a captured graph, and edges cost time: a grouped bucket waits once a
        stream, a packed one for each gradient, so that its Records go on meaning one thing.
        """
        stream = torch.cuda.current_stream()
        if self.missing:
            place = stream.cuda_stream if self.grouped else len(self.arrivals)
            self.arrivals[place] = stream.record_event()
            return
        for other, event in self.arrivals.items():
            if not self.grouped or other != stream.cuda_stream:
                event.wait()

    def pack(self) -> list[Tensor]:
        """The bucket's gradients as they are to be merged: one tensor, or each where it is."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        self.kept = gradients  # another stream may still read them when backward wants their memory
        if self.flat is None:
            return gradients
        torch._foreach_copy_(self.views, gradients)
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.grad = view
        return [self.flat]


def start_all_reduce(tensors: list[Tensor]) -> Any:
    """Sum each over replicas, in place, in one call of the library; what to wait for."""
    if len(tensors) == 1:
        return dist.all_reduce(tensors[0], async_op=True)
    with dist._coalescing_manager(async_ops=True) as together:
        for tensor in tensors:
            dist.all_reduce(tensor)
    return together


def group_by_size(
    parameters: list[nn.Parameter], limit_mib: float, first_mib: float
) -> list[list[nn.Parameter]]:
    """Neighbours together as `traffic.neighbours` says."""
    sizes = [parameter.numel() * parameter.element_size() for parameter in parameters]
    return [
        [parameters[index] for index in group] for group in neighbours(sizes, limit_mib, first_mib)
    ]


def with_small_last(parameters: list[nn.Parameter], limit_mib: float) -> list[list[nn.Parameter]]:
    """As `group_by_size`, but small is the last group, for which a step waits."""
    size, kept = 0.0, len(parameters)
    while kept and size < LAST_BUCKET_MIB:
        kept -= 1
        size += parameters[kept].numel() * parameters[kept].element_size() / 2**20
    groups = group_by_size(parameters[:kept], limit_mib, limit_mib) if kept else []
    return [*groups, parameters[kept:]]


@contextmanager
def beside(
    stream: torch.cuda.Stream | None, after: torch.cuda.Stream | None = None
) -> Iterator[None]:
    """Launch on `stream` inside, behind the current stream and `after`; None: no other stream."""
    if stream is None:
        yield
        return
    stream.wait_stream(torch.cuda.current_stream())
    if after is not None:
        stream.wait_stream(after)
    with torch.cuda.stream(stream):
        yield


class BucketReducer:
    """Sums gradients over replicas, bucket by bucket, as backward produces them.
    parameters: as declared; the first backward is assumed to produce them in reverse.
    make_optimizer: the rule over some parameters. Each bucket has its own, so that early ones are
        updated while the last still travel; with `small_last`, all but the last share one unless
        they are updated in backward.
    bucket_mib: where a bucket ends (megabytes of 2^20 bytes); the first ends at 1 MiB at most.
    wire_type: in which gradients travel; None: in their own.
    scale: of the loss, to be taken off; an update then waits for all buckets: any may overflow.
    in_backward: update a bucket when it is back, during backward; a lone replica packs nothing.
    grouped: send a bucket's gradients from where they are, in one call, and wait for nothing that
        the order of a stream ensures.
    together: one optimizer knows all parameters, in their own order, and waits for all buckets.
    peers: makes memory that all replicas reach; buckets are then packed into it and summed by
        copies between devices (`CopiedSums`). None: the library's all-reduce.
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        make_optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
        wire: Wire,
        bucket_mib: float = BUCKET_MIB,
        wire_type: torch.dtype | None = None,
        scale: LossScale | None = None,
        in_backward: bool = False,
        grouped: bool = False,
        small_last: bool = False,
        together: bool = False,
        peers: Callable[[int, torch.dtype], Peers] | None = None,
    ) -> None:
        if in_backward and scale is not None:
            raise ValueError(
                "a scaled loss is checked for overflows over all buckets: update after backward"
            )
        self.wire = wire
        self.cuda, self.own_type = parameters[0].is_cuda, parameters[0].dtype
        self.wire_type = wire_type
        self.scale = scale
        self.in_backward, self.holding = in_backward, False
        # packing must not wait for the update of the bucket before, which waits for the wire
        self.packing, self.updating = (
            torch.cuda.Stream(parameters[0].device) if in_backward and self.cuda else None
            for _ in range(2)
        )
        made = parameters[::-1]  # as backward makes their gradients
        if small_last:
            groups = with_small_last(made, bucket_mib)
        else:
            groups = group_by_size(made, bucket_mib, min(FIRST_BUCKET_MIB, bucket_mib))
        self.sums = self._copied_sums(groups, peers) if peers and wire.replicas > 1 else None
        self.buckets = [
            Bucket(group, grouped, self._memory_of(index)) for index, group in enumerate(groups)
        ]
        parts = [[bucket] for bucket in self.buckets]
        if small_last and not in_backward and len(parts) > 1:
            parts = [self.buckets[:-1], self.buckets[-1:]]
        self.updates = [
            (part, make_optimizer([p for bucket in part for p in bucket.parameters]))
            for part in ([] if together else parts)
        ] or [(self.buckets, make_optimizer(parameters))]
        optimizers = [optimizer for part, optimizer in self.updates for _ in part]
        self.hooks = [
            parameter.register_post_accumulate_grad_hook(self._hook(bucket, optimizer))
            for bucket, optimizer in zip(self.buckets, optimizers, strict=True)
            for parameter in bucket.parameters
        ]

    def _copied_sums(
        self, groups: list[list[nn.Parameter]], peers: Callable[[int, torch.dtype], Peers]
    ) -> CopiedSums:
        """Lay out groups of parameters, as they travel, in memory that all replicas reach."""
        first = groups[0][0]
        counts = [sum(parameter.numel() for parameter in group) for group in groups]
        stream = torch.cuda.Stream(first.device, priority=-1) if self.cuda else None
        return CopiedSums(counts, peers, self.wire.replicas, self.wire_type or first.dtype, stream)

    def _memory_of(self, index: int) -> Tensor | None:
        """Return where copied sums find a bucket's gradients; None: the bucket has its own."""
        if self.sums is None:
            return None
        if self.wire_type is None:
            return self.sums.stretch(index)
        return self.sums.stretch(index).new_empty(self.sums.counts[index], dtype=self.own_type)

    def _hook(self, bucket: Bucket, optimizer: torch.optim.Optimizer) -> Callable[[Tensor], None]:
        def arrived(parameter: Tensor) -> None:
            if self.holding:
                return
            bucket.missing -= 1
            if self.cuda:  # another gradient of this bucket may come from another stream
                bucket.note_arrival()
            if bucket.missing:
                return
            if not self.in_backward:
                self._send(bucket)
                return
            with beside(self.packing):
                self._send(bucket)
            with beside(self.updating, after=self.packing):
                self._arrive(bucket)
                optimizer.step()

        return arrived

    def close(self) -> None:
        """Remove hooks: they close a circle that Python's collector does not see."""
        for hook in self.hooks:
            hook.remove()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """While this lasts, gradients add up where they are and none is sent."""
        self.holding = True
        try:
            yield
        finally:
            self.holding = False

    def _send(self, bucket: Bucket) -> None:
        if self.in_backward and self.wire.replicas == 1:
            return
        bucket.messages = bucket.travelling = bucket.pack()
        if self.wire.replicas > 1:
            if self.sums is not None:
                self._copy(bucket, self.sums)
                return
            if self.wire_type is not None:
                bucket.travelling = [message.to(self.wire_type) for message in bucket.messages]
            self.wire.count_all_reduce(sum(message.nbytes for message in bucket.travelling))
            bucket.work = start_all_reduce(bucket.travelling)

    def _copy(self, bucket: Bucket, sums: CopiedSums) -> None:
        """Have a packed bucket summed by copies; its sum is waited for as the library's is."""
        index = self.buckets.index(bucket)
        stretch = sums.stretch(index)
        if self.wire_type is not None:
            stretch.copy_(bucket.messages[0])
            bucket.travelling = [stretch]
        self.wire.count_all_reduce(stretch.nbytes)
        bucket.work = sums.start(index)

    def start(self) -> None:
        for bucket in self.buckets:
            bucket.start()
            for parameter in bucket.parameters:
                parameter.grad = None

    def add_up(self) -> None:
        """After the backward of a part of the step: keep its sums, for those of the last part."""
        for bucket in self.buckets:
            self._arrive(bucket)
            if bucket.summed:
                torch._foreach_add_(bucket.summed, bucket.messages)
            else:
                bucket.summed = [message.clone() for message in bucket.messages]
        self.start()

    def update(self) -> None:
        """After a backward: update each bucket as it returns, or wait for what was done."""
        if self.in_backward:
            for aside in (self.packing, self.updating):
                if aside is not None:
                    torch.cuda.current_stream().wait_stream(aside)
            return
        for part, optimizer in self.updates:
            for bucket in part:
                self._arrive(bucket)
                if bucket.summed:
                    torch._foreach_add_(bucket.messages, bucket.summed)
                    bucket.summed = []
            if self.scale is None:
                optimizer.step()
        if self.scale is not None:
            self.scale.take_off([message for bucket in self.buckets for message in bucket.messages])
            for _, optimizer in self.updates:
                optimizer.step()

    def _arrive(self, bucket: Bucket) -> None:
        """Have the stream wait for a bucket's sum, and bring it to the gradients' own type."""
        if bucket.work is None:
            return
        bucket.work.wait()
        if self.wire_type is not None:
            torch._foreach_copy_(bucket.messages, bucket.travelling)
