"""`python -m multigpu.user_model.fresh FOLDER`: a user's PyTorch job in two new processes, which
load it, make its model and draw a few batches, the second in the other order; what each found is
written for `user_model.reproducible`.

Both are forked from one that has imported PyTorch and has seen nothing of the job, as the workers
of a launch are.
"""

import hashlib
import inspect
import json
import linecache
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from multigpu.machine.machine import cores_here
from multigpu.machine.process import end_with_parent
from multigpu.paths import LIBRARIES, PACKAGE, is_own, quoted
from multigpu.spec.errors import JobError
from multigpu.workloads.own.batches import DrawnBatches, arrays_of_step, batches_of
from multigpu.workloads.own.job import Job, load_job, unpack
from multigpu.workloads.own.loaded import generator_of, is_map
from multigpu.workloads.own.modules import cast, without_dropout
from multigpu.workloads.own.seeding import drawing_alike, seed_all, states
from multigpu.workloads.own.structure import put_together
from multigpu.workloads.own.torch import comparable, loss_of, own_module, tensors_of

ASKED, GIVEN, PACKED = "asked.json", "given.pt", "job"
LATER_S = 86_461.0
"""By how much the second process' clock is ahead, so that seeds from a clock differ."""

OTHERS = "torch.distributed"
MANY = 20  # lines that are told


def users_line(frame: FrameType | None, direct: bool) -> str:
    """The innermost of the user's own lines that led here; direct: only if it calls this itself."""
    while frame is not None:
        name = frame.f_code.co_filename
        if is_own(name):
            return quoted(name, frame.f_lineno)
        if direct:
            return ""
        frame = frame.f_back
    return ""


class Watch:
    """Record where user code asks the system for random numbers or the time, in which phase."""

    def __init__(self, later_s: float) -> None:
        self.later_s = later_s
        self.phase = "load"
        self.told: list[tuple[str, str, str]] = []

    def note(self, cause: str, direct: bool = False) -> None:
        line = users_line(sys._getframe(2), direct)
        told = (self.phase, cause, line)
        if line and told not in self.told and len(self.told) < MANY:
            self.told.append(told)

    @contextmanager
    def watching(self) -> Iterator[None]:
        urandom, seconds, nanoseconds = os.urandom, time.time, time.time_ns
        make = np.random.default_rng

        def asked(count: int) -> bytes:
            self.note("os.urandom")
            return urandom(count)

        def clock() -> float:
            self.note("the clock", direct=True)
            return seconds() + self.later_s

        def clock_ns() -> int:
            self.note("the clock", direct=True)
            return nanoseconds() + int(1e9 * self.later_s)

        def made(seed: Any = None) -> np.random.Generator:
            if seed is None:
                self.note("numpy.random.default_rng() without a seed")
            return make(seed)

        def others(own: Callable[[], Any]) -> Any:
            self.note(OTHERS, direct=True)
            return own()

        ways = [(name, getattr(dist, name)) for name in ("is_initialized", "get_world_size")]
        places: list[tuple[Any, str, Any]] = [
            *((dist, name, partial(others, own)) for name, own in ways),
            (os, "urandom", asked),
            (random, "_urandom", asked),
            (time, "time", clock),
            (time, "time_ns", clock_ns),
            (np.random, "default_rng", made),
        ]
        before = [(where, name, getattr(where, name)) for where, name, _ in places]
        for where, name, function in places:
            setattr(where, name, function)
        try:
            yield
        finally:
            for where, name, function in before:
                setattr(where, name, function)


def defined_at(part: Any) -> str:
    """Find the line that defines a user's function, or an object's class; "": there is none."""
    code = getattr(inspect.unwrap(part) if callable(part) else part, "__code__", None)
    if code is None:
        for name in ("__call__", "__getitem__", "__iter__"):
            if code is None:
                code = getattr(getattr(type(part), name, None), "__code__", None)
    if code is None or code.co_filename.startswith((*LIBRARIES, PACKAGE)):
        return ""
    line = next(
        (
            number
            for number in range(code.co_firstlineno, code.co_firstlineno + 20)
            if linecache.getline(code.co_filename, number).lstrip().startswith(("def ", "lambda"))
        ),
        code.co_firstlineno,
    )
    return quoted(code.co_filename, line)


def digest(array: np.ndarray) -> str:
    """Of an array's shape, type and content."""
    told = hashlib.sha256(f"{array.shape}{array.dtype}".encode())
    told.update(np.ascontiguousarray(array).tobytes())
    return told.hexdigest()[:16]


