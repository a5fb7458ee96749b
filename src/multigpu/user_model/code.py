"""What tells a job from another that looks alike and was measured before: the text of its parts,
the plain values that this text reads, and the files of its author's that it imports.
"""

import ast
import contextlib
import dataclasses
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from importlib.util import resolve_name
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from multigpu.paths import is_own
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


def code_of_file(named: str) -> bytes:
    """The text of a file's job, "FILE.py:NAME", which was loaded here: of the file, and of what it
    imports of its author's other files.
    """
    file, _, called = named.rpartition(":")
    content = Path(file).read_bytes()
    imported = "".join(_imported(content.decode(errors="replace"), "", set()))
    return content + called.encode() + imported.encode()


def _imported(text: str, package: str, met: set[int]) -> Iterator[str]:
    """The text of each module of the author's that this text imports, or that one of those does."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # changed since it was loaded
        return
    for statement in ast.walk(tree):
        names = []
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            dots = "." * statement.level
            with contextlib.suppress(ImportError):  # a relative one, outside any package
                base = resolve_name(dots + (statement.module or ""), package)
                names = [base, *(f"{base}.{alias.name}" for alias in statement.names)]
        for name in names:
            if name in sys.modules:
                yield from _whole(sys.modules[name], met)


def _whole(module: ModuleType, met: set[int]) -> Iterator[str]:
    """The text of a module of the author's and of what it imports, each once; nothing of others."""
    file = getattr(module, "__file__", None)
    if id(module) in met or not file or not file.endswith(".py") or not is_own(file):
        return
    met.add(id(module))
    text = Path(file).read_text(errors="replace")
    yield f"{module.__name__}\n{text}"
    yield from _imported(text, module.__package__ or "", met)


def _home(value: Any) -> str:
    """The name of the module that defines a class or function; "" of anything else."""
    return value.__module__ or "" if isinstance(value, type | FunctionType) else ""


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
    """What a function reads beside its arguments: plain values, what is defined beside it, and
    other files of its author's.
    """
    try:
        found = inspect.getclosurevars(function)
    except ValueError:  # a cell that is still empty
        return
    for name, value in sorted({**found.globals, **found.nonlocals}.items()):
        if (told := _plain(value)) is not None:
            yield f"{name} = {told}"
        elif isinstance(value, type | FunctionType) and value.__module__ == function.__module__:
            yield from _texts(value, met)
        elif isinstance(value, ModuleType):
            yield from _whole(value, met)
        elif (home := sys.modules.get(_home(value))) is not None:
            yield from _whole(home, met)


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
