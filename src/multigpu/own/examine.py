"""What the study must know of a user's job, found by training one step of it here, on the CPU and on few samples."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.utils.rnn import PackedSequence
from torch.utils.flop_counter import FlopCounterMode

from multigpu.measure.machine import cores_here
from multigpu.own.embeddings import located, watched_embeddings
from multigpu.workloads.own.batches import batches_of, tensors_of_step
from multigpu.workloads.own.description import Described, Table
from multigpu.workloads.own.job import Job
from multigpu.workloads.own.loading import JobError, pack
from multigpu.workloads.own.structure import put_together
from multigpu.workloads.own.torch import loss_of, own_module, variables_of, without_dropout

SAMPLES = 4
"""With which a model is tried where it takes them: few, since this is a CPU, and more than one, which batch norm wants."""

FLAT = 1e-12
"""A gradient in fp64 that is smaller than this share of the largest is zero but for rounding."""

EQUAL = 1e-9
"""How far two losses of one computation in fp64 may be apart, relative to them."""


@dataclass
class Tried:
    """One step of the module: its loss, the numbers that are kept for backward, and what embeddings were asked for."""

    loss: float
    kept: int
    asked: dict[str, list[Tensor]]
    gradients: dict[str, Tensor | None]
    random: bool


class Examination:
    """A job on its way to a description."""

    def __init__(self, job: Job, replicas: int) -> None:
        self.job, self.replicas, self.notes, self.flat = job, replicas, list[str](), list[str]()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.module = own_module(job)
        self.parameters, self.tied = variables_of(self.module)
        self.structure, self.tensors = tensors_of_step(batches_of(job, job.batch_size, replicas, 0, 0), 0)
        self.stored = {name: value.detach().clone() for name, value in self.parameters.items()}
        self.stored |= {
            f"model.{name}": value.detach().clone()
            for name, value in self.module.named_buffers(remove_duplicate=False)
            if value is not None
        }

    def batch(self, rows: int | None, kind: torch.dtype = torch.float32) -> dict[str, Tensor]:
        """The first batch's tensors, or so many samples of them."""
        cut = [tensor[:rows] for tensor in self.tensors]
        return {str(index): tensor.to(kind) if tensor.is_floating_point() else tensor for index, tensor in enumerate(cut)}

    def step(self, batch: dict[str, Tensor], module: nn.Module | None = None) -> Tried:
        """Forward and backward; gradients are left in the answer alone."""
        module = module or self.module
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
                raise JobError(f"the loss depends on no parameter that is trained: nothing can be learned ({self.job.made_at})")
            if not torch.isfinite(loss):
                raise JobError(f"the loss of the first batch is {float(loss.detach())}: no step can follow it ({self.job.made_at})")
            loss.backward()
        gradients = {name: None if p.grad is None else p.grad.to_dense() if p.grad.is_sparse else p.grad for name, p in parameters.items()}
        for parameter in parameters.values():
            parameter.grad = None
        return Tried(float(loss.detach()), sum(kept.values()), asked, gradients, random)

    def flops(self, batch: dict[str, Tensor]) -> int:
        """Operations of the forward pass on this batch: products of matrices, convolutions, attention and recurrent layers."""
        found = list[int]()

        def recurrent(layer: nn.RNNBase, inputs: tuple[Any, ...]) -> None:
            first = inputs[0]
            positions = len(first.data) if isinstance(first, PackedSequence) else first.numel() // first.shape[-1]
            found.append(2 * positions * sum(weight.numel() for weight in layer.parameters() if weight.ndim == 2))

        hooks = [part.register_forward_pre_hook(recurrent) for part in self.module.modules() if isinstance(part, nn.RNNBase)]
        with torch.random.fork_rng(devices=[]), torch.no_grad(), FlopCounterMode(display=False) as counter:
            loss_of(self.job, self.module, put_together(self.structure, batch))
        for hook in hooks:
            hook.remove()
        return counter.get_total_flops() + sum(found)

    def tried(self) -> tuple[Tried, int | None]:
        """A step on few samples, or on a whole batch where the model takes no other (then the second is None)."""
        rows = min(SAMPLES, self.job.batch_size)
        if rows == self.job.batch_size:
            return self.step(self.batch(None)), rows
        try:
            return self.step(self.batch(rows)), rows
        except JobError:
            return self.step(self.batch(None)), None

    def comparability(self, rows: int | None, left_out: bool) -> tuple[Literal["fp64", "fp32"] | None, str]:
        """The precision in which placements of this model can be compared, or None and why not. left_out: whether it drew at random."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = own_module(self.job)
        without_dropout(module)
        usual, kind = torch.get_default_dtype(), torch.float64
        try:
            torch.set_default_dtype(kind)
            first = self.step(self.batch(rows, kind), module.to(kind))
        except JobError:
            torch.set_default_dtype(usual)
            kind = torch.float32
            first = self.step(self.batch(rows), module.to(kind))
            self.notes.append("it does not compute in fp64, so placements are compared in fp32, less exactly")
        finally:
            torch.set_default_dtype(usual)
        if kind == torch.float64:
            sizes = {name: float(gradient.abs().max()) for name, gradient in first.gradients.items() if gradient is not None}
            self.flat = [name for name, size in sizes.items() if size <= FLAT * max(sizes.values())]
        if first.random:
            return (
                None,
                "it draws random numbers in its forward pass outside of the library's dropout layers: no two processes draw the same",
            )
        if left_out:
            self.notes.append("placements are compared with dropout set to 0, and timed with it")
        try:
            torch.set_default_dtype(kind)
            second = self.step(self.batch(rows, kind), module)
        finally:
            torch.set_default_dtype(usual)
        apart = abs(first.loss - second.loss)
        if apart > (EQUAL if kind == torch.float64 else 1e-5) * max(1e-12, abs(first.loss)):
            return None, "a second pass over one batch gives another loss: it keeps a state outside of its parameters"
        self._joined(rows, module, kind)
        return ("fp64" if kind == torch.float64 else "fp32"), ""

    def _joined(self, rows: int | None, module: nn.Module, kind: torch.dtype) -> None:
        """Note where the mean of two halves' gradients is not the whole's: what then is trained depends on how a batch is shared out."""
        whole = self.batch(rows, kind)
        count = len(whole["0"])
        if rows is None or count % 2 or count < 4 or kind != torch.float64:
            return
        usual = torch.get_default_dtype()
        try:
            torch.set_default_dtype(kind)
            parts = [{name: tensor[half] for name, tensor in whole.items()} for half in (slice(count // 2), slice(count // 2, None))]
            joined, *halves = [self.step(batch, module).gradients for batch in (whole, *parts)]
        finally:
            torch.set_default_dtype(usual)
        for name, gradient in joined.items():
            each = [half[name] for half in halves]
            if gradient is None or any(one is None for one in each):
                continue
            mean = sum(one for one in each if one is not None) / 2
            if float((gradient - mean).abs().max()) > 1e-6 * max(1e-12, float(gradient.abs().max())):
                self.notes.append(
                    "the mean of shards' gradients is not the joined batch's (batch norm, or a loss that is no mean over samples):"
                    " one process that takes the shards one after the other is the reference"
                )
                return

    def tables(self, tried: Tried, batch: dict[str, Tensor]) -> dict[str, Table]:
        """Embeddings whose ids stand in the batch as they are."""
        found = {}
        for name, asked in tried.asked.items():
            layer = self.module.get_submodule(name.removeprefix("model.").removesuffix(".weight"))
            assert isinstance(layer, nn.Embedding)
            plain = layer.max_norm is None and not layer.scale_grad_by_freq and layer.weight.requires_grad
            if len(asked) == 1 and plain and name in self.parameters and name not in self.tied.values():
                table = located(asked[0], batch, layer.padding_idx)
                if table is not None:
                    found[name] = table
                    continue
            self.notes.append(
                f"the rows that {name.removeprefix('model.')} is asked for are not known before the model runs: it travels whole"
            )
        return found

    def step_s(self) -> float:
        """Seconds of a step on one device's batch here, on this process's share of the cores: the shortest of those of half a second."""
        threads, ends, took = torch.get_num_threads(), time.perf_counter() + 0.5, list[float]()
        torch.set_num_threads(max(1, cores_here() // self.replicas))
        while len(took) < 2 or (time.perf_counter() < ends and len(took) < 20):
            began = time.perf_counter()
            loss_of(self.job, self.module, put_together(self.structure, self.batch(None))).backward()
            took.append(time.perf_counter() - began)
        torch.set_num_threads(threads)
        return min(took)

    def described(self, packed: str, file: bool, code: bytes, timed: bool) -> Described:
        """What was found out. timed: whether this CPU is what will train."""
        tried, rows = self.tried()
        batch = self.batch(rows)
        tables = self.tables(tried, batch)
        fixed = [name for name, parameter in self.parameters.items() if not parameter.requires_grad or tried.gradients[name] is None]
        if idle := [name.removeprefix("model.") for name in fixed if self.parameters[name].requires_grad]:
            self.notes.append(f"{len(idle)} parameters get no gradient and are left as they are, {idle[0]} among them")
        if wrong := [name for name, gradient in tried.gradients.items() if gradient is not None and not torch.isfinite(gradient).all()]:
            raise JobError(f"the first batch gives {wrong[0].removeprefix('model.')} a gradient that is not finite ({self.job.made_at})")
        if any(isinstance(part, nn.Embedding) and part.sparse for part in self.module.modules()):
            self.notes.append("gradients of sparse embeddings are merged as arrays here")
        checked_in, unchecked = self.comparability(rows, tried.random)
        flat = [name for name in self.flat if name not in fixed]
        if flat:
            self.notes.append(
                f"{len(flat)} parameters have a gradient that is zero but for rounding, as a bias before batch norm has: they need not move"
            )
        count = len(batch["0"])
        rest: dict[str, Any] = {
            "variables": [(name, tuple(p.shape)) for name, p in self.parameters.items() if name not in fixed],
            "tables": {name: table for name, table in tables.items() if name not in fixed},
            "flat": flat,
            "tied": self.tied,
            "fixed": fixed,
            "optimizer": asdict(self.job.optimizer),
            "structure": self.structure,
            "any_rows": rows is not None,
            "forward_flops": 1.0 if timed else max(1.0, self.flops(batch) / count),
            "memory_passes": max(1.0, 2 * tried.kept / count),  # what is kept is written once and read once at least
            "checked_in": checked_in,
            "unchecked": unchecked,
            "notes": list(dict.fromkeys(self.notes)),
        }
        told = json.dumps({**rest, "forward_flops": 0, "tables": sorted(tables), "loss": f"{tried.loss:.5g}"}, default=str).encode()
        name = f"{re.sub(r'[^A-Za-z0-9_]+', '-', self.job.title)}-{hashlib.sha256(told + code).hexdigest()[:8]}"
        rest["step_here_s"] = self.step_s() if timed else 0.0
        return Described(name=name, job=packed or f"{name}.job", file=file, values=f"{name}.values", **rest)


def code_of(job: Job) -> bytes:
    """The text of what the job is made of, as far as it has one: whether it is the one that was measured before."""
    texts = [repr((job.batch_size, job.precision))]
    for part in (job.model, job.batch, job.loss):
        try:
            texts.append(inspect.getsource(part if inspect.isroutine(part) or inspect.isclass(part) else type(part)))
        except (OSError, TypeError):
            texts.append(repr(type(part)))
    return "\n".join(texts).encode()


def describe(job: Job, folder: Path, replicas: int, named: str = "", timed: bool = True) -> Described:
    """The job's description, written into a folder together with what its variables start with.

    Args:
        timed: whether to time a step here.
        named: "FILE.py:NAME" where the job comes from a file; "" where it is handed to other processes as it is.

    Raises:
        JobError: it cannot be trained; the sentence names what failed and the user's own line.
    """
    code = Path(named.rpartition(":")[0]).read_bytes() if named else code_of(job)
    packed = b"" if named else pack(job)
    examination = Examination(job, replicas)
    described = examination.described(named, bool(named), code, timed)
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(examination.stored, folder / described.values)
    if packed:
        (folder / described.job).write_bytes(packed)
    (folder / f"{described.name}.json").write_text(described.model_dump_json(indent=1))
    return described
