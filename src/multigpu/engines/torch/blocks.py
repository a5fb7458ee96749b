"""Repeated blocks of a model: what FSDP2 gathers at a time, and what is recomputed or compiled."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
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
        nested = any(other.startswith(f"{name}.") for name in blocks for other in blocks)
        if len(distinct) < 2 or nested:
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


def tied_apart(model: nn.Module, blocks: Iterable[str]) -> tuple[str, str] | None:
    """Find a parameter that belongs to two blocks, or to a block and the rest: two of its names."""
    homes: dict[int, tuple[str, str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        home = next((each for each in blocks if name.startswith(f"{each}.")), "")
        known = homes.setdefault(id(parameter), (home, name))
        if known[0] != home:
            return known[1], name
    return None


def check_ties(model: nn.Module, blocks: Iterable[str]) -> None:
    """Raise a ValueError where a parameter belongs to two blocks, or to a block and the rest."""
    names = tied_apart(model, blocks)
    if names is not None:
        raise ValueError(
            f"parameters {names[0]!r} and {names[1]!r} are one and lie in different blocks, which"
            " FSDP2 cannot shard: name blocks that hold both or neither by shard="
        )


@contextmanager
def attributes_kept(module: nn.Module) -> Iterator[None]:
    """Copy the attributes that a user set on parameters to those that replace them inside."""
    told = {name: vars(each) for name, each in module.named_parameters()}
    yield
    for name, each in module.named_parameters():
        vars(each).update(told[name])


def check_held_once(model: nn.Module) -> None:
    """Raise a ValueError where an attribute, or a list or dictionary in one, refers to a parameter.

    FSDP2 replaces a module's parameters by sharded ones. The old one would still be computed with,
    and no optimizer would update it. `nn.LSTM` and its kin bring their own lists up to date.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for prefix, module in model.named_modules():
        if isinstance(module, nn.RNNBase):
            continue
        attributes = {**vars(module), "_parameters": None, "_modules": None, "_buffers": None}
        for attribute, value in attributes.items():
            if found := next((names[id(each)] for each in _held(value) if id(each) in names), ""):
                where = ".".join(filter(None, [prefix, attribute]))
                raise ValueError(
                    f"{where} holds the parameter {found!r}, too, and would keep what FSDP2"
                    f" replaces: use {found} itself in its place, or choose another placement"
                )


def _held(value: Any) -> Iterator[Any]:
    """Yield what nested lists, tuples, sets and dictionaries hold; each of these once."""
    left, seen = [value], set[int]()
    while left:
        each = left.pop()
        if not isinstance(each, dict | list | tuple | set):
            yield each
        elif id(each) not in seen:
            seen.add(id(each))
            left += each.values() if isinstance(each, dict) else each


def gathered_parts(model: nn.Module) -> dict[str, nn.Module]:
    """Find what FSDP2 gathers apart: a Sequential's layers, or repeated blocks without ties."""
    if (wanted := getattr(model, "shard", None)) is not None:  # what the user's job names
        return blocks_of(model.get_submodule("model"), wanted)
    if isinstance(model, nn.Sequential):
        return {name: part for name, part in model.named_children() if list(part.parameters())}
    blocks = blocks_of(model, None)
    return {} if tied_apart(model, blocks) else blocks


def recompute(block: nn.Module) -> None:
    """Let a block keep its inputs alone and compute its activations again in the backward pass.

    Running statistics of batch norm learn from the first time alone.
    """
    forward = block.forward
    norms = [part for part in block.modules() if isinstance(part, _BatchNorm)]
    settled: dict[str, Any] = {}
    if any(norm.track_running_stats for norm in norms):
        settled = {"context_fn": lambda: (nullcontext(), statistics_kept(norms))}

    def recomputed(*arguments: Any, **named: Any) -> Any:
        if not block.training:
            return forward(*arguments, **named)
        return checkpoint(forward, *arguments, use_reentrant=False, **settled, **named)

    block.forward = recomputed


@contextmanager
def statistics_kept(norms: Iterable[_BatchNorm]) -> Iterator[None]:
    """Let batch norm compute as in training, and leave its running statistics as they are."""
    counting = [norm for norm in norms if norm.track_running_stats]
    before = [(norm.momentum, norm.num_batches_tracked) for norm in counting]
    for norm in counting:
        norm.momentum = 0.0
        norm.num_batches_tracked = None
    try:
        yield
    finally:
        for norm, (momentum, batches) in zip(counting, before, strict=True):
            norm.momentum = momentum
            norm.num_batches_tracked = batches
