"""What a step of a user's PyTorch job holds beside variables, gradients and optimizer states: found
by passing few samples forward and backward, every storage followed while it lives.
"""

import importlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from multigpu.engines.torch.blocks import blocks_of, recompute
from multigpu.spec.errors import JobError
from multigpu.user_model.per_batch import (
    COMPILED,
    GIVEN,
    RECOMPUTED,
    WRITTEN,
    PerBatch,
    lines_of,
    through,
)
from multigpu.workloads.own.batches import arrays_of_step, batches_of
from multigpu.workloads.own.job import Job, Precision, telling
from multigpu.workloads.own.modules import without_sparse_gradients
from multigpu.workloads.own.structure import put_together
from multigpu.workloads.own.torch import loss_of, own_module, tensors_of

FEW, MORE = 2, 4  # samples that pass, of which a batch's bytes follow


class LiveBytes(TorchDispatchMode):
    """Bytes of storages that operators made inside: alive now, and after each operator.

    gradients: bytes of the parameters' complete gradients, which are not counted as alive; made:
        the same after each operator.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.gradients = 0
        self.after: list[int] = []
        self.made: list[int] = []
        self.known: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                self.follow(tensor)
        self.after.append(self.now)
        self.made.append(self.gradients)
        return made

    def follow(self, tensor: Tensor) -> None:
        """Count a tensor's storage until it is freed; one that is known already counts once."""
        storage = tensor.untyped_storage()
        if (place := storage._cdata) not in self.known:
            self.known[place] = storage.nbytes()
            self.now += storage.nbytes()
            weakref.finalize(storage, self._freed, place)

    def _freed(self, place: int) -> None:
        self.now -= self.known.pop(place)

    def leave_out(self, tensor: Tensor) -> None:
        """Count nothing of this tensor's storage, from now on: it lies elsewhere in a forecast."""
        place = tensor.untyped_storage()._cdata
        self.now -= self.known.get(place, 0)
        self.known[place] = 0

    def give_up(self, parameter: Tensor) -> None:
        """Count a parameter's gradient, now complete, as a gradient and no longer as alive."""
        assert parameter.grad is not None
        self.leave_out(parameter.grad)
        self.gradients += parameter.nbytes


class CompiledBytes(LiveBytes):
    """The same of a compiled step, inside which the compiler does its work."""

    supports_higher_order_operators = True  # which save a generator's state of what is recomputed

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True


def _followed(
    job: Job, module: nn.Module, rows: int | None, precision: Precision, compiled: bool
) -> LiveBytes:
    """Run a step on so many samples of the first batch (None: all), without gradients at its begin,
    and return the bytes that were alive after each of its operators.
    """
    structure, arrays = arrays_of_step(batches_of("torch", job, job.batch_size, 1, 0, 0), 0)
    device = next((tensor.device for tensor in module.parameters()), torch.device("cpu"))
    few = tensors_of([array[:rows] for array in arrays], torch.float32)
    batch = {name: tensor.to(device) for name, tensor in few.items()}

    def loss() -> Tensor:
        return loss_of(job, module, put_together(structure, batch))

    with torch.random.fork_rng(devices=[]), telling("backward", job.made_at):
        return live_in_step(module, batch, loss, precision, compiled)


def live_in_step(
    module: nn.Module,
    batch: Mapping[str, Tensor],
    loss: Callable[[], Tensor],
    precision: Precision,
    compiled: bool = False,
) -> LiveBytes:
    """Pass a module's batch forward and backward, and return the bytes that were alive; of a
    compiled one in a second step.
    """
    mixed: AbstractContextManager[Any] = nullcontext()
    if precision in ("bf16", "fp16"):
        device = next(iter(batch.values())).device
        mixed = torch.autocast(device.type, torch.bfloat16)
    if compiled:
        with mixed:
            found = loss()
        found.backward()
    live = CompiledBytes() if compiled else LiveBytes()
    for tensor in [*module.parameters(), *module.buffers()]:
        live.leave_out(tensor)
    hooks = []
    for parameter in module.parameters():
        parameter.grad = None
        if parameter.requires_grad:
            hooks.append(parameter.register_post_accumulate_grad_hook(live.give_up))
    with live:
        for tensor in batch.values():
            live.follow(tensor)
        with mixed:
            found = loss()
        found.backward()
    for hook in hooks:
        hook.remove()
    return live


