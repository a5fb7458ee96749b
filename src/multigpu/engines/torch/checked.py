"""Compare one Run's first steps with those of one process without any code of placements."""

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor, nn

from multigpu.engines.common.checked import STEPS, equivalence_of, relative, told_once
from multigpu.engines.common.session import Opening
from multigpu.engines.common.standing import got_on
from multigpu.engines.torch import object_collectives, session
from multigpu.engines.torch.build import build_trainer
from multigpu.engines.torch.devices import give_back_memory
from multigpu.engines.torch.feed import Feed, Shard
from multigpu.engines.torch.own_update import job_of, own_optimizer, settle
from multigpu.engines.torch.ragged import tells_lookups, with_everyones_lookups
from multigpu.engines.torch.trainer import Context, build_module, open_context, open_rank
from multigpu.engines.torch.variables import initial_values, materialise
from multigpu.inputs.batch import Batch, Source
from multigpu.placements.resolve import dims_of, semantics_of
from multigpu.records.record import Equivalence
from multigpu.spec.model import Optimizer
from multigpu.spec.run import Run
from multigpu.workloads import description_of, import_part
from multigpu.workloads.sources import open_source
from multigpu.workloads.tensors import DTYPES


def _module(context: Context) -> nn.Module:
    module = build_module(context.run)
    device, dtype = context.device.torch, context.device.dtype
    memory = {
        variable.name: value
        for variable, value in initial_values(context.model, context.run.seed, device, dtype)
    }
    materialise(module, memory, device, dtype)
    return module


def _plain_optimizer(context: Context, module: nn.Module) -> torch.optim.Optimizer:
    rule, parameters = context.rule, list(module.parameters())
    if (job := job_of(context.model)) is not None:
        told = own_optimizer(job, parameters) or plain_rule(rule, parameters)
        settle(told, job, False)
        return told
    return plain_rule(rule, parameters)


