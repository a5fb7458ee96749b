"""Repeated blocks of a model: what FSDP2 gathers at a time, and what is recomputed or compiled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

Wanted = Sequence[str | type[nn.Module] | nn.Module] | str | type[nn.Module] | None


def blocks_of(model: nn.Module, wanted: Wanted) -> dict[str, nn.Module]:
    """Find the model's blocks, by name: those that `wanted` names, else the repeated ones.

    wanted: names of modules, classes (themselves or by name), modules. None: of the modules that
        stand in a `ModuleList`, `ModuleDict` or `Sequential`, those of the class that occurs more
        than once and holds the most parameters (a GPT's blocks, a ResNet's bottlenecks).
    Raises a ValueError where a name or class fits nothing, or a block lies in another.
    """
    if wanted is None:
        return _repeated(model)
    if isinstance(wanted, str | nn.Module | type):
        wanted = [wanted]
    chosen: dict[str, nn.Module] = {}
    for each in wanted:
        fitting = {name: part for name, part in model.named_modules() if _fits(name, part, each)}
        if not fitting:
            raise ValueError(
                f"shard={each!r} fits no module of the model: give names as in"
                " model.named_modules(), classes, or modules"
            )
        chosen |= fitting
    for name in chosen:
        for other in chosen:
            if other.startswith(f"{name}.") or (not name and other):
                raise ValueError(
                    f"shard: the block {other!r} lies in the block {name!r}: give only one of them"
                )
    return chosen


def _fits(name: str, part: nn.Module, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return wanted in (name, type(part).__name__) and part is not None
    if isinstance(wanted, type):
        return isinstance(part, wanted)
    return part is wanted


def _repeated(model: nn.Module) -> dict[str, nn.Module]:
    by_class: dict[Any, dict[str, nn.Module]] = defaultdict(dict)
    for name, container in model.named_modules():
        if not isinstance(container, nn.ModuleList | nn.Sequential | nn.ModuleDict):
            continue
        for label, child in container.named_children():
            if type(child) in (nn.ModuleList, nn.ModuleDict):
                continue  # it has no forward of its own
            if sum(each.numel() for each in child.parameters()):
                by_class[kind_of(child)][f"{name}.{label}" if name else label] = child
    best: dict[str, nn.Module] = {}
    most = 0
    for blocks in by_class.values():
        distinct = {id(block): name for name, block in reversed(blocks.items())}
        if len(distinct) < 2 or _nested(list(blocks)):
            continue
        held = {id(each): each.numel() for block in blocks.values() for each in block.parameters()}
        if sum(held.values()) > most:
            most = sum(held.values())
            best = {name: block for name, block in blocks.items() if distinct[id(block)] == name}
    return best


def kind_of(module: nn.Module) -> Any:
    """A module's class; of a plain Sequential the classes of what it runs."""
    if type(module) is nn.Sequential:
        return tuple(kind_of(child) for child in module)
    return type(module)


def _nested(names: list[str]) -> bool:
    return any(other.startswith(f"{name}.") for name in names for other in names)


def check_ties(model: nn.Module, blocks: dict[str, nn.Module]) -> None:
    """Raise a ValueError where a parameter belongs to two blocks, or to a block and the rest."""
    homes: dict[int, tuple[str, str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        home = next((each for each in blocks if name.startswith(f"{each}.")), "")
        known = homes.setdefault(id(parameter), (home, name))
        if known[0] != home:
            raise ValueError(
                f"parameters {known[1]!r} and {name!r} are one and lie in different blocks, which"
                " FSDP2 cannot shard: name blocks that hold both or neither by shard="
            )


def recompute(block: nn.Module) -> None:
    """Let a block keep its inputs alone and compute its activations again in the backward pass."""
    forward = block.forward

    def recomputed(*arguments: Any, **named: Any) -> Any:
        if not block.training:
            return forward(*arguments, **named)
        return checkpoint(forward, *arguments, use_reentrant=False, **named)

    block.forward = recomputed
