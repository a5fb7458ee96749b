"""Find out what the study must know of a user's job by training one step of it here, on the CPU and
on few samples.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from multigpu.spec.errors import JobError
from multigpu.user_model.examined import Reached, Tried, largest, notes_of, shortest
from multigpu.user_model.joined import OWN_SHARD, Gradients, note_of
from multigpu.workloads.own.batches import arrays_of_step, batches_of
from multigpu.workloads.own.description import Described, Leaves, Table
from multigpu.workloads.own.job import Job

# with which a model is tried where it takes them: few, since this is a CPU, and more than one,
# which batch norm wants
SAMPLES = 4
FLAT = 1e-12  # of the largest gradient in fp64: a smaller one is zero but for rounding
# how far two losses of one computation may be apart, relative to them
EQUAL = {"fp64": 1e-9, "fp32": 1e-5}
# and the gradients of a batch and of its halves, by precision and by a shorter type inside
ALIKE = {"fp64": 1e-6, "fp32": 1e-3, "": 0.0, "float32": 1e-3}
ALIKE_ROUNDED = 5e-2  # where the type inside is shorter still

Precision = Literal["fp32", "fp64"]

ANOTHER_LOSS = (
    "a second pass over one batch gives another loss: it keeps a state outside of its parameters"
)

LONGEST_TITLE = 60
"""Letters of a job's name that names of files take over."""


