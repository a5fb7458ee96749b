"""The whole state of a training, gathered: the same on every rank, for any number of devices."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler

from multigpu.user_model.wrap.optimizers import Update
from multigpu.user_model.wrap.placed import Placed, local

FORMAT = 1


def gathered(
    placed: Placed, update: Update, scheduler: LRScheduler | None, step: int
) -> dict[str, Any]:
    """Model, optimizer, schedule and step number, whole and on the CPU; every rank must ask.

    Floating-point buffers (running statistics) are the mean over the ranks.
    """
    placed.gather_anew()
    return {
        "format": FORMAT,
        "step": step,
        "model": model_state(placed),
        "optimizer": optimizer_state(placed, update),
        "schedule": None if scheduler is None else plain(scheduler.state_dict()),
    }


def model_state(placed: Placed) -> dict[str, Tensor]:
    """Parameters and buffers by the module's own names, as its `state_dict` has them."""
    known: dict[int, Tensor] = {}
    for name, parameter in placed.parameters.items():
        value: Tensor = placed.masters.get(name, parameter)
        if placed.owners and placed.settings.precision == "bf16_params" and name in placed.owners:
            value = owned(placed, name, value.detach())
        known[id(parameter)] = placed.whole(name, value.detach())
    means: dict[int, Tensor] = {}
    for buffer in placed.module.buffers():
        means[id(buffer)] = mean_buffer(placed, buffer)
    values: dict[str, Tensor] = {}
    for name, value in placed.module.state_dict(keep_vars=True).items():
        if id(value) in known:
            values[name] = known[id(value)]
        elif id(value) in means:
            values[name] = means[id(value)]
        elif isinstance(value, Tensor):
            values[name] = local(value).detach().cpu().clone()
    return values


def owned(placed: Placed, name: str, value: Tensor) -> Tensor:
    """The owner's fp32 master, on every rank."""
    carried = value.float().contiguous().clone()
    placed.group.from_rank(carried, placed.owners[name])
    return carried


def mean_buffer(placed: Placed, buffer: Tensor) -> Tensor:
    """A buffer's mean over the ranks; rank 0's where it is no floating-point tensor."""
    value = buffer.detach().clone()
    if value.is_floating_point():
        return (placed.group.sum(value) / placed.group.size).cpu()
    placed.group.from_rank(value)
    return value.cpu()


def synchronise_buffers(placed: Placed) -> None:
    """Give every rank the buffers that `state_dict` has: means over the ranks."""
    if placed.group.size > 1:
        with torch.no_grad():
            for buffer in placed.module.buffers():
                buffer.copy_(mean_buffer(placed, buffer))


def optimizer_state(placed: Placed, update: Update) -> dict[str, Any]:
    """States by parameter's name, and each group's settings with the names that it holds."""
    optimizer = update.optimizer
    by_name = {name: optimizer.state.get(piece, {}) for name, piece in update.pieces.items()}
    states = {}
    for name in placed.trainable:
        owner = placed.owners.get(name)
        mine = by_name.get(name, {})
        if owner is None:
            states[name] = {
                key: placed.whole(name, value) if isinstance(value, Tensor) else plain(value)
                for key, value in mine.items()
            }
        else:
            states[name] = from_owner(placed, owner, mine)
    groups: list[dict[str, Any]] = []
    for group in optimizer.param_groups:
        told = {key: plain(value) for key, value in group.items() if key != "params"}
        groups.append(told | {"params": [update.names[id(each)] for each in group["params"]]})
    if placed.owners:
        groups = joined_groups(placed, groups)
    return {"state": states, "groups": groups}


def from_owner(placed: Placed, owner: int, mine: dict[str, Any]) -> dict[str, Any]:
    """A parameter's states, which its owner alone has, on every rank."""
    device = placed.group.device
    meanings: list[Any] = [
        {
            key: (tuple(value.shape), str(value.dtype).removeprefix("torch."))
            if isinstance(value, Tensor)
            else plain(value)
            for key, value in mine.items()
        }
    ]
    dist.broadcast_object_list(meanings, src=owner, device=device)
    states: dict[str, Any] = {}
    for key, meaning in meanings[0].items():
        if not isinstance(meaning, tuple):
            states[key] = meaning
            continue
        shape, kind = meaning
        if placed.group.rank == owner:
            carried = mine[key].detach().to(device).contiguous().clone()
        else:
            carried = torch.empty(shape, dtype=getattr(torch, kind), device=device)
        placed.group.from_rank(carried, owner)
        states[key] = carried.cpu()
    return states


