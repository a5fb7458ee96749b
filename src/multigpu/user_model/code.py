"""What tells a job from another that looks alike and was measured before: the text of its parts,
and the plain values that this text reads.
"""

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from functools import partial
from types import FunctionType
from typing import Any

from multigpu.workloads.own.job import Job

PLAIN = (bool, int, float, complex, str, bytes, type(None))
DEPTH, MOST = 4, 1000  # of containers in containers; of what one holds, before its length tells


def code_of(job: Job) -> bytes:
    """The text of a job's parts, as far as there is one, and what it reads: arguments bound
    beforehand, what functions close over, values and helpers of its module, and settings of a
    module that is given as it is.
    """
    texts = [repr((job.batch_size, job.precision))]
    further = (job.gradient_clip, job.micro_steps, repr(job.shard))
    texts += [repr(further)] if further != (None, 1, "None") else []
    own = [part for part in (job.optimizer, job.schedule, job.evaluate) if callable(part)]
    met = set[int]()
    for part in (job.model, job.batch, job.loss, *own):
        texts += _texts(part, met)
    return "\n".join(texts).encode()


def _texts(part: Any, met: set[int]) -> Iterator[str]:
    if isinstance(part, partial):
        yield from _texts(part.func, met)
        yield repr((_plain(part.args), _plain(part.keywords)))
        return
    named = inspect.isroutine(part) or inspect.isclass(part)
    kind = part if named else type(part)
    if not named and hasattr(part, "named_modules"):
        yield repr(part)
        yield repr([(name, _settings(module)) for name, module in part.named_modules()])
    if id(kind) in met:
        return
    met.add(id(kind))
    try:
        yield inspect.getsource(kind)
    except (OSError, TypeError):
        yield repr(kind)
    members = vars(kind).values() if inspect.isclass(kind) else [kind]
    for function in members:
        if isinstance(function, FunctionType):
            yield from _read(function, met)


def _read(function: FunctionType, met: set[int]) -> Iterator[str]:
    """What a function reads beside its arguments: plain values, and what is defined beside it."""
    try:
        found = inspect.getclosurevars(function)
    except ValueError:  # a cell that is still empty
        return
    for name, value in sorted({**found.globals, **found.nonlocals}.items()):
        if (told := _plain(value)) is not None:
            yield f"{name} = {told}"
        elif isinstance(value, type | FunctionType) and value.__module__ == function.__module__:
            yield from _texts(value, met)


def _settings(module: Any) -> dict[str, str]:
    """A module's own plain attributes, such as a flag that its forward pass reads."""
    return {
        name: repr(value)
        for name, value in vars(module).items()
        if not name.startswith("_") and name != "training" and isinstance(value, PLAIN)
    }


def _plain(value: Any, depth: int = DEPTH) -> str | None:
    """A value's text, if it is the same in each process; None: it is not."""
    if isinstance(value, PLAIN):
        return repr(value)
    if not depth:
        return None
    if isinstance(value, tuple | list | Mapping) and len(value) > MOST:
        return f"{len(value)} in a {type(value).__name__}"
    if isinstance(value, tuple | list):
        return repr([_plain(each, depth - 1) for each in value])
    if isinstance(value, Mapping):
        return repr(sorted((repr(key), _plain(each, depth - 1)) for key, each in value.items()))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(vars(value), depth - 1)
    return None
