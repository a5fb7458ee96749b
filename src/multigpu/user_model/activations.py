"""What a step of a user's PyTorch job holds beside variables, gradients and optimizer states: found
by passing few samples forward and backward on the CPU, every storage followed while it lives.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from multigpu.engines.torch.blocks import blocks_of, recompute
from multigpu.spec.errors import JobError
from multigpu.workloads.own.batches import arrays_of_step, batches_of, put_together
from multigpu.workloads.own.job import Job, Precision, telling
from multigpu.workloads.own.torch import loss_of, own_module, tensors_of

FEW, MORE = 2, 4  # samples that pass, of which a batch's bytes follow
MOST = 2**31  # samples of a batch


class LiveBytes(TorchDispatchMode):
    """The bytes of storages that operators made inside: those alive now, and after each of these
    operators.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.after: list[int] = []
        self.known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                self.follow(tensor)
        self.after.append(self.now)
        return made

    def follow(self, tensor: Tensor) -> None:
        """Count a tensor's storage until it is freed; one that is known already counts once."""
        storage = tensor.untyped_storage()
        if (place := storage._cdata) not in self.known:
            self.known.add(place)
            self.now += storage.nbytes()
            weakref.finalize(storage, self._freed, place, storage.nbytes())

    def _freed(self, place: int, count: int) -> None:
        self.known.discard(place)
        self.now -= count

    def leave_out(self, tensor: Tensor) -> None:
        """Count nothing of this tensor's storage, which lies elsewhere in a forecast."""
        self.known.add(tensor.untyped_storage()._cdata)


class PerBatch(NamedTuple):
    """Bytes of a batch at each moment of a step: `fixed`, and `each` for every sample."""

    fixed: np.ndarray
    each: np.ndarray

    def of(self, samples: int) -> float:
        """Return the bytes of so many samples when they are most."""
        return float((self.fixed + self.each * samples).max())

    def most_samples(self, room: float) -> int:
        """Return how many samples' bytes are in `room` at every moment; 0: not one's."""
        if self.of(1) > room:
            return 0
        grows = self.each > 0
        return int(((room - self.fixed[grows]) / self.each[grows]).min(initial=MOST))


def through(few: int, low: Sequence[int], more: int, high: Sequence[int]) -> PerBatch:
    """Return what any number of samples holds, from the bytes of two, moment by moment; where their
    moments do not match, from the most of each, and with one number, all as the samples' own.
    """
    if len(low) != len(high):
        low, high = [max(low)], [max(high)]
    first, second = np.array(low, dtype=float), np.array(high, dtype=float)
    if more == few:
        return PerBatch(np.zeros(1), second.max(keepdims=True) / more)
    each = np.maximum(0.0, (second - first) / (more - few))
    return PerBatch(np.maximum(0.0, second - each * more), each)


def _step_bytes(job: Job, rows: int | None, precision: Precision, recomputed: bool) -> list[int]:
    """The bytes alive after each operator of a step on so many samples of the first batch (None:
    all), without the parameters' gradients.
    """
    module = own_module(job)
    if recomputed:
        for block in blocks_of(module, None).values():
            recompute(block)
    structure, arrays = arrays_of_step(batches_of("torch", job, job.batch_size, 1, 0, 0), 0)
    batch = tensors_of([array[:rows] for array in arrays], torch.float32)
    mixed: AbstractContextManager[Any] = nullcontext()
    if precision in ("bf16", "fp16"):
        mixed = torch.autocast("cpu", torch.bfloat16)
    live = LiveBytes()
    for tensor in [*module.parameters(), *module.buffers()]:
        live.leave_out(tensor)
    for parameter in module.parameters():
        if parameter.requires_grad:  # a gradient is added to one that is there, and counted there
            parameter.grad = torch.zeros_like(parameter)
            live.leave_out(parameter.grad)
    with torch.random.fork_rng(devices=[]), live:
        for tensor in batch.values():
            live.follow(tensor)
        with mixed:
            loss = loss_of(job, module, put_together(structure, batch))
        with telling("backward", job.made_at):
            loss.backward()
    return live.after


def activations_of(job: Job, precision: Precision, recomputed: bool = False) -> PerBatch | None:
    """Return what a step's batch holds at most on a device; None: recomputed, and no block repeats.

    Raises:
        JobError: the model does not compute; the sentence has the user's own line.
    """
    if recomputed and not blocks_of(own_module(job), None):
        return None
    step = partial(_step_bytes, job, precision=precision, recomputed=recomputed)
    more = min(MORE, job.batch_size)
    few = max(1, min(FEW, more - 1))
    try:
        return through(few, step(few), more, step(more))
    except JobError:
        whole = step(None)  # it takes no other number of samples
        return through(job.batch_size, whole, job.batch_size, whole)
