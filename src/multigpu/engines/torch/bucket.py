"""Gradients that travel together while backward still runs, and which ones those are."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from multigpu.engines.torch.copied_sums import ALIGNED, Awaited
from multigpu.engines.torch.variables import views_of
from multigpu.placements.traffic import neighbours

LAST_BUCKET_MIB = 1.0  # where the small bucket is the last one, whose travel nothing can hide
UNPACKED_MIB = 1.0
"""Gradients of this size or more are worth a copy of their own to each other replica."""


class Bucket:
    """Gradients that travel together: packed into `flat`, or from where they are (`grouped`).

    flat: memory for them, each at a multiple of `ALIGNED` numbers, if not of the bucket's own. A
        grouped bucket's large gradients, which come first, are summed into it from where they are.
    """

    def __init__(
        self, parameters: list[nn.Parameter], grouped: bool = False, flat: Tensor | None = None
    ) -> None:
        self.parameters, self.grouped = parameters, grouped
        self.start()
        self.summed: list[Tensor] = []
        self.flat = flat
        self.unpacked = sum(map(is_large, parameters)) if grouped else 0
        if flat is None and not grouped and len(parameters) > 1:
            self.flat = parameters[0].new_empty(sum(p.numel() for p in parameters))
        if self.flat is not None:
            self.views = views_of(self.flat, parameters, 1 if flat is None else ALIGNED)

    def start(self) -> None:
        """Before a backward: no gradient has come."""
        self.missing = len(self.parameters)
        self.work: Awaited | None = None
        self.arrivals: dict[int, torch.cuda.Event] = {}
        self.messages: list[Tensor] = []
        self.travelling: list[Tensor] = []
        self.kept: list[Tensor] = []
        self.elsewhere: dict[int, Tensor] = {}

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
        large = zip(self.views[: self.unpacked], gradients, strict=False)
        self.elsewhere = {
            number: gradient.as_strided((gradient.numel(),), (1,))
            for number, (view, gradient) in enumerate(large)
            if gradient.stride() == view.stride()
        }
        packed = [number for number in range(len(gradients)) if number not in self.elsewhere]
        if packed:
            torch._foreach_copy_(
                [self.views[number] for number in packed], [gradients[number] for number in packed]
            )
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.grad = view
        return [self.flat]


def is_large(parameter: Tensor) -> bool:
    """Return whether this parameter's gradient is summed by copies from where backward left it."""
    return parameter.nbytes >= UNPACKED_MIB * 2**20


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
