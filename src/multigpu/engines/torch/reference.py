"""The reference that every placement is compared with: one process, library parts only, no placement code."""

from typing import Any

import torch
from torch import Tensor, nn

from multigpu.engines.torch.feed import Feed, Shard
from multigpu.engines.torch.trainer import Context, build_module
from multigpu.engines.torch.variables import initial_values, materialise
from multigpu.inputs.batch import Source


def _module(context: Context) -> nn.Module:
    module = build_module(context.run)
    device, dtype = context.device.torch, context.device.dtype
    memory = {variable.name: value for variable, value in initial_values(context.model, context.run.seed, device, dtype)}
    materialise(module, memory, device, dtype)
    return module


def _plain_optimizer(context: Context, module: nn.Module) -> torch.optim.Optimizer:
    rule, parameters = context.rule, list(module.parameters())
    plain: dict[str, Any] = {"lr": rule.rate, "weight_decay": rule.weight_decay, "foreach": False, "fused": False}
    if rule.name == "sgd":
        return torch.optim.SGD(parameters, momentum=rule.momentum, **plain)
    kind = torch.optim.Adam if rule.name == "adam" else torch.optim.AdamW
    return kind(parameters, betas=(rule.beta1, rule.beta2), eps=rule.epsilon, **plain)


def _accumulated(context: Context, module: nn.Module, batches: list[Shard]) -> float:
    """Gradients of the mean loss over all these shards, added up in the module's parameters; the loss."""
    terms = sum(shard.batch.loss_terms[shard.batch.rank] for shard in batches)
    total = 0.0
    for shard in batches:
        cut = {name: tensor.tensor_split(context.run.micro_steps or 1) for name, tensor in shard.device.items()}
        for part in range(context.run.micro_steps or 1):
            with context.device.autocast():
                loss = module({name: parts[part] for name, parts in cut.items()}, None)
            (loss / terms).backward()
            total += float(loss.detach()) / terms
    return total


def train_reference(
    context: Context, source: Source, steps: int, shards: list[int], stale: int = 0
) -> tuple[dict[str, Tensor], list[float]]:
    """Variables after `steps` steps of one process that accumulates the gradients of `shards`, and the loss of each step.
    With all shards this is training on the joined batch (batch norm sees each shard, and each micro-step, by itself, as on replicas); with
    one, what an independent replica does. With `stale`, step t computes gradients and loss at the variables that step t - stale began with
    (before the first, those of the first), and its rule changes the newest.
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
            history = [*history[1:], [parameter.detach().clone() for parameter in newest.parameters()]]
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
    return {name: value.detach().cpu().contiguous() for name, value in newest.named_parameters()}, losses


def train_averaged(context: Context, source: Source, steps: int, replicas: int, every: int) -> list[tuple[dict[str, Tensor], list[float]]]:
    """As `train_reference`, of as many modules in this process, each on its own shard; all get the mean after each `every` steps."""
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
    values = [{name: value.detach().cpu().contiguous() for name, value in module.named_parameters()} for module in modules]
    return list(zip(values, losses, strict=True))
