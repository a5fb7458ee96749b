"""Overlapped all-reduce written out: gradients leave in buckets while backward still runs, each
updated as it returns. The schedule is DistributedDataParallel's, without state on the host, so that
a step can be one CUDA graph. An update may run beside backward (`in_backward`): when all gradients
of a bucket are there, this step has used its variables for the last time.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from multigpu.engines.torch.bucket import (
    Bucket,
    beside,
    group_by_size,
    is_large,
    start_all_reduce,
    with_small_last,
)
from multigpu.engines.torch.copied_sums import ALIGNED, CopiedSums, Peers, aligned
from multigpu.engines.torch.loss_scale import LossScale
from multigpu.engines.torch.variables import views_of
from multigpu.engines.torch.wire import Wire
from multigpu.placements.traffic import BUCKET_MIB, FIRST_BUCKET_MIB


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
    peers: makes memory that all replicas reach; buckets are then summed in it by copies between
        devices (`CopiedSums`), packed or, if `grouped`, large ones from where backward left them.
        None: the library's all-reduce.
    divided: a replica updates its pieces of a bucket alone as soon as their sum is there, and the
        new values travel instead of the sum (ZeRO stage 1); with `peers` only.
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
        divided: bool = False,
    ) -> None:
        if divided and (in_backward or together or scale is not None or wire_type is not None):
            raise ValueError(
                "a divided update is each bucket's own, beside backward, of unscaled gradients in"
                " their own type"
            )
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
        self.sums: CopiedSums | None = None
        if peers and wire.replicas > 1:
            if grouped:
                groups = [sorted(group, key=is_large, reverse=True) for group in groups]
            update = self._update_pieces if divided else None
            self.sums = self._copied_sums(groups, grouped, peers, update)
        self.buckets = [
            Bucket(group, grouped, self._memory_of(index)) for index, group in enumerate(groups)
        ]
        parts = [[bucket] for bucket in self.buckets]
        if small_last and not in_backward and len(parts) > 1:
            parts = [self.buckets[:-1], self.buckets[-1:]]
        self.divided = divided and self.sums is not None
        if self.divided:
            self.updates = self._divided_updates(make_optimizer)
        else:
            self.updates = [
                (part, make_optimizer([p for bucket in part for p in bucket.parameters]))
                for part in ([] if together else parts)
            ] or [(self.buckets, make_optimizer(parameters))]
        self.optimizers = {bucket: rule for part, rule in self.updates for bucket in part}
        self.hooks = [
            parameter.register_post_accumulate_grad_hook(self._hook(bucket))
            for bucket in self.buckets
            for parameter in bucket.parameters
        ]

    def _copied_sums(
        self,
        groups: list[list[nn.Parameter]],
        grouped: bool,
        peers: Callable[[int, torch.dtype], Peers],
        update: Callable[[int], None] | None,
    ) -> CopiedSums:
        """Lay out groups of parameters, as they travel, in memory that all replicas reach."""
        first = groups[0][0]
        counts = []
        for group in groups:
            large = [parameter.numel() for parameter in group if grouped and is_large(parameter)]
            packed = sum(aligned(parameter.numel()) for parameter in group[len(large) :])
            counts.append([*large, packed])
        stream = torch.cuda.Stream(first.device, priority=-1) if self.cuda else None
        dtype = self.wire_type or first.dtype
        return CopiedSums(counts, peers, self.wire.replicas, dtype, stream, update)

    def _divided_updates(
        self, make_optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer]
    ) -> list[tuple[list[Bucket], torch.optim.Optimizer]]:
        """Lay the variables within others' reach; an optimizer knows a bucket's pieces of them."""
        assert self.sums is not None
        updates = []
        for index, bucket in enumerate(self.buckets):
            values = views_of(self.sums.stretch(index, True), bucket.parameters, ALIGNED)
            for parameter, value in zip(bucket.parameters, values, strict=True):
                parameter.data = value.copy_(parameter.data)
            pieces = []
            for value, total in self.sums.own_pieces(index):
                pieces.append(nn.Parameter(value))
                pieces[-1].grad = total
            if pieces:
                updates.append(([bucket], make_optimizer(pieces)))
        return updates

    def _update_pieces(self, index: int) -> None:
        """Update this replica's pieces of a bucket, whose sum is there."""
        optimizer = self.optimizers.get(self.buckets[index])
        if optimizer is not None:
            optimizer.step()

    def _memory_of(self, index: int) -> Tensor | None:
        """Return where copied sums find a bucket's gradients; None: the bucket has its own."""
        if self.sums is None:
            return None
        if self.wire_type is None:
            return self.sums.stretch(index)
        return self.sums.stretch(index).new_empty(self.sums.counts[index], dtype=self.own_type)

    def _hook(self, bucket: Bucket) -> Callable[[Tensor], None]:
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
                self.optimizers[bucket].step()

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
        if self.wire_type is not None:
            bucket.travelling = [sums.stretch(index)]
            bucket.travelling[0].copy_(bucket.messages[0])
            bucket.elsewhere = {}
        numbers = sum(parameter.numel() for parameter in bucket.parameters)
        size = numbers * bucket.travelling[0].element_size()
        if self.divided:
            self.wire.count_divided(size)
        else:
            self.wire.count_all_reduce(size)
        bucket.work = sums.start(index, bucket.elsewhere)

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
        if self.divided:
            for bucket in self.buckets:
                self._arrive(bucket)
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
