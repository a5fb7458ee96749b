"""What the study must know of a user's job, found by training one step of it here, on the CPU and
on few samples.
"""

import hashlib
import importlib
import inspect
import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from multigpu.workloads.own.batches import arrays_of_step, batches_of
from multigpu.workloads.own.description import Described, Leaves, Table
from multigpu.workloads.own.job import Job, JobError, pack, telling

# with which a model is tried where it takes them: few, since this is a CPU, and more than one,
# which batch norm wants
SAMPLES = 4
FLAT = 1e-12  # of the largest gradient in fp64: a smaller one is zero but for rounding
# how far two losses of one computation may be apart, relative to them
EQUAL = {
    "fp64": 1e-9,
    "fp32": 1e-5,
}

Precision = Literal["fp32", "fp64"]


@dataclass
class Tried:
    """One step: its loss, numbers kept for backward (0: unknown), what embeddings were asked for,
    gradients, whether it drew at random.
    """

    loss: float
    kept: int
    asked: dict[str, list[Any]]
    gradients: dict[str, np.ndarray | None]
    random: bool


def shortest(step: Callable[[], Any]) -> float:
    """Seconds of the shortest step of half a second, after a first one."""
    step()
    ends, took = time.perf_counter() + 0.5, list[float]()
    while not took or (time.perf_counter() < ends and len(took) < 20):
        began = time.perf_counter()
        step()
        took.append(time.perf_counter() - began)
    return min(took)