def joined_groups(placed: Placed, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Groups with the names of all ranks, in the order of the model's parameters."""
    everyone: list[Any] = [None] * placed.group.size
    dist.all_gather_object(everyone, [group["params"] for group in groups])
    order = list(placed.trainable)
    for number, group in enumerate(groups):
        names = {name for theirs in everyone for name in theirs[number]}
        group["params"] = sorted(names, key=order.index)
    return groups


def plain(value: Any) -> Any:
    """A value of what `torch.load(weights_only=True)` reads: numbers, text, lists, dicts, tensors.

    Other things (functions) become None.
    """
    if isinstance(value, Tensor):
        return local(value).detach().cpu().clone()
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, tuple):
        return tuple(plain(part) for part in value)
    return value if isinstance(value, bool | int | float | str | complex) else None


def restore(placed: Placed, update: Update, scheduler: LRScheduler | None, state: Any) -> int:
    """Bring a gathered state onto this training's devices, in place; its step number.

    Raises a ValueError, before anything is changed, where the state is another model's.
    """
    check(placed, state)
    placed.gather_anew()
    if any(state["optimizer"]["state"].values()):
        make_states(placed, update)
    targets = {name: placed.masters.get(name, each) for name, each in placed.parameters.items()}
    saved = state["model"]
    for name, parameter in placed.parameters.items():
        placed.fill(name, targets[name].detach(), saved[name])
        if targets[name] is not parameter or placed.settings.precision == "bf16_params":
            placed.fill(name, parameter.detach(), saved[name])
    with torch.no_grad():
        for name, buffer in placed.module.named_buffers():
            if name in saved:
                buffer.copy_(saved[name])
    restore_optimizer(placed, update, state["optimizer"])
    if scheduler is not None and state["schedule"] is not None:
        scheduler.load_state_dict(state["schedule"])
    return int(state["step"])


def check(placed: Placed, state: Any) -> None:
    """Raise a ValueError where a state is no gathered one, or of another model."""
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise ValueError(
            "state is not what trainer.state_dict() gives (it has no format 1): for weights alone,"
            " load them into the model before you wrap it"
        )
    saved = state["model"]
    for name, parameter in placed.parameters.items():
        if name not in saved:
            raise ValueError(f"the state has no parameter {name!r}: it is of another model")
        if tuple(saved[name].shape) != tuple(parameter.shape):
            raise ValueError(
                f"the state's parameter {name!r} has shape {tuple(saved[name].shape)}, and the"
                f" model's {tuple(parameter.shape)}: it is of another model"
            )
    states = state["optimizer"]["state"]
    for name in placed.trainable:
        if name not in states:
            raise ValueError(
                f"the state has no optimizer's state of {name!r}: the parameter was not trained"
            )


def make_states(placed: Placed, update: Update) -> None:
    """Let the optimizer make its states, by a step of rate 0 on gradients of 0.

    What it changes is overwritten after. States that are there already stay where they are, so
    that a captured step goes on reading them.
    """
    optimizer = update.optimizer
    if optimizer.state and all(piece in optimizer.state for piece in update.pieces.values()):
        return
    kept = {name: piece.grad for name, piece in update.pieces.items()}
    rates = [group["lr"] for group in optimizer.param_groups]
    for piece in update.pieces.values():
        piece.grad = torch.zeros_like(piece)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    for name, piece in update.pieces.items():
        piece.grad = kept[name]


def restore_optimizer(placed: Placed, update: Update, saved: dict[str, Any]) -> None:
    """Bring states and settings of a gathered optimizer to this one's, by names."""
    optimizer = update.optimizer
    for name, piece in update.pieces.items():
        states = optimizer.state.get(piece, {})
        for key in states.keys() - saved["state"][name].keys():
            # as an optimizer that has not stepped; in place, where a captured step reads it
            if isinstance(states[key], Tensor):
                states[key].zero_()
        for key, value in saved["state"][name].items():
            here = states.get(key)
            if isinstance(here, Tensor) and isinstance(value, Tensor):
                fill_state(placed, name, here, value)
            elif isinstance(here, Tensor):
                here.fill_(value)
            elif isinstance(value, Tensor) and value.numel() == 1:
                states[key] = type(here)(value.item()) if here is not None else value.item()
            elif here is not None or states:
                states[key] = value
    homes = {name: group for group in saved["groups"] for name in group["params"]}
    skipped = ("params", "capturable", "fused", "foreach", "differentiable", "param_names")
    for group in optimizer.param_groups:
        first = next((update.names[id(each)] for each in group["params"]), None)
        if first is None or first not in homes:
            continue
        for key, value in homes[first].items():
            if key in group and key not in skipped and value is not None:
                group[key] = float(value) if isinstance(value, Tensor) else value


def fill_state(placed: Placed, name: str, here: Tensor, value: Tensor) -> None:
    """Overwrite a state in place by its part of a full value."""
    if here.device != placed.group.device:
        here.copy_(value)
        return
    placed.fill(name, here, value)