def plain_rule(rule: Optimizer, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """The library's optimizer of a rule, operation by operation."""
    plain: dict[str, Any] = {
        "lr": rule.rate,
        "weight_decay": rule.weight_decay,
        "foreach": False,
        "fused": False,
    }
    if rule.name == "sgd":
        return torch.optim.SGD(parameters, momentum=rule.momentum, **plain)
    kind = torch.optim.Adam if rule.name == "adam" else torch.optim.AdamW
    return kind(parameters, betas=(rule.beta1, rule.beta2), eps=rule.epsilon, **plain)


def _accumulated(context: Context, module: nn.Module, batches: list[Shard]) -> float:
    """Add up gradients of the mean loss over all these shards in the module; the loss."""
    terms = sum(shard.batch.loss_terms[shard.batch.rank] for shard in batches)
    total = 0.0
    for shard in batches:
        got_on()
        cut = {
            name: tensor.tensor_split(context.run.micro_steps or 1)
            for name, tensor in shard.device.items()
        }
        for part in range(context.run.micro_steps or 1):
            with context.device.autocast():
                loss = module({name: parts[part] for name, parts in cut.items()}, None)
            (loss / terms).backward()
            total += float(loss.detach()) / terms
    return total


def train_reference(
    context: Context, source: Source, steps: int, shards: list[int], stale: int = 0
) -> tuple[dict[str, Tensor], list[float]]:
    """Variables after `steps` steps of one process that accumulates the gradients of `shards`, and
    each loss: training on the global batch (batch norm sees each shard, and micro-step, by itself),
    or of one independent replica. With `stale`, step t computes at the variables that step t -
    stale began with (before the first, those of the first), and its rule changes the newest.
    """
    module = _module(context)
    newest = _module(context) if stale else module
    optimizer = _plain_optimizer(context, newest)
    history = [[parameter.detach().clone() for parameter in newest.parameters()]] * (stale + 1)
    feeds = {rank: Feed(source, rank, context.device) for rank in shards}
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        if stale:
            module.zero_grad()
            history = [
                *history[1:],
                [parameter.detach().clone() for parameter in newest.parameters()],
            ]
            with torch.no_grad():
                for parameter, old in zip(module.parameters(), history[0], strict=True):
                    parameter.copy_(old)
        total = _accumulated(context, module, [feeds[rank].shard(step) for rank in shards])
        if stale:
            for parameter, computed in zip(newest.parameters(), module.parameters(), strict=True):
                parameter.grad = computed.grad
        optimizer.step()
        losses.append(total)
    for feed in feeds.values():
        feed.close()
    return {
        name: value.detach().cpu().contiguous() for name, value in newest.named_parameters()
    }, losses


def train_averaged(
    context: Context, source: Source, steps: int, replicas: int, every: int
) -> list[tuple[dict[str, Tensor], list[float]]]:
    """As `train_reference`, of a module a shard; all get the mean after each `every` steps."""
    modules = [_module(context) for _ in range(replicas)]
    optimizers = [_plain_optimizer(context, module) for module in modules]
    feeds = [Feed(source, rank, context.device) for rank in range(replicas)]
    losses: list[list[float]] = [[] for _ in modules]
    for step in range(steps):
        for module, optimizer, feed, own in zip(modules, optimizers, feeds, losses, strict=True):
            optimizer.zero_grad()
            own.append(_accumulated(context, module, [feed.shard(step)]))
            optimizer.step()
        if (step + 1) % every == 0:
            with torch.no_grad():
                for copies in zip(*(module.parameters() for module in modules), strict=True):
                    mean = torch.stack([copy.detach() for copy in copies]).mean(0)
                    for copy in copies:
                        copy.copy_(mean)
    for feed in feeds:
        feed.close()
    values = [
        {name: value.detach().cpu().contiguous() for name, value in module.named_parameters()}
        for module in modules
    ]
    return list(zip(values, losses, strict=True))


class Kept(Source):
    """The batches of a few steps of another Source, made before any step computes and in this type:
    a thread would make them in that of the comparison, as other numbers. ranks: whose.
    """

    def __init__(
        self, source: Source, ranks: Iterable[int], steps: int, usual: torch.dtype
    ) -> None:
        self.label, self.fingerprint = source.label, source.fingerprint
        self.capacity = source.capacity
        compared_in = torch.get_default_dtype()
        torch.set_default_dtype(usual)
        try:
            self.batches = {
                (step, rank): source.batch(step, rank) for step in range(steps) for rank in ranks
            }
        finally:
            torch.set_default_dtype(compared_in)

    def batch(self, step: int, rank: int) -> Batch:
        return self.batches[step, rank]


@lru_cache(maxsize=2)
def _reference(
    run: Run,
    ranks: tuple[int, ...],
    stale: int,
    every: int,
    steps: int,
    threads: int,
    usual: torch.dtype,
) -> list[dict[str, Tensor]]:
    """Return what each replica's variables must equal; equal placements share a `run`."""
    drawn = range(run.devices) if every > 1 else ranks
    source = Kept(open_source(run), drawn, steps, usual)
    context = open_context(run, 0, threads, source.capacity, Path(), 60.0)
    if every > 1:
        return [values for values, _ in train_averaged(context, source, steps, run.devices, every)]
    # a model that looks for other processes finds none, as one process alone does
    with patch.object(dist, "is_initialized", return_value=False):
        return [train_reference(context, source, steps, list(ranks), stale)[0]]


def _distance(run: Run, found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Norm of the difference over norm of the reference's update."""
    device = torch.device(run.device_type)  # that of this process: a host takes seconds longer
    apart = moved = 0.0
    for variable, start in initial_values(
        description_of(run), run.seed, device, DTYPES[run.precision]
    ):
        value = expected[variable.name].to(device)
        apart += _squared(found[variable.name].to(device) - value)
        moved += _squared(value - start)
    return relative(apart, moved)


def _squared(values: Tensor) -> float:
    """The sum of the squares of magnitudes, of complex values, too."""
    return float(values.abs().double().square().sum())


def _placed(opening: Opening, steps: int, usual: torch.dtype) -> dict[str, Tensor]:
    """All variables after the same steps under the placement."""
    run = opening.run
    place = dims_of(run).copy_of(opening.rank)
    source = Kept(open_source(run), [place], steps, usual)
    context = open_rank(opening, source.capacity)
    feed = Feed(source, place, context.device)
    with contextlib.closing(context.closing):
        trainer = build_trainer(context)
        with contextlib.closing(trainer):
            tells = tells_lookups(run, any(member.by_row for member in context.assigned))
            for step in range(steps):
                got_on()
                shard = feed.shard(step)
                trainer.step([with_everyones_lookups(shard) if tells else shard])
            values = trainer.full_values()
    feed.close()
    return values


def equivalence(opening: Opening) -> Equivalence | None:
    """As `equivalence_of`, called on every replica."""
    return equivalence_of(opening.run, lambda check: _compared(replace(opening, run=check)))


def _compared(opening: Opening) -> tuple[float, int]:
    """The distance, the largest of all replicas', and the steps after which it is taken."""
    check, rank = opening.run, opening.rank
    semantics = semantics_of(check)
    # two averages, and a step after them
    steps = STEPS if semantics.every == 1 else 2 * semantics.every + 1
    builder = import_part(check.workload, "torch")
    alone = not semantics.facts.replicas_agree
    distance = 0.0
    usual = torch.get_default_dtype()
    with builder.comparable(DTYPES[check.precision]):
        values = _placed(opening, steps, usual)
        if alone or rank == 0:
            shards = (rank,) if alone else tuple(range(dims_of(check).copies))
            plain = check.model_copy(update={"placement": "ddp", "local_steps": None})
            expected = _reference(
                plain, shards, semantics.steps, semantics.every, steps, opening.threads, usual
            )
            distance = _distance(check, values, expected[rank if semantics.every > 1 else 0])
    if check.devices > 1:
        distance = max(object_collectives.all_gather(distance))
    if check.device_type == "cuda":
        give_back_memory(True)
    return distance, steps


NOTICED_S = 0.2  # after which NCCL's group has noticed that a sum is there: it looks each 0.1 s


def let_go_of_sums(run: Run) -> None:
    """Give back what DistributedDataParallel summed last: NCCL's group holds on to tensors that
    nobody waited for until its next call, and they would count in a Run's peak of memory.
    """
    if run.device_type == "cuda" and dist.is_initialized():
        time.sleep(NOTICED_S)
        dist.all_reduce(torch.zeros(1, device="cuda"))
        give_back_memory(True)


class Session(session.Session):
    """As any other, once its placement was compared, which counts in no time or peak."""

    def __init__(self, opening: Opening) -> None:
        opening.stage("compared")
        found = told_once(opening.run, lambda: equivalence(opening))
        let_go_of_sums(opening.run)
        super().__init__(opening)
        self.told = found
        self.tells = tells_lookups(self.run, any(member.by_row for member in self.context.assigned))

    def time(self) -> Sequence[Mapping[str, Any]]:
        parts = super().time()
        let_go_of_sums(self.run)  # the next Run may have a group of its own, and this one's hold on
        return parts

    def shards(self, index: int) -> list[Shard]:
        shards = [feed.shard(index) for feed in self.feeds]
        if self.tells:
            shards = [with_everyones_lookups(shard) for shard in shards]
        return self.counted(index, shards)