def flops_of(module: nn.Module, forward: Callable[[], Any]) -> int:
    """Count a forward pass's operations, those of recurrent layers, whose kernels hide them, by
    their weights and positions.
    """
    found = list[int]()

    def recurrent(layer: nn.RNNBase, inputs: tuple[Any, ...]) -> None:
        first = inputs[0]
        packed = isinstance(first, PackedSequence)
        positions = len(first.data) if packed else first.numel() // first.shape[-1]
        weights = sum(weight.numel() for weight in layer.parameters() if weight.ndim == 2)
        found.append(2 * positions * weights)

    with FlopCounterMode(display=False) as counter, ExitStack() as hooks:
        for layer in module.modules():
            if isinstance(layer, nn.RNNBase):
                hooks.enter_context(layer.register_forward_pre_hook(recurrent))
        forward()
    return counter.get_total_flops() + sum(found)


def activations_of(
    job: Job,
    precision: Precision,
    recomputed: bool = False,
    module: nn.Module | None = None,
    compiled: bool = False,
) -> PerBatch | None:
    """Return what a step's batch holds at most on a device; None: recomputed, and no block repeats.

    module: the job's model, which recomputes its blocks, or is compiled, from now on where that is
    asked for (None: it is made).

    Raises:
        JobError: the model does not compute; the sentence has the user's own line.
    """
    module = own_module(job) if module is None else module
    blocks = blocks_of(module, None) if recomputed else {}
    if recomputed and not blocks:
        return None
    for block in blocks.values():
        recompute(block)
    if compiled:
        compiler = importlib.import_module("multigpu.user_model.compiled")  # takes seconds
        module.compile(backend=compiler.counting, dynamic=False)
    step = partial(_followed, job, module, precision=precision, compiled=compiled)
    trained = sum(parameter.nbytes for parameter in module.parameters() if parameter.requires_grad)
    more = min(MORE, job.batch_size)
    few = max(1, min(FEW, more - 1))
    try:
        low, high = step(few), step(more)
    except JobError:  # it takes no other number of samples
        few = more = job.batch_size
        low = high = step(None)
    made = [count / trained for count in high.made]
    return through(few, low.after, more, high.after, made)


def told_of(job: Job, devices: Sequence[str] = ("cpu",), compiled: bool = False) -> dict[str, Any]:
    """Return what a batch holds on a device as a description tells it: by whether blocks are
    recomputed, as far as any repeat; or why that cannot be followed, which stops nothing.

    devices: where it is tried, one after the other. compiled: as a compiled step, too, where it can
    be followed so, which takes seconds.
    """
    why = ""
    for device in devices:
        found: dict[str, list[tuple[float, ...]]] = {}
        try:
            for way, recomputed in ((WRITTEN, False), (RECOMPUTED, True)):
                for suffix in ("", COMPILED)[: 1 + compiled]:
                    module = own_module(job).to(device)
                    without_sparse_gradients(module)  # as placements train it
                    # what is not as written may fail where that can be followed
                    with suppress(*(Exception,) if suffix or recomputed else ()):
                        one = activations_of(job, job.precision, recomputed, module, bool(suffix))
                        found |= {way + suffix: lines_of(one)} if one is not None else {}
            arrays = arrays_of_step(batches_of("torch", job, job.batch_size, 1, 0, 0), 0)[1]
            size = sum(tensor.nbytes for tensor in tensors_of(arrays, torch.float32).values())
            found[GIVEN] = [(0.0, size / job.batch_size)]
            return {"activations": found}
        except MemoryError:
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
    return {"unforecast": why}