class Examination:
    """A job on its way to a description. Each framework says how its models are made, trained for
    one step, and stored.
    shapes: variable -> its shape, of those that are trained; tied: further names of one variable ->
        its first; frozen: all others. hooked: with a hook on their gradient. unfit, incomparable:
        placements that cannot have it, and why none can be compared.
    """

    framework: Literal["torch", "tensorflow"]
    shapes: dict[str, tuple[int, ...]]
    tied: dict[str, str]
    frozen: list[str]
    hooked: Sequence[str] = ()
    unfit: Mapping[str, str] = MappingProxyType({})
    incomparable = coarse = ""
    precision: Precision = "fp32"
    stored: dict[str, Any]

    def __init__(self, job: Job, replicas: int) -> None:
        self.job, self.replicas, self.notes, self.flat = job, replicas, list[str](), list[str]()
        self.divides = True  # whether a part of a batch can be computed by itself
        self.compared = True  # whether placements of it will be
        self.structure, self.arrays = arrays_of_step(
            batches_of(self.framework, job, job.batch_size, replicas, 0, 0), 0
        )
        self.leaves: Leaves = [(array.shape[1:], array.dtype.name) for array in self.arrays]

    def plain(self, precision: Precision) -> Any:
        """Make the model in this precision, without dropout; JobError: it cannot compute so."""
        raise NotImplementedError

    def step(
        self, arrays: list[np.ndarray], model: Any = None, precision: Precision = "fp32"
    ) -> Tried:
        """Pass forward and back through the model, or another; JobError: nothing can be learned."""
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
        """Train a step on few samples, or a whole batch where the model takes no other (None)."""
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
        self.precision = precision
        try:
            first = self.step(self.cut(rows), model := self.plain(precision), precision)
            sizes = {
                name: largest(gradient)
                for name, gradient in first.gradients.items()
                if gradient is not None
            }
            self.flat = [
                name
                for name, size in sizes.items()
                if size <= FLAT * max(sizes.values(), default=0.0)
            ]
        except JobError:
            self.precision = precision = "fp32"
            first = self.step(self.cut(rows), model := self.plain(precision), precision)
            self.notes.append(
                "it does not compute in fp64, so placements are compared in fp32, less exactly"
            )
        if self.coarse not in ("", "float32"):
            self.notes.append(
                f"it computes in {self.coarse} inside: placements are compared as exactly as that"
                " rounds"
            )
        if first.random:
            drawn = (
                "it draws random numbers in its forward pass outside of the library's dropout"
                " layers"
            )
            return None, f"{drawn}: no two processes draw the same"
        if self.incomparable:
            return None, self.incomparable
        if left_out:
            self.notes.append("placements are compared with dropout set to 0, and timed with it")
        second = self.step(self.cut(rows), model, precision)
        if abs(first.loss - second.loss) > EQUAL[precision] * max(1e-12, abs(first.loss)):
            return None, ANOTHER_LOSS
        if rows is not None:
            try:
                self._joined(model, precision)
            except JobError:
                self.divides = False
                self.notes.append(
                    "half of a batch cannot be computed by itself (the model or the loss looks at"
                    f" all of its samples; {OWN_SHARD}): placements are compared on whole batches"
                )
        return precision, ""

    def _several(self) -> list[np.ndarray]:
        """The first batches, as many as there are until one is built unlike, or all hold samples
        enough to choose unequal halves from.
        """
        arrays = self.arrays
        source = batches_of(self.framework, self.job, self.job.batch_size, self.replicas, 0, 0)
        for step in range(1, SAMPLES):
            if len(arrays[0]) >= SAMPLES**2:
                break
            _, more = arrays_of_step(source, step)
            if [array.shape[1:] for array in more] != [array.shape[1:] for array in arrays]:
                break
            arrays = [np.concatenate(pair) for pair in zip(arrays, more, strict=True)]
        return arrays

    def _joined(self, model: Any, precision: Precision) -> None:
        """Note where the mean of two halves' gradients is not the whole batch's."""
        arrays = self._several()

        def step(arrays: list[np.ndarray]) -> tuple[float, Gradients]:
            tried = self.step(arrays, model, precision)
            return tried.loss, tried.gradients

        if len(arrays[0]) < SAMPLES:
            return
        norms = self.without_norms(model)
        alike = max(ALIKE[precision], ALIKE.get(self.coarse, ALIKE_ROUNDED))
        if note := note_of(step, arrays, SAMPLES, norms, alike):
            self.notes.append(note)

    @contextlib.contextmanager
    def without_norms(self, model: Any) -> Iterator[bool]:
        """Have batch norm use what it has learned inside, and tell whether there is any."""
        yield False

    def step_s(self) -> float:
        return shortest(lambda: self.step(self.arrays))

    def reached(self, tried: Tried, rows: int | None, precision: Precision) -> Reached:
        """Which variables get gradients, from as many whole batches as there is time for."""
        counts = {name: int(tried.gradients[name] is not None) for name in self.shapes}
        return Reached(1, counts, self.flat)

    def confirmed(self, told: dict[str, Any], rows: int | None, precision: Precision) -> None:
        """Compare what engines would train with the user's own model on whole batches, and change
        the fields of the description that are told so that they do not differ; a JobError where
        they do all the same.
        """

    def counted_flops(self, arrays: list[np.ndarray]) -> int:
        """As `flops`; 0, which is noted, where they cannot be counted."""
        try:
            return self.flops(arrays)
        except MemoryError:
            raise
        except Exception as error:
            cause = error.__cause__ or error
            why = " ".join(str(cause).split())[:80]
            self.notes.append(
                f"its operations cannot be counted ({type(cause).__name__}: {why}): how near a step"
                " is to the arithmetic's bound is unknown"
            )
            return 0

    def described(
        self, packed: str, file: bool, code: bytes, timed: bool, compared: bool = True
    ) -> Described:
        """Return what was found out. timed: whether this CPU is what will train. compared: whether
        placements will be; a forecast, which they are not for, takes a fraction of the time.
        """
        self.compared = compared
        tried, rows = self.tried()
        arrays = self.cut(rows)
        if wrong := [
            name
            for name, gradient in tried.gradients.items()
            if gradient is not None and not np.isfinite(largest(gradient))
        ]:
            raise JobError(
                f"the first batch gives {wrong[0].removeprefix('model.')} a gradient that is not"
                f" finite ({self.job.made_at})"
            )
        checked_in, unchecked, precision = None, "it is only forecast", self.precision
        if compared:
            checked_in, unchecked = self.comparability(rows, tried.random)
            precision = self.precision
        reached = self.reached(tried, rows, precision)
        fixed = [*self.frozen, *reached.idle]
        tables = self.tables(tried, arrays)
        self.notes += notes_of(reached, fixed, self.job.rule)
        count = len(arrays[0])
        rest: dict[str, Any] = {
            "variables": [
                (name, shape) for name, shape in self.shapes.items() if name not in fixed
            ],
            "tables": {name: table for name, table in tables.items() if name not in fixed},
            "flat": [name for name in (*reached.flat, *reached.left_out) if name not in fixed],
            "coarse": self.coarse,
            "tied": self.tied,
            "fixed": fixed,
            "idle": reached.idle,
            "seldom": reached.seldom,
            "optimizer": asdict(self.job.rule),
            "own_update": self.job.own_update,
            "micro_steps": self.job.micro_steps,
            "precision": self.job.precision,
            "hooked": [name for name in self.hooked if name not in fixed],
            "unfit": dict(self.unfit),
            "structure": self.structure,
            "framework": self.framework,
            "leaves": self.leaves,
            "any_rows": rows is not None and self.divides,
            "forward_flops": max(1.0, self.counted_flops(arrays) / count),
            # what is kept is written once and read once at least
            "memory_passes": max(1.0, 2 * tried.kept / count),
            "checked_in": checked_in,
            "unchecked": unchecked,
        }
        if compared or rest["tables"]:
            self.confirmed(rest, rows, precision)
        rest["notes"] = list(dict.fromkeys(self.notes))
        rounded = {"tables": sorted(rest["tables"]), "loss": f"{tried.loss:.5g}"}
        told = json.dumps({**rest, "forward_flops": 0, **rounded}, default=str).encode()
        title = re.sub(r"[^A-Za-z0-9_]+", "-", self.job.title)[:LONGEST_TITLE]
        name = f"{title}-{hashlib.sha256(told + code).hexdigest()[:8]}"
        rest["draws"] = tried.random
        rest["step_here_s"] = self.step_s() if timed else 0.0
        return Described(
            name=name, job=packed or f"{name}.job", file=file, values=f"{name}.values", **rest
        )