def draws_of(job: Job, rows: int, replicas: int, backwards: bool) -> dict[str, Any]:
    """Digests of batches by step and device; whether one is written over the one before."""
    asked = [(0, 0), (1, 0), (1, min(1, replicas - 1))]
    order = list(reversed(asked)) if backwards else asked
    readers = {
        rank: batches_of("torch", job, rows, replicas, rank, 0) for rank in {r for _, r in asked}
    }
    found: dict[str, list[str]] = {}
    reused = False
    before: tuple[list[np.ndarray], list[str]] = [], []
    for step, rank in order:
        _, arrays = arrays_of_step(readers[rank], step)
        digests = [digest(array) for array in arrays]
        reused |= [digest(array) for array in before[0]] != before[1]
        found[f"{step},{rank}"] = digests
        before = arrays, digests
    return {"draws": found, "reused": reused}


def drawn_from(job: Job, rows: int) -> dict[str, Any]:
    """Which generators a batch draws from, and whether from the one given (None: none is given)."""
    given = None
    seed_all(5)
    before = states()
    if callable(job.batch) and not hasattr(job.batch, "__iter__"):
        generator = generator_of(7)
        start = generator.get_state()
        job.batch(rows, generator)
        given = not torch.equal(start, generator.get_state())
    elif is_map(job.batch):
        job.batch.dataset[0]
    after = states()
    return {
        "moved": [name for name, state in before.items() if after[name] != state],
        "used": given,
    }


def awaited(path: Path) -> Any:
    """Return what the process that asks has written by now, or will."""
    while not path.exists():
        time.sleep(0.02)
    return torch.load(path, weights_only=True)


def loss_in(
    job: Job, module: torch.nn.Module, structure: Any, arrays: Sequence[np.ndarray], kind: Any
) -> float:
    """The loss of a batch, as every process must compute it."""
    with comparable(kind), drawing_alike(1), torch.no_grad():
        batch = put_together(structure, tensors_of(list(arrays), kind))
        return float(loss_of(job, cast(module, kind), batch))


def model_loss(job: Job, module: torch.nn.Module, given: dict[str, Any]) -> dict[str, Any]:
    """The loss of one batch from given values, in fp64 where that is computed; None: it fails."""
    without_dropout(module)
    whole = [tensor.numpy() for tensor in given["arrays"]]
    few = [array[: given["rows"]] for array in whole]
    structure = json.loads(given["structure"])
    values = {
        **{f"model.{name}": value for name, value in module.named_parameters()},
        **{f"model.{name}": value for name, value in module.named_buffers()},
    }
    for kind, arrays in product((torch.float64, torch.float32), (few, whole)):
        with torch.no_grad():
            for name, value in values.items():
                stored = given["values"].get(name)
                if stored is not None and stored.shape == value.shape:
                    value.copy_(stored)
        try:
            return {"loss": loss_in(job, module, structure, arrays, kind), "kind": str(kind)}
        except Exception:
            continue
    return {"loss": None, "kind": ""}


def found_by(folder: Path, place: int) -> dict[str, Any]:
    """All that this process finds of the job."""
    asked = json.loads((folder / ASKED).read_text())
    watch = Watch(place * LATER_S)
    found: dict[str, Any] = {"error": "", "loss": None}
    torch.set_num_threads(max(1, cores_here() // 4))  # beside the other and the one that asked
    try:
        with watch.watching():
            job = load_job(asked["job"]) if asked["job"] else unpack(folder / PACKED)
            source = getattr(job.batch, "dataset", job.batch)
            found |= {"line": defined_at(source), "made_at": job.made_at}
            found["by_function"] = isinstance(
                reader := batches_of("torch", job, 1, 1, 0, 0), DrawnBatches
            )
            del reader
            watch.phase = "model"
            module = own_module(job)
            given = awaited(folder / GIVEN)
            watch.phase = "batch"
            found |= draws_of(job, given["rows"], given["replicas"], bool(place))
            found |= drawn_from(job, given["rows"])
            watch.phase = "model"
            found |= model_loss(job, module, given)
    except JobError as error:
        found["error"] = str(error)
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    found["watched"] = watch.told
    return found


def forked(work: Callable[[], dict[str, Any]], path: Path) -> int:
    """A process that writes what `work` finds; its id."""
    if pid := os.fork():
        return pid
    try:
        end_with_parent()
        part = path.with_suffix(".part")
        part.write_text(json.dumps(work()))
        part.rename(path)
    finally:
        os._exit(0)


def main() -> None:
    """Both processes, side by side."""
    end_with_parent()
    folder = Path(sys.argv[1])
    pids = [
        forked(partial(found_by, folder, place), folder / f"found-{place}.json")
        for place in range(2)
    ]
    for pid in pids:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
