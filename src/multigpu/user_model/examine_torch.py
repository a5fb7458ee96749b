"""A user's PyTorch job, examined."""

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.batchnorm import _BatchNorm

from multigpu.machine.machine import cores_here
from multigpu.spec.errors import JobError
from multigpu.user_model.activations import flops_of
from multigpu.user_model.examine import ANOTHER_LOSS, EQUAL, FLAT, Examination, Precision
from multigpu.user_model.examined import Reached, Tried
from multigpu.user_model.lookups_torch import random_states, table_of, watched_embeddings
from multigpu.user_model.outside_torch import Outside, shorter_type
from multigpu.user_model.plain_torch import PlacedStep, PlainStep, first_difference, updates_of
from multigpu.workloads.own.batches import arrays_of_step, batches_of
from multigpu.workloads.own.description import Described, Table
from multigpu.workloads.own.job import Job, telling
from multigpu.workloads.own.modules import cast, checked_parameters, is_hooked, without_dropout
from multigpu.workloads.own.structure import is_built_alike, put_together
from multigpu.workloads.own.torch import comparable, loss_of, own_module, tensors_of, variables_of

KINDS = {"fp32": torch.float32, "fp64": torch.float64}

FEWEST = 2  # samples that a model is tried with where nothing is compared
WHOLE_S = 10.0  # that a pass of a whole batch may take; if longer, few samples are examined
REACHED_S = 5.0  # after which no further batch is looked through for gradients
CONFIRMED_S = 5.0  # after which no further step is compared with plain PyTorch
BATCHES, MOST_BATCHES = 4, 24  # looked through; the more where a parameter has no gradient yet
PARTS = 32  # of few samples each, that are looked through for gradients besides
CONFIRMED = 3  # steps compared with plain PyTorch