class Examination:
    """A job on its way to a description. Each framework says how its models are made, trained for
    one step, and stored.
    shapes: variable -> its shape, of those that are trained; tied: further names of one variable ->
        its first; frozen: all others.
    """

    framework: Literal["torch", "tensorflow"]
    shapes: dict[str, tuple[int, ...]]
    tied: dict[str, str]
    frozen: list[str]

    def __init__(self, job: Job, replicas: int) -> None:
        self.job, self.replicas, self.notes, self.flat = job, replicas, list[str](), list[str]()
        self.structure, self.arrays = arrays_of_step(
            batches_of(self.framework, job, job.batch_size, replicas, 0, 0), 0
        )
        self.leaves: Leaves = [(array.shape[1:], array.dtype.name) for array in self.arrays]

    def plain(self, precision: Precision) -> Any:
        """The user's model anew, without dropout, in this precision; a JobError where it does not
        compute in it.
        """
        raise NotImplementedError

    def step(
        self, arrays: list[np.ndarray], model: Any = None, precision: Precision = "fp32"
    ) -> Tried:
        """Forward and backward of the model, or of another of its kind; a JobError where nothing
        can be learned.
        """
        raise NotImplementedError

    def flops(self, arrays: list[np.ndarray]) -> int:
        """Operations of the forward pass on this batch."""
        raise NotImplementedError

    def store(self, path: Path) -> None:
        """Write what variables start with."""
        raise NotImplementedError

    def tables(self, tried: Tried, arrays: list[np.ndarray]) -> dict[str, Table]:
        """Embeddings whose ids stand in the batch as they are."""
        return {}

    def checked(self, loss: float) -> float:
        if not np.isfinite(loss):
            raise JobError(
                f"the loss of the first batch is {loss}: no step can follow it ({self.job.made_at})"
            )
        return loss

    def cut(self, rows: int | None) -> list[np.ndarray]:
        return [array[:rows] for array in self.arrays]

    def tried(self) -> tuple[Tried, int | None]:
        """A step on few samples, or on a whole batch where the model takes no other (then the
        second is None).
        """
        rows = min(SAMPLES, self.job.batch_size)
        try:
            return self.step(self.cut(rows)), rows
        except JobError:
            if rows == self.job.batch_size:
                raise
            return self.step(self.cut(None)), None

    def comparability(self, rows: int | None, left_out: bool) -> tuple[Precision | None, str]:
        """The precision in which placements of this model can be compared, or None and why not.
        left_out: whether it drew at random.
        """
        precision: Precision = "fp64"
        try:
            first = self.step(self.cut(rows), model := self.plain(precision), precision)
            sizes = {
                name: float(abs(gradient).max())
                for name, gradient in first.gradients.items()
                if gradient is not None
            }
            self.flat = [name for name, size in sizes.items() if size <= FLAT * max(sizes.values())]
        except JobError:
            precision = "fp32"
            first = self.step(self.cut(rows), model := self.plain(precision), precision)
            self.notes.append(
                "it does not compute in fp64, so placements are compared in fp32, less exactly"
            )
        if first.random:
            drawn = (
                "it draws random numbers in its forward pass outside of the library's dropout"
                " layers"
            )
            return None, f"{drawn}: no two processes draw the same"
        if left_out:
            self.notes.append("placements are compared with dropout set to 0, and timed with it")
        second = self.step(self.cut(rows), model, precision)
        if abs(first.loss - second.loss) > EQUAL[precision] * max(1e-12, abs(first.loss)):
            return (
                None,
                (
                    "a second pass over one batch gives another loss: it keeps a state outside of"
                    " its parameters"
                ),
            )
        if rows is not None and rows % 2 == 0 and rows >= 4 and precision == "fp64":
            self._joined(rows, model)
        return precision, ""

    def _joined(self, rows: int, model: Any) -> None:
        """Note where the mean of two halves' gradients is not the whole's: what then is trained
        depends on how a batch is shared out.
        """
        whole, halves = self.cut(rows), (slice(rows // 2), slice(rows // 2, None))
        joined = self.step(whole, model, "fp64").gradients
        parts = [
            self.step([array[half] for array in whole], model, "fp64").gradients for half in halves
        ]
        for name, gradient in joined.items():
            each = [own for part in parts if (own := part[name]) is not None]
            if gradient is None or len(each) < len(parts):
                continue
            if float(abs(gradient - sum(each) / 2).max()) > 1e-6 * max(
                1e-12, float(abs(gradient).max())
            ):
                self.notes.append(
                    "the mean of shards' gradients is not the joined batch's (batch norm, or a loss"
                    " that is no mean over samples): one process that takes the shards one after"
                    " the other is the reference"
                )
                return

    def step_s(self) -> float:
        return shortest(lambda: self.step(self.arrays))

    def described(self, packed: str, file: bool, code: bytes, timed: bool) -> Described:
        """What was found out. timed: whether this CPU is what will train."""
        tried, rows = self.tried()
        arrays = self.cut(rows)
        tables = self.tables(tried, arrays)
        idle = [name for name in self.shapes if tried.gradients[name] is None]
        fixed = [*self.frozen, *idle]
        if idle:
            named = idle[0].removeprefix("model.")
            self.notes.append(
                f"{len(idle)} parameters get no gradient and are left as they are, {named} among"
                " them"
            )
        if wrong := [
            name
            for name, gradient in tried.gradients.items()
            if gradient is not None and not np.isfinite(gradient).all()
        ]:
            raise JobError(
                f"the first batch gives {wrong[0].removeprefix('model.')} a gradient that is not"
                f" finite ({self.job.made_at})"
            )
        checked_in, unchecked = self.comparability(rows, tried.random)
        if flat := [name for name in self.flat if name not in fixed]:
            what = (
                "parameters have a gradient that is zero but for rounding, as a bias before batch"
                " norm has"
            )
            self.notes.append(f"{len(flat)} {what}: they need not move")
        count = len(arrays[0])
        rest: dict[str, Any] = {
            "variables": [
                (name, shape) for name, shape in self.shapes.items() if name not in fixed
            ],
            "tables": {name: table for name, table in tables.items() if name not in fixed},
            "flat": flat,
            "tied": self.tied,
            "fixed": fixed,
            "optimizer": asdict(self.job.optimizer),
            "structure": self.structure,
            "framework": self.framework,
            "leaves": self.leaves,
            "any_rows": rows is not None,
            "forward_flops": max(1.0, self.flops(arrays) / count),
            # what is kept is written once and read once at least
            "memory_passes": max(1.0, 2 * tried.kept / count),
            "checked_in": checked_in,
            "unchecked": unchecked,
            "notes": list(dict.fromkeys(self.notes)),
        }
        told = json.dumps(
            {**rest, "forward_flops": 0, "tables": sorted(tables), "loss": f"{tried.loss:.5g}"},
            default=str,
        ).encode()
        title = re.sub(r"[^A-Za-z0-9_]+", "-", self.job.title)
        name = f"{title}-{hashlib.sha256(told + code).hexdigest()[:8]}"
        rest["step_here_s"] = self.step_s() if timed else 0.0
        return Described(
            name=name, job=packed or f"{name}.job", file=file, values=f"{name}.values", **rest
        )


def code_of(job: Job) -> bytes:
    """The text of what the job is made of, as far as it has one: whether it is the one that was
    measured before.
    """
    texts = [repr((job.batch_size, job.precision))]
    for part in (job.model, job.batch, job.loss):
        try:
            texts.append(
                inspect.getsource(
                    part if inspect.isroutine(part) or inspect.isclass(part) else type(part)
                )
            )
        except (OSError, TypeError):
            texts.append(repr(type(part)))
    return "\n".join(texts).encode()


def framework_of(job: Job) -> Literal["torch", "tensorflow"]:
    """Which framework the job's model is of: a model, its class, or what makes one (else a
    JobError); Keras' run on TensorFlow here.
    """
    made = job.model
    if inspect.isroutine(made):
        with telling(f"model {job.title!r}", job.made_at):
            made = made()
    # nobody has made a model of Keras who has not imported it by now
    keras = sys.modules.get("keras")
    found = made if isinstance(made, type) else type(made)
    return (
        "tensorflow"
        if keras and issubclass(found, keras.Model) and keras.backend.backend() != "torch"
        else "torch"
    )


def describe(
    job: Job, folder: Path, replicas: int, named: str = "", timed: bool = True
) -> Described:
    """The job's description, written into a folder with its values; a JobError names what failed.
    named: "FILE.py:NAME" of a file's.
    """
    code = Path(named.rpartition(":")[0]).read_bytes() if named else code_of(job)
    packed = b"" if named else pack(job)
    examination: Examination = importlib.import_module(
        f"multigpu.own.examine_{framework_of(job)}"
    ).Examined(job, replicas)
    described = examination.described(named, bool(named), code, timed)
    folder.mkdir(parents=True, exist_ok=True)
    examination.store(folder / described.values)
    if packed:
        (folder / described.job).write_bytes(packed)
    (folder / f"{described.name}.json").write_text(described.model_dump_json(indent=1))
    return described
