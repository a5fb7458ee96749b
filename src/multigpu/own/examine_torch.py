"""A user's PyTorch job, examined."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.utils.rnn import PackedSequence
from torch.utils.flop_counter import FlopCounterMode

from multigpu.measure.machine import cores_here
from multigpu.own.examine import Examination, Precision, Tried
from multigpu.workloads.own.batches import put_together
from multigpu.workloads.own.description import Table
from multigpu.workloads.own.job import Job, JobError
from multigpu.workloads.own.torch import (
    ids_of,
    loss_of,
    own_module,
    tensors_of,
    variables_of,
    without_dropout,
)


def located(ids: Tensor, batch: dict[str, Tensor], padding: int | None) -> Table | None:
    """Where in the batch these ids stand, by memory and by value; None: nowhere."""
    if ids.dtype != torch.int64 or not ids.numel():
        return None
    count = ids.numel() // len(ids)
    for leaf, tensor in batch.items():
        if (
            tensor.dtype != torch.int64
            or tensor.untyped_storage().data_ptr() != ids.untyped_storage().data_ptr()
        ):
            continue
        tried = [Table(leaf=leaf, ids=count, padding=padding)]
        if tensor.ndim == 2:
            first = int(ids.storage_offset()) - int(tensor.storage_offset())
            if ids.ndim == 1:
                tried.append(Table(leaf=leaf, column=first, ids=1, padding=padding))
            else:
                last = first + int(ids.shape[1]) - int(tensor.shape[1])
                tried.append(
                    Table(leaf=leaf, stretch=(first, last or None), ids=count, padding=padding)
                )
        for table in tried:
            if (
                (table.column or 0) < tensor.shape[-1]
                and ids.shape == (own := ids_of(table, batch)).shape
                and torch.equal(own, ids)
            ):
                return table
    return None


@contextmanager
def watched_embeddings(module: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """What each embedding layer is asked for inside, by the name of its table."""
    asked: dict[str, list[Tensor]] = {}

    def note(name: str, layer: nn.Embedding, inputs: tuple[Tensor, ...]) -> None:
        asked.setdefault(f"model.{name}.weight", []).append(inputs[0])

    with ExitStack() as hooks:
        for name, part in module.named_modules():
            if isinstance(part, nn.Embedding):
                hooks.enter_context(part.register_forward_pre_hook(partial(note, name)))
        yield asked


KINDS = {"fp32": torch.float32, "fp64": torch.float64}


class Examined(Examination):
    """Of an `nn.Module`."""

    framework: Literal["torch"] = "torch"

    def __init__(self, job: Job, replicas: int) -> None:
        self.module = self._made(job)
        super().__init__(job, replicas)
        self.parameters, self.tied = variables_of(self.module)
        self.shapes = {
            name: tuple(parameter.shape)
            for name, parameter in self.parameters.items()
            if parameter.requires_grad
        }
        self.frozen = [name for name in self.parameters if name not in self.shapes]
        self.stored = {name: value.detach().clone() for name, value in self.parameters.items()}
        self.stored |= {
            f"model.{name}": value.detach().clone()
            for name, value in self.module.named_buffers(remove_duplicate=False)
            if value is not None
        }

    @staticmethod
    def _made(job: Job) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return own_module(job)

    def plain(self, precision: Precision) -> nn.Module:
        module = self._made(self.job)
        without_dropout(module)
        return module.to(KINDS[precision])

    def store(self, path: Path) -> None:
        torch.save(self.stored, path)

    def step(
        self, arrays: list[np.ndarray], model: Any = None, precision: Precision = "fp32"
    ) -> Tried:
        usual = torch.get_default_dtype()
        if precision == "fp64":
            torch.set_default_dtype(torch.float64)
        try:
            return self._step(tensors_of(arrays, KINDS[precision]), model or self.module)
        finally:
            torch.set_default_dtype(usual)

    def _step(self, batch: dict[str, Tensor], module: nn.Module) -> Tried:
        parameters, _ = variables_of(module)
        kept: dict[int, int] = {}
        fixed = {value.untyped_storage().data_ptr() for value in parameters.values()}

        def keep(tensor: Tensor) -> Tensor:
            if (place := tensor.untyped_storage().data_ptr()) not in fixed:
                kept[place] = max(kept.get(place, 0), tensor.numel())
            return tensor

        with torch.random.fork_rng(devices=[]), watched_embeddings(module) as asked:
            torch.manual_seed(1)
            before = torch.get_rng_state()
            with saved_tensors_hooks(keep, lambda tensor: tensor):
                loss = loss_of(self.job, module, put_together(self.structure, batch))
            random = not torch.equal(before, torch.get_rng_state())
            if not loss.requires_grad:
                raise JobError(
                    "the loss depends on no parameter that is trained: nothing can be learned"
                    f" ({self.job.made_at})"
                )
            value = self.checked(float(loss.detach()))
            loss.backward()
        gradients = {
            name: (
                None
                if p.grad is None
                else (p.grad.to_dense() if p.grad.is_sparse else p.grad).numpy()
            )
            for name, p in parameters.items()
        }
        module.zero_grad()
        return Tried(value, sum(kept.values()), asked, gradients, random)

    def flops(self, arrays: list[np.ndarray]) -> int:
        found = list[int]()

        def recurrent(layer: nn.RNNBase, inputs: tuple[Any, ...]) -> None:
            first = inputs[0]
            positions = (
                len(first.data)
                if isinstance(first, PackedSequence)
                else first.numel() // first.shape[-1]
            )
            found.append(
                2
                * positions
                * sum(weight.numel() for weight in layer.parameters() if weight.ndim == 2)
            )

        with (
            torch.random.fork_rng(devices=[]),
            torch.no_grad(),
            FlopCounterMode(display=False) as counter,
            ExitStack() as hooks,
        ):
            for layer in self.module.modules():
                if isinstance(layer, nn.RNNBase):
                    hooks.enter_context(layer.register_forward_pre_hook(recurrent))
            loss_of(
                self.job,
                self.module,
                put_together(self.structure, tensors_of(arrays, torch.float32)),
            )
        return counter.get_total_flops() + sum(found)

    def tables(self, tried: Tried, arrays: list[np.ndarray]) -> dict[str, Table]:
        found, batch = {}, tensors_of(arrays, torch.float32)
        if any(isinstance(part, nn.Embedding) and part.sparse for part in self.module.modules()):
            self.notes.append("gradients of sparse embeddings are merged as arrays here")
        for name, asked in tried.asked.items():
            layer = self.module.get_submodule(name.removeprefix("model.").removesuffix(".weight"))
            assert isinstance(layer, nn.Embedding)
            plain = (
                layer.max_norm is None
                and not layer.scale_grad_by_freq
                and layer.weight.requires_grad
            )
            if (
                len(asked) == 1
                and plain
                and name in self.parameters
                and name not in self.tied.values()
            ):
                table = located(asked[0], batch, layer.padding_idx)
                if table is not None:
                    found[name] = table
                    continue
            self.notes.append(
                f"the rows that {name.removeprefix('model.')} is asked for are not known before the"
                " model runs: it travels whole"
            )
        return found

    def step_s(self) -> float:
        threads = torch.get_num_threads()
        # this process's share of the cores
        torch.set_num_threads(max(1, cores_here() // self.replicas))
        try:
            return super().step_s()
        finally:
            torch.set_num_threads(threads)