class Examined(Examination):
    """Of an `nn.Module`. drawn: arrays of batches, by number; few: how many samples of them are
    examined, None: all. device: where it computes; what is stored stays on the CPU. counts_kept:
    whether a step tells what it keeps for backward.
    """

    framework: Literal["torch"] = "torch"
    few: int | None = None
    counts_kept = True

    def __init__(self, job: Job, replicas: int, device: str = "cpu") -> None:
        left_out: list[str] = []
        self.device = torch.device(device)
        self.module = self._made(job, left_out)
        checked_parameters(job, self.module)
        self.drawn: dict[int, list[np.ndarray]] = {}
        self.outside = Outside()
        super().__init__(job, replicas)
        self.notes += left_out
        self.parameters, self.tied = variables_of(self.module)
        self.shapes = {
            name: tuple(parameter.shape)
            for name, parameter in self.parameters.items()
            if parameter.requires_grad and parameter.numel()
        }
        if empty := [name for name, parameter in self.parameters.items() if not parameter.numel()]:
            named = empty[0].removeprefix("model.")
            self.notes.append(f"{named} has no elements: nothing of it is trained")
        self.unfit = {}
        for name, part in self.module.named_modules():
            if isinstance(part, nn.SyncBatchNorm):
                self.unfit["cpu"] = f"{name} is a SyncBatchNorm, which PyTorch has for GPUs alone"
                self.incomparable = f"{name} is a SyncBatchNorm, which asks other processes"
            if isinstance(part, torch.jit.ScriptModule):
                self.unfit["fsdp2"] = (
                    f"{name or 'the model'} is compiled by torch.jit, and fsdp2 puts hooks on"
                    " modules, which such ones do not take: give it as it is written"
                )
        self.hooked = [name for name, one in self.parameters.items() if is_hooked(one)]
        self.frozen = [name for name in self.parameters if name not in self.shapes]
        self.stored = {name: value.detach().clone() for name, value in self.parameters.items()}
        self.stored |= {
            f"model.{name}": value.detach().clone()
            for name, value in self.module.named_buffers(remove_duplicate=False)
            if value is not None
        }
        self.module.to(self.device)

    @staticmethod
    def _made(job: Job, notes: list[str] | None = None) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return own_module(job, notes)

    def tensors(self, arrays: list[np.ndarray], kind: torch.dtype) -> dict[str, Tensor]:
        """Return a batch's tensors by number, on the device; real ones for a model to write to."""
        return {
            name: tensor.to(self.device, copy=tensor.is_floating_point())
            for name, tensor in tensors_of(arrays, kind).items()
        }

    def plain(self, precision: Precision) -> nn.Module:
        kind = KINDS[precision]
        with comparable(kind):  # as engines' are: tensors that it keeps beside are of this type
            module = self._made(self.job)
        without_dropout(module)
        cast(module, kind)
        for name, value in [*module.named_parameters(), *module.named_buffers()]:
            stored = self.stored.get(f"model.{name}")
            if stored is not None and stored.shape == value.shape:
                value.data.copy_(stored)
        return module.to(self.device)

    def _plain_step(self, precision: Precision) -> PlainStep:
        return PlainStep(self.job, self.plain(precision), self.structure, KINDS[precision])

    @contextmanager
    def without_norms(self, model: Any) -> Iterator[bool]:
        norms = [part for part in model.modules() if isinstance(part, _BatchNorm) and part.training]
        for norm in norms:
            norm.eval()
        try:
            yield bool(norms)
        finally:
            for norm in norms:
                norm.train()

    def store(self, path: Path) -> None:
        torch.save(self.stored, path)

    def step(
        self, arrays: list[np.ndarray], model: Any = None, precision: Precision = "fp32"
    ) -> Tried:
        kind = KINDS[precision]
        module = self.module if model is None else model
        try:
            with comparable(kind):
                return self._step(self.tensors(arrays, kind), module)
        except JobError as error:
            if not self.counts_kept or "saved tensor hooks" not in str(error):
                raise
        self.counts_kept = False  # torch.func allows none while it takes gradients inside
        return self.step(arrays, model, precision)

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
            before = random_states(self.device)
            hooks = saved_tensors_hooks(keep, lambda tensor: tensor)
            with hooks if self.counts_kept else nullcontext():
                loss = loss_of(self.job, module, put_together(self.structure, batch))
            random = not all(map(torch.equal, before, random_states(self.device)))
            if not loss.requires_grad:
                raise JobError(
                    "the loss depends on no parameter that is trained: nothing can be learned"
                    f" ({self.job.made_at})"
                )
            value = self.checked(float(loss.detach()))
            if module is not self.module:  # of which steps are timed
                self.coarse = shorter_type(loss, torch.get_default_dtype())
                self.notes += self.outside.notes_of(self.job, loss, parameters, batch)
            with telling("backward", self.job.made_at):
                loss.backward()
        # where they are: a host would take a second for each GB
        gradients = {
            name: None if p.grad is None else p.grad.to_dense().detach()
            for name, p in parameters.items()
        }
        module.zero_grad(set_to_none=True)
        return Tried(value, sum(kept.values()), asked, gradients, random)

    def flops(self, arrays: list[np.ndarray]) -> int:
        batch = put_together(self.structure, self.tensors(arrays, torch.float32))
        with torch.random.fork_rng(devices=[]):
            return flops_of(self.module, lambda: loss_of(self.job, self.module, batch))

    def tables(self, tried: Tried, arrays: list[np.ndarray]) -> dict[str, Table]:
        found, batch = {}, self.tensors(arrays, torch.float32)
        if any(isinstance(part, nn.Embedding) and part.sparse for part in self.module.modules()):
            self.notes.append("gradients of sparse embeddings are merged as arrays here")
        for name, asked in tried.asked.items():
            alone = name in self.parameters and name not in self.tied.values()
            table = table_of(self.module, name, asked, batch) if alone else None
            if table is not None:
                found[name] = table
                continue
            self.notes.append(
                f"the rows that {name.removeprefix('model.')} is asked for are not known before the"
                " model runs: it travels whole"
            )
        return found

    def whole_batch(self, number: int, rows: int | None) -> list[np.ndarray]:
        """A batch's arrays: of every replica in step 0, then in step 1 ... rows: None for all."""
        if number not in self.drawn:
            step, rank = divmod(number, self.replicas)
            source = batches_of(
                self.framework, self.job, self.job.batch_size, self.replicas, rank, 0
            )
            structure, arrays = arrays_of_step(source, step)
            if not is_built_alike(structure, self.structure):
                raise JobError(
                    f"batch gave {structure} in step {step} and {self.structure} at first: every"
                    f" batch must be built alike ({self.job.made_at})"
                )
            self.drawn[number] = arrays
        return [array[:rows] for array in self.drawn[number]]

    def examined_rows(self, rows: int | None) -> int | None:
        """How many samples of a batch are examined; None: all, unless that takes too long."""
        if rows is None:
            return None
        if not self.compared:
            return min(rows, FEWEST)
        began = time.monotonic()
        self.step(self.cut(rows))
        sample_s = (time.monotonic() - began) / rows
        return None if sample_s * self.job.batch_size <= WHOLE_S else rows

    def reached(self, tried: Tried, rows: int | None, precision: Precision) -> Reached:
        kind = KINDS[precision]
        self.few = self.examined_rows(rows)
        plain = self._plain_step(precision)
        counts = dict.fromkeys(self.shapes, 0)
        sizes = dict.fromkeys(self.shapes, 0.0)
        ends, batches = time.monotonic() + REACHED_S, 0
        while batches < BATCHES or (batches < MOST_BATCHES and not all(counts.values())):
            if batches and time.monotonic() > ends:
                break
            passed = plain.passed(self.tensors(self.whole_batch(batches, self.few), kind))
            if not batches and (name := plain.changed(self.stored)):
                raise JobError(
                    f"forward itself changes the parameter {name.removeprefix('model.')} (as"
                    " max_norm does): replicas would change their own copies apart, so no placement"
                    f" trains what one process does ({self.job.made_at})"
                )
            for name in counts:
                counts[name] += passed.gradients[name] is not None
                sizes[name] = max(sizes[name], passed.relative(name))
            batches += 1
        missed = self._missed(plain, rows, ends) if rows is not None and self.divides else set()
        flat = [name for name, size in sizes.items() if counts[name] and size <= FLAT]
        for _ in range(2 if flat else 0):  # a factor that begins at zero hides the others
            plain.move(updates_of(plain, passed))
            passed = plain.passed(self.tensors(self.whole_batch(0, self.few), kind))
            flat = [name for name in flat if passed.relative(name) <= FLAT]
        left_out = plain.update(passed, [name for name in counts if counts[name]])
        told = flat if precision == "fp64" else []
        frozen = [name for name in self.frozen if self.parameters[name].numel()]
        return Reached(batches, counts, told, missed, frozen, left_out)

    def _missed(self, plain: PlainStep, rows: int, ends: float) -> set[str]:
        """Variables that few samples of a batch give no gradient, as many as there is time for."""
        missed: set[str] = set()
        for part in range(PARTS):
            number, first = part % len(self.drawn), part // len(self.drawn) * rows
            arrays = [array[first : first + rows] for array in self.drawn[number]]
            if len(arrays[0]) < rows or time.monotonic() > ends:
                break
            with contextlib.suppress(JobError):
                passed = plain.passed(self.tensors(arrays, plain.kind))
                missed |= {name for name, value in passed.gradients.items() if value is None}
        return missed

    def confirmed(self, told: dict[str, Any], rows: int | None, precision: Precision) -> None:
        every = told["tables"]
        sets = [{}, every] if every else [{}]
        whole, *looked_up = self._differences(told, precision, sets)
        if whole and not self._makes_the_same(precision):
            told["checked_in"] = None
            told["unchecked"] = "two models made one after the other compute different losses"
        elif whole and told["checked_in"]:
            raise JobError(
                f"model {self.job.title!r} is not what placements would train, since its parameters"
                f" must lie where they say: {whole} ({self.job.made_at})"
            )
        if every and looked_up[0]:
            each = self._differences(told, precision, [{name: every[name]} for name in every])
            kept = {
                name: table
                for (name, table), wrong in zip(every.items(), each, strict=True)
                if wrong is None
            }
            if len(kept) == len(every) or (
                len(kept) > 1 and self._differences(told, precision, [kept])[0]
            ):
                kept = {}
            for name in every:
                if name not in kept:
                    own = name.removeprefix("model.")
                    self.notes.append(
                        f"{own} is used otherwise than by looking rows up once: it travels whole"
                    )
            told["tables"] = kept

    def _differences(
        self, told: dict[str, Any], precision: Precision, sets: list[dict[str, Table]]
    ) -> list[str | None]:
        """In which the engines' steps differ from plain PyTorch, for each set of tables."""
        kind = KINDS[precision]
        given = {**told, "name": "examined", "job": "", "file": False, "values": ""}
        placed = [
            PlacedStep(
                self.job, Described(**{**given, "tables": tables}), self.stored, kind, self.device
            )
            for tables in sets
        ]
        plain = self._plain_step(precision)
        ends = time.monotonic() + CONFIRMED_S
        found = first_difference(
            plain,
            placed,
            lambda step: self.tensors(self.whole_batch(step, self.few), kind),
            CONFIRMED,
            lambda step: time.monotonic() < ends,
        )
        if not told["checked_in"]:
            return found
        batches = [self.tensors(self.whole_batch(0, self.few), kind) for _ in range(2)]
        first, second = (plain.passed(batch).loss for batch in batches)
        if abs(first - second) > EQUAL[precision] * max(1e-12, abs(first)):
            told["checked_in"], told["unchecked"] = None, ANOTHER_LOSS
        return found

    def _makes_the_same(self, precision: Precision) -> bool:
        """Whether two models, made one after the other, have one loss."""
        batches = [self.tensors(self.whole_batch(0, self.few), KINDS[precision]) for _ in range(2)]
        losses = [self._plain_step(precision).passed(batch).loss for batch in batches]
        return abs(losses[0] - losses[1]) <= EQUAL[precision] * max(1e-12, abs(losses[0]))

    def step_s(self) -> float:
        threads = torch.get_num_threads()
        # this process's share of the cores
        torch.set_num_threads(max(1, cores_here() // self.replicas))
        try:
            return super().step_s()
        finally:
            torch.set_num_threads(threads)
